//! Writes synthetic days as the access log of a site without a gateway, in the combined format.

use super::day;
use super::site;
use super::traffic::{self, DemoRequest};
use std::io::{self, Write};

/// Writes `days` days, each generated with its own seed.
pub fn write(days: u64, seed: u64, scale: f64, out: &mut dyn Write) -> io::Result<()> {
    for number in 0..days {
        for line in lines(number, &day::generate(seed + number, scale)) {
            out.write_all(line.as_bytes())?;
        }
    }
    out.flush()
}

/// Returns the lines of one day, `number` days after the first.
pub fn lines(number: u64, day: &[DemoRequest]) -> impl Iterator<Item = String> {
    let start = traffic::DAY_START + traffic::DAY * u32::try_from(number).unwrap_or(u32::MAX);
    day.iter().map(move |request| {
        let at = jiff::Timestamp::from_second((start + request.at).seconds() as i64).unwrap_or_default();
        let DemoRequest { client, method, path, user_agent, .. } = request;
        let time = at.strftime("%d/%b/%Y:%H:%M:%S +0000");
        let status = if site::exists(path) { 200 } else { 404 };
        let referer = request.referer.as_deref().unwrap_or("-");
        let agent = if user_agent.is_empty() { "-" } else { user_agent };
        format!("{client} - - [{time}] \"{method} {path} HTTP/1.1\" {status} {BYTES} \"{referer}\" \"{agent}\"\n")
    })
}

/// Size of every response, in bytes.
const BYTES: u32 = 5120;

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_replay::log::{LogLine, LoggedClient};

    #[test]
    fn every_request_is_a_parsable_log_line() {
        let day = day::generate(1, 0.01);
        let start = traffic::DAY_START + traffic::DAY;
        for (text, request) in lines(1, &day).zip(&day) {
            let line = LogLine::read(text.trim_end().as_bytes()).expect("a line").expect("not empty");
            let logged_request = line.request.expect("a request");
            let query = logged_request.query.map_or_else(String::new, |query| format!("?{query}"));
            assert_eq!(format!("{}{query}", logged_request.path), request.path);
            assert_eq!(
                (line.client, logged_request.method),
                (LoggedClient::Address(request.client), request.method.clone())
            );
            assert_eq!(line.at.seconds(), (start + request.at).seconds());
            assert_eq!(line.user_agent.unwrap_or_default(), request.user_agent.as_bytes());
        }
    }
}
