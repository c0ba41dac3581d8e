//! Texts of the demo: introduction, checks, summary and next steps.

use super::config::{LIMIT, RULES_EXCERPT};
use super::scoreboard::{ClientGroup, Scoreboard};
use super::screen::{Screen, time_of_day};
use super::traffic::DemoRequest;
use bytes::Bytes;
use http::Response;
use std::fmt::Write;
use std::net::SocketAddr;
use tidegate_replay::terminal::{format_duration, group_digits, truncate, wrap};

/// Renders the introduction: the address of the live page, the configuration and the size of the day.
pub(super) fn intro(seconds: u64, requests: usize, admin: SocketAddr, screen: &Screen) -> String {
    let color = screen.color_mode();
    let day = format!("A day in {}: {} requests", format_duration(seconds), group_digits(requests as u64));
    let rule = |line: &str| truncate(&format!("  {line}"), screen.text_width()) + "\n";
    let rules: String = RULES_EXCERPT.lines().map(rule).collect();
    format!(
        "{}\n  open http://{admin} in a browser\n\n{}\n{rules}\n{}\n",
        color.bold("Live page"),
        color.bold("Configuration"),
        color.bold(&day)
    )
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

/// Renders the summary of the day. `detected` is the number of requests of impostors that the gateway detected; `comparison`
/// is with the day without it.
pub(super) fn summary(
    scoreboard: &Scoreboard,
    origin_units: u64,
    detected: u64,
    comparison: &str,
    screen: &Screen,
) -> String {
    let (color, width) = (screen.color_mode(), screen.text_width());
    let (people, impostors) = (scoreboard.row(ClientGroup::People), scoreboard.row(ClientGroup::Impostors));
    let [sent, refused, claims] = [people.requests, people.refused, impostors.requests].map(group_digits);
    let [detected, limit, used, counted] = [detected, LIMIT, origin_units, scoreboard.used].map(group_digits);
    let results: String = [
        format!("People sent {sent} requests; {refused} were refused."),
        format!("The origin counted {used} of {limit} units; the gateway counted {counted}."),
        format!("{claims} requests falsely claimed to be Googlebot or Bingbot; {detected} were detected."),
    ]
    .iter()
    .map(|result| format!("  {}\n", wrap(result, 2, 4, width)))
    .collect();
    let name_width = width.saturating_sub(32).clamp(20, 32);
    let mut out = format!(
        "{}\n{results}\n{comparison}\n{}\n  {:<name_width$}{:>9}{:>10}   reasons\n",
        color.bold("The day is over."),
        color.bold("Refusals by client"),
        "",
        "requests",
        "refused"
    );
    for (actor, row) in scoreboard.actors.iter().filter(|(_, row)| row.refused > 0) {
        let reasons: Vec<&str> = row.reasons.iter().map(String::as_str).collect();
        let [requests, refused] = [row.requests, row.refused].map(group_digits);
        let line = format!("  {actor:<name_width$}{requests:>9}{refused:>10}   {}", reasons.join(", "));
        out += &(truncate(&line, width) + "\n");
    }
    if let Some((request, response)) = &scoreboard.example {
        let _ = writeln!(out, "\n{}", color.bold("Example of a refusal"));
        out += &example(request, response, width);
    }
    out
}

fn example(request: &DemoRequest, response: &Response<Bytes>, width: usize) -> String {
    let DemoRequest { method, path, actor, client, at, .. } = request;
    let mut out = format!("  {method} {path}    ({actor} from {client} at {})\n", time_of_day(*at));
    let _ = writeln!(out, "  HTTP/1.1 {}", response.status());
    for name in HEADERS_SHOWN {
        if let Some(value) = response.headers().get(name) {
            let _ = writeln!(out, "  {name}: {}", String::from_utf8_lossy(value.as_bytes()));
        }
    }
    // One member a line: a terminal would break the document within words.
    let body = String::from_utf8_lossy(response.body()).trim_end().replace(",\"", ",\n\"");
    let members = body.lines().map(|line| format!("  {}\n", wrap(line, 2, 4, width)));
    out + "\n" + &members.collect::<String>()
}

/// Headers of a refusal that are shown.
const HEADERS_SHOWN: [&str; 5] =
    ["retry-after", "ratelimit-policy", "ratelimit", "content-type", "x-tidegate-decision"];

/// Renders commands to try while the gateway keeps running, in lines of at most 60 columns.
pub(super) fn next_steps(listen: SocketAddr, admin: SocketAddr) -> String {
    let try_page = |comment: &str, agent: &str, address: &str| {
        let address = match address {
            "" => String::new(),
            address => format!("    -H 'X-Forwarded-For: {address}' \\\n"),
        };
        format!("  # {comment}\n  curl -si http://{listen}/item/100042 \\\n{address}    -A '{agent}'\n")
    };
    format!(
        "The gateway keeps running, with a full quota for a new day:\n  http://{listen}, admin http://{admin}\n{}{}{}  # \
         the state, for people and for programs\n  tidegate status --admin {admin}\n  curl -s http://{admin}/metrics\n\
         Press Ctrl-C to stop.\n",
        try_page("a person", "Mozilla/5.0 (X11) Gecko/20100101 Firefox/144.0", ""),
        try_page("an impostor: not an address of Google", "Mozilla/5.0 (compatible; Googlebot/2.1)", "203.0.113.9"),
        try_page("verified, and refused if the page costs units", "GPTBot/1.3", "20.171.206.5"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::scoreboard::Row;
    use super::*;
    use http::Method;
    use std::time::Duration;
    use tidegate_policy::ClientKind;
    use tidegate_replay::terminal::ColorMode;

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
        let screen = |width| Screen::new(Box::new(std::io::sink()), Some(width), ColorMode::Plain);
        let comparison = "Units by the hour\n";
        let rendered = summary(&run, 1800, 10, comparison, &screen(80));
        let [results, compared, refusals] =
            ["The day is over.", comparison, "Refusals by client"].map(|text| rendered.find(text).expect("is shown"));
        assert!(results < compared && compared < refusals, "the comparison is the second thing:\n{rendered}");
        insta::assert_snapshot!(rendered);
        let (listen, admin) = (([127, 0, 0, 1], 40_123).into(), ([127, 0, 0, 1], 40_124).into());
        let intro = intro(60, 12_000, admin, &screen(60));
        assert!(intro.starts_with("Live page\n  open http://127.0.0.1:40124 in a browser\n"), "{intro}");
        assert!(intro.contains("…\n"), "what is cut ends with an ellipsis:\n{intro}");
        for text in [summary(&run, 1800, 10, comparison, &screen(60)), intro, next_steps(listen, admin)] {
            assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        }
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
