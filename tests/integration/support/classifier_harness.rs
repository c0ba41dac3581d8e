//! Classifies requests like the gateway, without a gateway: simulated days run in seconds.

use super::combined_log::RecordedRequest;
use std::path::Path;
use std::time::Duration;
use tidegate_config as config;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_policy::Classification;
use tidegate_policy::address_lists::AddressLists;
use tidegate_replay::log::{self, LinePosition, OrderedLine};
use tidegate_replay::{Assumptions, Policy, ReplayRequest, Simulator};

/// Simulator that keeps the profiles of all clients.
pub struct ClassifierHarness(Simulator);

impl ClassifierHarness {
    /// Creates a harness with `rules` in YAML.
    pub fn with_rules(rules: &str) -> Self {
        let operators = OperatorTable::builtin();
        let names: Vec<&str> = operators.names().collect();
        let yaml = format!("origin: {{ url: 'http://127.0.0.1:1' }}\n{rules}");
        let settings = config::load(Path::new("lookout.yaml"), &yaml, &[], &[], &names);
        let settings = settings.unwrap_or_else(|errors| panic!("{errors}"));
        let policy = Policy::new("lookout.yaml".into(), settings, operators, AddressLists::default());
        let assumptions = Assumptions { latency: Duration::ZERO, ..Assumptions::default() };
        Self(Simulator::new(policy, &assumptions, Default::default()))
    }

    /// Classifies the client of a line. Headers and host are unknown.
    pub fn classify_line(&mut self, line: &RecordedRequest) -> Classification {
        self.classify_line_at_host(line, "")
    }

    /// Like [`Self::classify_line`], with the host known.
    pub fn classify_line_at_host(&mut self, line: &RecordedRequest, host: &str) -> Classification {
        let text = format_log_line(line, host);
        let parsed =
            log::LogLine::read(text.as_bytes()).ok().flatten().unwrap_or_else(|| panic!("not a log line: {text}"));
        let request = ReplayRequest::from_line(&parsed).unwrap_or_else(|| panic!("not a request: {text}"));
        let next = OrderedLine { at: line.at, position: LinePosition::default(), text: text.as_bytes() };
        let mut classification = None;
        self.0.process(next, &parsed, &request, &mut |_, decision| classification = Some(decision.classification));
        classification.expect("each line has one decision")
    }
}

/// Formats the line like a server log, with escapes.
fn format_log_line(line: &RecordedRequest, host: &str) -> String {
    let RecordedRequest { status, http10, request, .. } = line;
    let escaped = |field: &str| field.replace('\\', "\\\\").replace('"', "\\\"");
    let or_dash = |field: &str| if field.is_empty() { "-".to_owned() } else { escaped(field) };
    let (version, host) =
        (if *http10 { "1.0" } else { "1.1" }, if host.is_empty() { "" } else { &format!("{host}:80 ") });
    format!(
        "{host}{} - - [01/Jan/2024:00:00:00 +0000] \"{} {} HTTP/{version}\" {status} 0 \"{}\" \"{}\"",
        request.client,
        request.method,
        escaped(&request.target),
        or_dash(request.referer.as_deref().unwrap_or_default()),
        or_dash(&request.user_agent),
    )
}
