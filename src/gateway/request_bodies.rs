//! What bodies of requests say that the decision needs: the conditions of routes that they meet, and their costs.

use crate::gateway::upstream::ClientBodyError;
use std::sync::Arc;
use tidegate_body_cost::{CostPath, RequestPaths, RequestValues, names_other_charset};
use tidegate_http1::{Fields, Name};
use tidegate_policy::cost::RequestedCost;
use tidegate_policy::request_body::{JsonCondition, JsonMatch};
use tidegate_policy::{QuotaId, RouteId, Rules, Units};

/// Bytes of a body that are read before the decision.
pub(super) const MAX_BEGINNING: usize = 64 * 1024;

/// What is read of the bodies of requests before the decision.
pub(super) struct RequestBodies {
    paths: RequestPaths,
    /// Costs that bodies state, by [`RouteId`].
    costs: Vec<Vec<StatedCost>>,
    /// Conditions of routes, each once, with the positions of their paths.
    conditions: Vec<(JsonCondition, usize)>,
}

/// Cost in one quota that bodies state.
struct StatedCost {
    quota: QuotaId,
    cost: RequestedCost,
    /// Positions of its paths.
    positions: Vec<usize>,
}

/// Body of a request, read before the decision.
pub(super) struct ReadBody {
    pub(super) values: RequestValues,
    /// Length in bytes, as far as it is known.
    pub(super) length: u64,
    /// Why no more of it can be received.
    pub(super) error: Option<ClientBodyError>,
}

/// Paths that are read, each once.
#[derive(Default)]
struct PathList(Vec<CostPath>);

impl PathList {
    /// Returns the position of a path; `None` if the text is none, which the validation of the settings excludes.
    fn position(&mut self, text: &str) -> Option<usize> {
        let path: CostPath = text.parse().ok()?;
        let known = self.0.iter().position(|known| *known == path);
        Some(known.unwrap_or_else(|| {
            self.0.push(path);
            self.0.len() - 1
        }))
    }
}

impl RequestBodies {
    /// Returns what is read of bodies; `None` if no route asks for it.
    pub(super) fn new(rules: &Rules) -> Option<Self> {
        if rules.routes.iter().all(|route| route.requested_costs.is_empty() && route.json.is_empty()) {
            return None;
        }
        let mut list = PathList::default();
        let mut stated_cost = |(quota, cost): &(QuotaId, RequestedCost)| StatedCost {
            quota: *quota,
            cost: cost.clone(),
            positions: cost.paths.iter().filter_map(|path| list.position(path)).collect(),
        };
        let costs =
            rules.routes.iter().map(|route| route.requested_costs.iter().map(&mut stated_cost).collect()).collect();
        let mut conditions: Vec<(JsonCondition, usize)> = Vec::new();
        for condition in rules.routes.iter().flat_map(|route| &route.json) {
            if conditions.iter().all(|(known, _)| known != condition)
                && let Some(position) = list.position(&condition.path)
            {
                conditions.push((condition.clone(), position));
            }
        }
        Some(Self { paths: RequestPaths::new(list.0), costs, conditions })
    }

    /// Reads a body that begins with `beginning`, which may be more than is read, in a request with `fields`. It is the whole body
    /// if `is_whole`.
    pub(super) fn read(&self, beginning: &[u8], is_whole: bool, fields: &Fields) -> RequestValues {
        let read = &beginning[..beginning.len().min(MAX_BEGINNING)];
        let mut values = self.paths.read(read, is_whole && read.len() == beginning.len());
        let is_plain =
            |coding: &[u8]| coding.trim_ascii().is_empty() || coding.trim_ascii().eq_ignore_ascii_case(b"identity");
        // The origin decodes the body as its fields say.
        if !fields.all(Name::ContentEncoding).all(is_plain) {
            values = values.in_another_coding();
        }
        if fields.all(Name::ContentType).any(names_other_charset) {
            values = values.in_another_charset();
        }
        values
    }

    /// Returns the conditions that a body with these values meets; `None` if there are no conditions.
    pub(super) fn matched(&self, values: &RequestValues) -> Option<JsonMatch> {
        if self.conditions.is_empty() {
            return None;
        }
        let mut positions = self.conditions.iter().map(|(_, position)| *position);
        if !values.is_whole() || positions.any(|position| values.at(position).is_ambiguous) {
            return Some(JsonMatch::Unreadable);
        }
        let is_met = |(condition, position): &&(JsonCondition, usize)| {
            values.at(*position).text.as_ref().is_some_and(|text| condition.matches(text))
        };
        let met = self.conditions.iter().filter(is_met);
        Some(JsonMatch::Met(met.map(|(condition, _)| Arc::clone(&condition.text)).collect()))
    }

