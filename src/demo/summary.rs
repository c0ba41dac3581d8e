//! Texts of the demo: introduction, checks, summary and next steps.

use super::config::{LIMIT, RULES_EXCERPT};
use super::scoreboard::{ClientGroup, Scoreboard};
use super::screen::time_of_day;
use super::traffic::DemoRequest;
use bytes::Bytes;
use http::Response;
use std::fmt::Write;
use std::net::SocketAddr;
use tidegate_replay::terminal::{ColorMode, format_duration, group_digits};

/// Renders the introduction: the configuration and the size of the day.
pub(super) fn intro(seconds: u64, requests: usize, color: ColorMode) -> String {
    let day = format!("A day in {}: {} requests", format_duration(seconds), group_digits(requests as u64));
    let rules: String = RULES_EXCERPT.lines().map(|line| format!("  {line}\n")).collect();
    format!("{}\n{rules}\n{}\n", color.bold("Configuration"), color.bold(&day))
}

/// Returns the failed checks, one sentence each; empty if all passed. `origin_units` is what the origin counted.
pub(super) fn failed_checks(scoreboard: &Scoreboard, origin_units: u64) -> Vec<String> {
    let (people, impostors) = (scoreboard.row(ClientGroup::People), scoreboard.row(ClientGroup::Impostors));
    let [refused, units, limit, costly, failed] =
        [people.refused, origin_units, LIMIT, impostors.costly_admitted, scoreboard.failed].map(group_digits);
    let checks = [
        (people.refused > 0, format!("{refused} requests of people were refused")),
        (people.requests == 0, "people sent no requests".to_owned()),
        (origin_units > LIMIT, format!("the origin used {units} units of {limit}")),
        (impostors.costly_admitted > 0, format!("{costly} costly requests of impostors were admitted")),
        (scoreboard.failed > 0, format!("{failed} requests failed")),
    ];
    checks.into_iter().filter(|(is_failed, _)| *is_failed).map(|(_, sentence)| sentence).collect()
}

/// Renders the summary of the day. `detected` is the number of requests of impostors that the gateway detected.
pub(super) fn summary(scoreboard: &Scoreboard, origin_units: u64, detected: u64, color: ColorMode) -> String {
    let (people, impostors) = (scoreboard.row(ClientGroup::People), scoreboard.row(ClientGroup::Impostors));
    let [sent, refused, claims] = [people.requests, people.refused, impostors.requests].map(group_digits);
    let [detected, limit, used, counted] = [detected, LIMIT, origin_units, scoreboard.used].map(group_digits);
    let mut out = format!(
        "{}\n  People sent {sent} requests; {refused} were refused.\n  \
         The origin counted {used} of {limit} units; the gateway counted {counted}.\n  \
         {claims} requests falsely claimed to be Googlebot or Bingbot; {detected} were detected.\n\n\
         {}\n  {:<32}{:>9}{:>10}   reasons\n",
        color.bold("The day is over."),
        color.bold("Refusals by client"),
        "",
        "requests",
        "refused"
    );
    for (actor, row) in scoreboard.actors.iter().filter(|(_, row)| row.refused > 0) {
        let reasons: Vec<&str> = row.reasons.iter().map(String::as_str).collect();
        let [requests, refused] = [row.requests, row.refused].map(group_digits);
        let _ = writeln!(out, "  {actor:<32}{requests:>9}{refused:>10}   {}", reasons.join(", "));
    }
    if let Some((request, response)) = &scoreboard.example {
        let _ = writeln!(out, "\n{}", color.bold("Example of a refusal"));
        out += &example(request, response);
    }
    out
}

fn example(request: &DemoRequest, response: &Response<Bytes>) -> String {
    let DemoRequest { method, path, actor, client, at, .. } = request;
    let mut out = format!("  {method} {path}    ({actor} from {client} at {})\n", time_of_day(*at));
    let _ = writeln!(out, "  HTTP/1.1 {}", response.status());
    for name in HEADERS_SHOWN {
        if let Some(value) = response.headers().get(name) {
            let _ = writeln!(out, "  {name}: {}", String::from_utf8_lossy(value.as_bytes()));
        }
    }
    let body = String::from_utf8_lossy(response.body());
    out + &format!("\n  {}\n", body.trim_end().replace('\n', "\n  "))
}

/// Headers of a refusal that are shown.
const HEADERS_SHOWN: [&str; 5] =
    ["retry-after", "ratelimit-policy", "ratelimit", "content-type", "x-tidegate-decision"];

/// Renders commands to try while the gateway keeps running.
pub(super) fn next_steps(listen: SocketAddr, admin: SocketAddr) -> String {
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

#[cfg(test)]
mod tests {
    use super::super::scoreboard::Row;
    use super::*;
    use http::Method;
    use std::time::Duration;
    use tidegate_policy::ClientKind;

    fn clean_run() -> Scoreboard {
        let mut scoreboard = Scoreboard { used: 1800, ..Scoreboard::default() };
        scoreboard.rows[ClientGroup::People as usize] = Row { requests: 900, ..Row::default() };
        let refused = Row { requests: 10, refused: 8, reasons: ["tier".to_owned()].into(), ..Row::default() };
        scoreboard.rows[ClientGroup::Impostors as usize] = refused.clone();
        scoreboard.actors.insert("false bingbot", refused);
        scoreboard
    }

    #[test]
    fn clean_run_has_no_failed_checks() {
        assert_eq!(failed_checks(&clean_run(), 1800), Vec::<String>::new());
    }

    #[test]
    fn summary_shows_refusals_and_an_example() {
        let request = DemoRequest {
            at: Duration::from_secs(14 * 3600 + 5 * 60),
            client: [203, 0, 113, 9].into(),
            method: Method::GET,
            path: "/item/7".into(),
            user_agent: "Mozilla/5.0 (compatible; bingbot/2.0)".into(),
            referer: None,
            label: ClientKind::Impostor,
            actor: "false bingbot",
            cost: 1,
        };
        let response = Response::builder().status(429).header("date", "not shown").header("retry-after", "34500");
        let response = response.body(Bytes::from_static(b"{\n  \"status\": 429\n}\n")).expect("a valid response");
        let run = Scoreboard { example: Some((request, response)), ..clean_run() };
        insta::assert_snapshot!(summary(&run, 1800, 10, ColorMode::Plain));
    }

    #[test]
    fn each_failed_check_is_reported() {
        let mut scoreboard = clean_run();
        scoreboard.rows[ClientGroup::People as usize].refused = 1;
        scoreboard.rows[ClientGroup::Impostors as usize].costly_admitted = 5;
        scoreboard.failed = 2;
        assert_eq!(failed_checks(&scoreboard, LIMIT + 1).len(), 4);
        assert_eq!(failed_checks(&Scoreboard::default(), 0), ["people sent no requests"]);
    }
}
