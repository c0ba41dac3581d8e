//! How hard scopes may be pressed.

use super::format::duration;
use crate::policy::throttle::controller::Controller;
use crate::policy::throttle::gradient::Gradient;
use crate::policy::throttle::partition::{PartitionKey, Partitioning};
use crate::policy::throttle::rampup::{RampVariable, Rampup};
use crate::policy::throttle::{QueueConfig, Scope};
use std::time::Duration;

/// How hard a scope may be pressed, if it is throttled.
pub(super) fn scope(scope: &Scope) -> Option<String> {
    let throttle = scope.throttle.as_ref()?;
    let mut rules = Vec::new();
    if let Some(Partitioning { from, max_partitions: most }) = &scope.partitioning {
        rules.push(format!("one for each {}, {most} at most", value(from)));
    }
    match (&throttle.controller, throttle.concurrency) {
        (Some(Controller::Gradient(Gradient { min: floor, max: ceiling })), _) => {
            rules.push(format!("{floor} to {ceiling} at once, by latency"));
        }
        (Some(Controller::Rampup(Rampup { variable: RampVariable::Concurrency { start, max: most }, .. })), _) => {
            rules.push(format!("1 to {most} at once, by complaints, beginning with {start}"));
        }
        (_, Some(most)) => rules.push(format!("{most} at once at most")),
        (_, None) => {}
    }
    match (&throttle.controller, throttle.spacing.delay) {
        (Some(Controller::Autothrottle(auto)), least) => {
            rules.push(format!("{} to {} apart, by latency", duration(least), duration(auto.max_delay)));
        }
        (
            Some(Controller::Rampup(Rampup { variable: RampVariable::Delay { start, min: least, max: most }, .. })),
            _,
        ) => {
            let (start, least, most) = (duration(*start), duration(*least), duration(*most));
            rules.push(format!("{least} to {most} apart, by complaints, beginning with {start}"));
        }
        (_, Duration::ZERO) => {}
        (_, delay) => rules.push(format!("{} apart", duration(delay))),
    }
    if !throttle.spacing.per_slot.is_zero() {
        rules.push(format!("{} apart in each slot", duration(throttle.spacing.per_slot)));
    }
    if let Some(backoff) = &throttle.backoff {
        let (first, longest) = (duration(backoff.min_delay), duration(backoff.max_delay));
        rules.push(format!("rests {first} to {longest} after a complaint"));
    }
    let waits = match throttle.queue {
        QueueConfig { max_wait: Duration::ZERO, .. } => "nobody waits".into(),
        QueueConfig { max_wait, max_length } => format!("{max_length} may wait for {}", duration(max_wait)),
    };
    Some(format!("{}: {}; {waits}", scope.name, rules.join(", ")))
}

fn value(from: &PartitionKey) -> String {
    match from {
        PartitionKey::Query(name) => format!("value of ?{name}="),
        PartitionKey::Header(name) => format!("value of {name}:"),
        PartitionKey::Host => "host".into(),
        PartitionKey::Path(number) => format!("segment {number} of the path"),
        PartitionKey::Route => "route".into(),
    }
}
