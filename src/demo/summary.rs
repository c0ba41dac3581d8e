//! Texts of the demo: introduction, checks, summary and next steps. Pure functions of the counters.

use super::config::LIMIT;
use super::frame::format_time_of_day;
use super::origin::OriginTotals;
use super::scoreboard::{ClientGroup, RefusalExample, Scoreboard};
use super::scrape::Scrape;
use crate::terminal::{ColorMode, format_duration, group_digits};
use std::fmt::Write;
use std::net::SocketAddr;

/// Returns the failed checks, one sentence each; empty if all passed.
pub fn failed_checks(scoreboard: &Scoreboard, served: &OriginTotals) -> Vec<String> {
    let mut failures = Vec::new();
    let people = scoreboard.row(ClientGroup::People);
    if people.refused > 0 {
        failures.push(format!("{} requests of people were refused", group_digits(people.refused)));
    }
    if people.requests == 0 {
        failures.push("people sent no requests".to_owned());
    }
    if served.units > LIMIT {
        failures.push(format!("the origin used {} units of {}", group_digits(served.units), group_digits(LIMIT)));
    }
    let impostors = scoreboard.row(ClientGroup::Impostors);
    if impostors.costly_refused < impostors.costly {
        let admitted = impostors.costly - impostors.costly_refused;
        failures.push(format!("{} costly requests of impostors were admitted", group_digits(admitted)));
    }
    if scoreboard.failed > 0 {
        failures.push(format!("{} requests failed", group_digits(scoreboard.failed)));
    }
    failures
}

/// Renders the summary of the day.
pub fn summary(scoreboard: &Scoreboard, served: &OriginTotals, scrape: &Scrape, color: ColorMode) -> String {
    let mut out = String::new();
    let people = scoreboard.row(ClientGroup::People);
    let _ = writeln!(out, "{}", color.bold("The day is over."));
    let _ = writeln!(
        out,
        "  People sent {} requests; {} were refused.",
        group_digits(people.requests),
        group_digits(people.refused)
    );
    let _ = writeln!(
        out,
        "  The origin counted {} of {} units; the gateway counted {}.",
        group_digits(served.units),
        group_digits(LIMIT),
        group_digits(scoreboard.quota.used as u64)
    );
    let impostors = scoreboard.row(ClientGroup::Impostors);
    let detected = scrape.count("tidegate_requests_total", &[("class", "impostor")]);
    let _ = writeln!(
        out,
        "  {} requests falsely claimed to be Googlebot or Bingbot; {} were detected.",
        group_digits(impostors.requests),
        group_digits(detected)
    );
    let _ = writeln!(out, "\n{}", color.bold("Refusals by client"));
    let _ = writeln!(out, "  {:<32}{:>9}{:>10}   reasons", "", "requests", "refused");
    for (actor, row) in scoreboard.actors.iter().filter(|(_, row)| row.refused > 0) {
        let reasons: Vec<&str> = row.reasons.keys().map(String::as_str).collect();
        let _ = writeln!(
            out,
            "  {actor:<32}{:>9}{:>10}   {}",
            group_digits(row.requests),
            group_digits(row.refused),
            reasons.join(", ")
        );
    }
    if let Some(example) = &scoreboard.example {
        out.push_str(&render_example(example, color));
    }
    out
}

fn render_example(example: &RefusalExample, color: ColorMode) -> String {
    let request = &example.request;
    let mut out = format!("\n{}\n", color.bold("Example of a refusal"));
    let _ = writeln!(
        out,
        "  {} {}    ({} from {} at {})",
        request.method,
        request.path,
        request.actor,
        request.client,
        format_time_of_day(request.at)
    );
    let _ = writeln!(out, "  HTTP/1.1 {}", example.status);
    for (name, value) in &example.headers {
        let _ = writeln!(out, "  {name}: {value}");
    }
    let _ = writeln!(out, "\n  {}", example.body.trim_end().replace('\n', "\n  "));
    out
}

/// Renders commands to try while the gateway keeps running.
pub fn next_steps(listen: SocketAddr, admin: SocketAddr) -> String {
    let curl = format!("curl -si http://{listen}/item/100042");
    format!(
        "The gateway keeps running at http://{listen}, with admin at http://{admin}. A new day has a full quota.\n\
         \x20 {curl} -A 'Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0'   # a person\n\
         \x20 {curl} -A 'Mozilla/5.0 (compatible; Googlebot/2.1)' -H 'X-Forwarded-For: 203.0.113.9'   # an impostor: not an address of Google\n\
         \x20 {curl} -A 'GPTBot/1.3' -H 'X-Forwarded-For: 20.171.206.5'   # verified: refused if the page costs units\n\
         \x20 curl -s http://{admin}/api/v1/state ; curl -s http://{admin}/metrics\n\
         Press Ctrl-C to stop.\n"
    )
}

/// Renders the introduction: the configuration and the size of the day.
pub fn intro(rules: &str, seconds: u64, requests: usize, color: ColorMode) -> String {
    let mut out = format!("{}\n", color.bold("Configuration"));
    for line in rules.lines() {
        let _ = writeln!(out, "  {line}");
    }
    let _ = writeln!(
        out,
        "\n{}",
        color.bold(&format!("A day in {}: {} requests", format_duration(seconds), group_digits(requests as u64)))
    );
    out
}

#[cfg(test)]
mod tests {
    use super::super::scoreboard::{Gauge, Row};
    use super::*;

    fn clean_run() -> (Scoreboard, OriginTotals) {
        let mut scoreboard = Scoreboard { quota: Gauge { limit: 2000.0, used: 1800.0 }, ..Scoreboard::default() };
        scoreboard.rows[ClientGroup::People as usize] = Row { requests: 900, ..Row::default() };
        let refused = Row { requests: 10, refused: 8, costly: 8, costly_refused: 8, ..Row::default() };
        scoreboard.rows[ClientGroup::Impostors as usize] = refused.clone();
        scoreboard.actors.insert("false bingbot", Row { reasons: [("tier".to_owned(), 8)].into(), ..refused });
        (scoreboard, OriginTotals { units: 1800, ..OriginTotals::default() })
    }

    #[test]
    fn clean_run_has_no_failed_checks() {
        let (scoreboard, served) = clean_run();
        assert_eq!(failed_checks(&scoreboard, &served), Vec::<String>::new());
        let text = summary(&scoreboard, &served, &Scrape::default(), ColorMode::Plain);
        assert!(text.contains("People sent 900 requests; 0 were refused."), "{text}");
        assert!(text.contains("false bingbot                          10         8   tier"), "{text}");
    }

    #[test]
    fn each_failed_check_is_reported() {
        let (mut scoreboard, mut served) = clean_run();
        scoreboard.rows[ClientGroup::People as usize].refused = 1;
        scoreboard.rows[ClientGroup::Impostors as usize].costly_refused = 5;
        scoreboard.failed = 2;
        served.units = LIMIT + 1;
        assert_eq!(failed_checks(&scoreboard, &served).len(), 4);
        assert_eq!(failed_checks(&Scoreboard::default(), &OriginTotals::default()), ["people sent no requests"]);
    }
}
