//! Step of the route: the matching route and the expected cost.

use super::input::ExplainInput;
use super::step::{Stage, Step};
use crate::policy::cost::Cost;
use crate::policy::decide::QuotaSnapshot;
use crate::terminal::decimal;
use serde_json::{Map, Value};

pub(super) fn step(case: &ExplainInput<'_>) -> Step {
    let (route, place) = (case.route(), case.route_place());
    let says = match case.positions.as_slice() {
        [] => format!("{} costs nothing, so no quota refuses it", route.name),
        positions => {
            let costs: Vec<String> = positions.iter().map(cost).collect();
            format!("{} costs {}", route.name, costs.join(" and "))
        }
    };
    let learned = route.costs.iter().any(|(_, cost)| *cost == Cost::Learned);
    let evidence = learned.then(|| "the cost is learned; the first estimate is one unit".to_owned());
    let costs: Map<String, Value> =
        case.positions.iter().map(|position| (position.quota.name.clone(), position.cost.as_f64().into())).collect();
    Step::info(Stage::Route, says)
        .because(evidence.into_iter().collect())
        .by(case.known.rule(format!("routes[{place}]")))
        .with("route", route.name.as_str())
        .with("cost", costs)
}

fn cost(position: &QuotaSnapshot<'_>) -> String {
    format!("{} of {}", decimal(&position.cost.to_string()), position.quota.name)
}
