//! Renders an explanation as text: the request, its steps, the response, and the remedies.

use crate::cli::status::View;
use jiff::tz::TimeZoneDatabase;
use tidegate_policy::display::alters_display;
use tidegate_replay::explain::{Explanation, Remedy, RequestSummary, ResponseSummary, Step, StepResult, Verdict};
use tidegate_replay::terminal::wrap;

/// Renders an explanation as text.
pub fn render(explanation: &Explanation, view: &View) -> String {
    let Explanation { request, steps, responses, remedies, notes } = explanation;
    let renderer = Renderer { view, now: &request.time };
    let steps: Vec<String> = steps.iter().map(|step| renderer.step(step)).collect();
    let notes = notes.iter().map(|note| renderer.block(0, note, str::to_owned)).collect();
    [renderer.request(request), steps.concat(), renderer.responses(responses), renderer.remedies(remedies), notes]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

struct Renderer<'a> {
    view: &'a View,
    now: &'a str,
}

impl Renderer<'_> {
    fn request(&self, request: &RequestSummary) -> String {
        let RequestSummary { time, decision, method, host, path, query, client, user_agent } = request;
        let query = query.as_ref().map_or_else(String::new, |query| format!("?{query}"));
        let target = format!("{method} {host}{path}{query}");
        let decision = decision.as_ref().map_or_else(String::new, |id| format!(", decision {id}"));
        let local_time = format!("{} {}", self.view.local_exactly(time, None), self.view.zone_name(time));
        let from = format!("from {client}, {local_time}{decision}");
        let agent = if user_agent.is_empty() { "no user agent" } else { user_agent };
        let indented = |text: &str| self.block(2, text, str::to_owned);
        self.block(0, &target, |text| self.view.color.bold(text)) + &indented(&from) + &indented(agent)
    }

    /// Renders a step: its name, its result, and in the last column its message, evidence and rule.
    fn step(&self, step: &Step) -> String {
        let color = self.view.color;
        let name = format!("{:STAGE_WIDTH$}", step.step.name());
        let result = self.result_text(step.finding);
        let quota = step.quota.as_ref().map_or_else(String::new, |quota| format!("{quota}: "));
        let message = self.block(MESSAGE_COLUMN, &format!("{quota}{}", step.message), str::to_owned);
        let mut text = format!("{}  {result}  {}", color.bold(&name), message.trim_start());
        for evidence in &step.evidence {
            text += &self.block(MESSAGE_COLUMN, evidence, str::to_owned);
        }
        if let Some(rule) = &step.rule {
            text += &self.block(MESSAGE_COLUMN, &rule.to_string(), |text| color.dim(text));
        }
        text
    }

    fn result_text(&self, result: StepResult) -> String {
        let color = self.view.color;
        let column = |word: &str| format!("{word:RESULT_WIDTH$}");
        match result {
            StepResult::Info => column(""),
            StepResult::Passed => color.by_level(0.0, &column("pass")),
            StepResult::Refused => color.red(&column("refuse")),
            StepResult::Shadow => color.by_level(0.5, &column("shadow")),
            StepResult::Depends => color.by_level(0.5, &column("depends")),
            StepResult::Skipped => color.dim(&column("skipped")),
            StepResult::Unknown => color.dim(&column("unknown")),
        }
    }

    fn responses(&self, responses: &[ResponseSummary]) -> String {
        let mut text = String::new();
        if let Some(ResponseSummary { depends_on, .. }) =
            responses.first().filter(|response| !response.depends_on.is_empty())
        {
            text += &self.block(0, "Depends on", |text| self.view.color.bold(text));
            for dependency in depends_on {
                text += &self.item(dependency);
            }
        }
        responses.iter().for_each(|response| text += &self.response(response));
        text
    }

    fn response(&self, response: &ResponseSummary) -> String {
        let color = self.view.color;
        let reason = response.reason.as_ref().map_or_else(String::new, |reason| format!(", reason {reason}"));
        let shadow = response
            .shadow
            .as_ref()
            .map_or_else(String::new, |reason| format!("; {reason} would have refused the request if enforced"));
        let status = response.status.map_or_else(String::new, |status| format!(" with {status}"));
        let verdict = match response.verdict {
            Verdict::Refused => self.block(0, &format!("Refused{status}{reason}"), |text| color.red(text)),
            Verdict::Admitted => self.block(0, &format!("Admitted{status}{shadow}"), |text| color.by_level(0.0, text)),
        };
        let retry_after = response.retry_after_s.map(|seconds| ("retry-after".to_owned(), seconds.to_string()));
        let fields = response.headers.clone().into_iter().chain(retry_after);
        fields.fold(verdict, |text, (name, value)| text + &self.block(2, &format!("{name}: {value}"), str::to_owned))
    }

    fn remedies(&self, remedies: &[Remedy]) -> String {
        if remedies.is_empty() {
            return String::new();
        }
        let heading =
            self.block(0, "Any one of these changes would admit the request", |text| self.view.color.bold(text));
        remedies.iter().fold(heading, |text, remedy| text + &self.item(&self.remedy(remedy)))
    }

    fn remedy(&self, remedy: &Remedy) -> String {
        match remedy.numbers.get("at").and_then(|at| at.as_str()) {
            Some(at) => format!("{}, at {}", remedy.message, self.format_time(at, remedy)),
            None => remedy.message.clone(),
        }
    }

    /// Formats a time in the zone of the remedy, or else in the local zone, with the name of the zone.
    fn format_time(&self, at: &str, remedy: &Remedy) -> String {
        let zone_name = remedy.numbers.get("zone").and_then(|zone| zone.as_str());
        match zone_name.and_then(|name| Some((name, TimeZoneDatabase::bundled().get(name).ok()?))) {
            Some((name, zone)) => {
                let view = View { zone, ..self.view.clone() };
                format!("{} {name}", view.local_exactly(at, Some(self.now)))
            }
            None => format!("{} {}", self.view.local_exactly(at, Some(self.now)), self.view.zone_name(at)),
        }
    }

    fn item(&self, text: &str) -> String {
        format!("  - {}", self.block(4, text, str::to_owned).trim_start())
    }

    /// Wraps text into a block that is indented by `indent` columns and fits the width; `paint` only adds colors.
    fn block(&self, indent: usize, text: &str, paint: impl Fn(&str) -> String) -> String {
        let width = self.view.width.saturating_sub(indent).max(1);
        let text = wrap(&sanitize(text, width), 0, 0, width);
        text.lines().map(|line| format!("{}{}\n", " ".repeat(indent), paint(line))).collect()
    }
}

/// Makes text of clients safe for the terminal: escapes characters that change the display, and splits words longer than `width`.
fn sanitize(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut word = 0;
    for c in text.chars().flat_map(escape_control) {
        word = if c == ' ' { 0 } else { word + 1 };
        if word > width {
            out.push(' ');
            word = 1;
        }
        out.push(c);
    }
    out
}

fn escape_control(c: char) -> Vec<char> {
    if alters_display(c) { c.escape_default().collect() } else { vec![c] }
}

/// Width of a step's name, in columns.
const STAGE_WIDTH: usize = 8;
/// Width of a step's result, in columns.
const RESULT_WIDTH: usize = 7;
/// Column at which a step's message begins.
const MESSAGE_COLUMN: usize = STAGE_WIDTH + 2 + RESULT_WIDTH + 2;