    /// Returns the costs that `body` states for a request on `route`.
    pub(super) fn stated_costs(&self, route: RouteId, body: &ReadBody) -> impl Iterator<Item = (QuotaId, Units)> {
        self.costs[route.index()].iter().map(|StatedCost { quota, cost, positions }| {
            let numbers = positions.iter().filter_map(|position| body.values.at(*position).largest_milli);
            // A lenient parser may find any number in it.
            let any = body.values.is_broken().then_some(Units::MAX);
            let number = any.or_else(|| numbers.max().map(Units::from_milli));
            (*quota, cost.units(number, body.length, body.values.is_whole()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_policy::cost::Cost;
    use tidegate_policy::fixtures;
    use tidegate_policy::route::Route;

    /// Returns the units that a body states.
    fn stated(paths: &[&str], body: &[u8], length: u64, is_whole: bool) -> f64 {
        let default = Units::from_whole(1000);
        let paths = paths.iter().map(ToString::to_string).collect();
        let cost = RequestedCost { paths, per_byte: Units::from_milli(250), default };
        let quota = QuotaId::from_index(0);
        let route = Route {
            costs: vec![(quota, Cost::Requested { default })],
            requested_costs: vec![(quota, cost)],
            ..fixtures::route(&[])
        };
        let rules = Rules { routes: vec![route], ..fixtures::rules() };
        let bodies = RequestBodies::new(&rules).expect("a stated cost");
        let body = ReadBody { values: bodies.read(body, is_whole, &Fields::new()), length, error: None };
        bodies.stated_costs(RouteId::from_index(0), &body).map(|(_, units)| units.as_f64()).sum()
    }

    #[test]
    fn largest_number_of_all_paths_counts() {
        let body = br#"{"max_tokens":300,"max_completion_tokens":400}"#;
        let length = body.len() as u64;
        let bytes = length as f64 / 4.0;
        assert_eq!(stated(&["max_tokens", "max_completion_tokens"], body, length, true), 400.0 + bytes);
        assert_eq!(stated(&["max_tokens"], body, length, true), 300.0 + bytes);
        assert_eq!(stated(&["other"], body, length, true), 1000.0);
        assert_eq!(stated(&[], body, 40_000, true), 10_000.0, "bytes alone");
    }

    #[test]
    fn body_that_is_not_read_to_its_end_costs_the_default_or_more() {
        let long = format!("{{\"max_tokens\":3000,\"x\":\"{}\"}}", "x".repeat(MAX_BEGINNING));
        let length = long.len() as u64;
        assert_eq!(stated(&["max_tokens"], long.as_bytes(), length, true), 3000.0 + length as f64 / 4.0);
        let hidden = format!("{{\"max_tokens\":3,\"x\":\"{}\",\"max_tokens\":9000}}", "x".repeat(MAX_BEGINNING));
        assert_eq!(stated(&["max_tokens"], hidden.as_bytes(), 0, true), 1000.0);
        assert_eq!(stated(&["max_tokens"], br#"{"max_tokens":3"#, 0, false), 1000.0);
        assert_eq!(stated(&["max_tokens"], b"max_tokens=3", 0, true), 1000.0);
    }

    #[test]
    fn object_that_only_lenient_parsers_read_may_state_any_cost() {
        for body in [
            &br#"{"temperature":NaN,"max_tokens":5000}"#[..],
            br#"{"max_tokens":1e999}"#,
            br#"{"\ud800":1,"max_tokens":5000}"#,
            b"{\"x\":\"\t\",\"max_tokens\":5000}",
            b"{\0\"\0m\0",
        ] {
            assert_eq!(stated(&["max_tokens"], body, 40, true), Units::MAX.as_f64(), "{}", body.escape_ascii());
        }
        for body in [r#"{"max_tokens":" 5000"}"#, r#"{"max_tokens":"+5000"}"#, r#"{"max_tokens":"5_000"}"#] {
            assert_eq!(stated(&["max_tokens"], body.as_bytes(), 0, true), 5000.0, "{body}");
        }
    }

    /// Returns what a body says of the conditions that a method and a name have a value.
    fn matched(body: &[u8], is_whole: bool) -> Vec<String> {
        let condition =
            |path: &str, value: &str| JsonCondition::new(path.into(), vec![value.parse().expect("a pattern")]);
        let call = condition("method", "tools/call");
        let tool = |name| vec![call.clone(), condition("params.name", name)];
        let route = |json| Route { json, ..fixtures::route(&[]) };
        let routes = vec![route(tool("search")), route(tool("fetch*")), route(Vec::new())];
        let rules = Rules { routes, ..fixtures::rules() };
        let bodies = RequestBodies::new(&rules).expect("conditions");
        let matched = bodies.matched(&bodies.read(body, is_whole, &Fields::new())).expect("conditions");
        matched.words().map(str::to_owned).collect()
    }

    const CALL: &str =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","arguments":{"name":"x"}}}"#;

    #[test]
    fn body_meets_the_conditions_whose_values_it_has() {
        let met = |body: &str| matched(body.as_bytes(), true);
        assert_eq!(met(CALL), ["method=tools/call", "params.name=search"]);
        assert_eq!(met(&CALL.replace("search", "fetch_page")), ["method=tools/call", "params.name=fetch*"]);
        assert_eq!(met(r#"{"m\u0065thod":"tools\/c\u0061ll"}"#), ["method=tools/call"]);
        for none in [
            "{}",
            r#"{"method":"tools/list"}"#,
            r#"{"params":{"method":"tools/call"}}"#,
            r#"{"method":["tools/call"]}"#,
        ] {
            assert!(met(none).is_empty(), "{none}");
        }
    }

    #[test]
    fn body_that_hides_a_tool_is_unreadable() {
        let long = format!("{{\"x\":\"{}\",{}", "x".repeat(MAX_BEGINNING), &CALL[1..]);
        for hidden in [
            long.as_str(),
            &format!("[{CALL}]"),
            &format!("{CALL}{CALL}"),
            &format!("\u{feff}\u{feff}{CALL}"),
            &format!("// comment\n{CALL}"),
            &CALL.replace("\"params\":{", "\"params\":{\"name\":\"list\","),
            &CALL.replace("\"method\":", "\"method\":\"ping\",\"method\":"),
            &CALL.replace("\"method\"", "\"Method\""),
            &CALL.replace("\"params\"", "\"param\u{17f}\""),
            &CALL.replace("}}}", "}},\"params\":{}}"),
            &CALL.replace("\"id\":1", "\"id\":NaN"),
            "method=tools/call&params[name]=search",
            "",
        ] {
            assert_eq!(matched(hidden.as_bytes(), true), ["unreadable"], "{hidden:.80}");
        }
        assert_eq!(matched(CALL.as_bytes(), false), ["unreadable"]);
    }
}
