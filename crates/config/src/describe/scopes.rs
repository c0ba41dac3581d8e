//! Summary lines of throttled scopes.

use super::format::duration;
use std::time::Duration;
use tidegate_policy::throttle::controller::Controller;
use tidegate_policy::throttle::gradient::Gradient;
use tidegate_policy::throttle::partition::{PartitionKey, Partitioning};
use tidegate_policy::throttle::rampup::{RampVariable, Rampup};
use tidegate_policy::throttle::{QueueConfig, Scope, ThrottleConfig};

/// Returns the summary line of `scope`; `None` if it is not throttled.
pub(super) fn scope(scope: &Scope) -> Option<String> {
    let throttle = scope.throttle.as_ref()?;
    let mut rules = Vec::new();
    if let Some(Partitioning { key, max_partitions }) = &scope.partitioning {
        rules.push(format!("one instance per {}, at most {max_partitions}", partition_key(key)));
    }
    rules.extend(concurrency(throttle));
    rules.extend(client_slots(throttle));
    rules.extend(delay(throttle));
    if !throttle.spacing.per_slot.is_zero() {
        rules.push(format!("delay per slot {}", duration(throttle.spacing.per_slot)));
    }
    if let Some(backoff) = &throttle.backoff {
        let (min, max) = (duration(backoff.min_delay), duration(backoff.max_delay));
        rules.push(format!("backs off {min} to {max} on overload"));
    }
    let queue_text = match throttle.queue {
        QueueConfig { max_wait: Duration::ZERO, .. } => "no queue".into(),
        QueueConfig { max_wait, max_length } => format!("queue of {max_length} for up to {}", duration(max_wait)),
    };
    Some(format!("{}: {}; {queue_text}", scope.name, rules.join(", ")))
}

/// Returns the concurrency limit, or the bounds between which a controller adapts it; `None` if there is no limit.
fn concurrency(throttle: &ThrottleConfig) -> Option<String> {
    match (&throttle.controller, throttle.concurrency) {
        (Some(Controller::Gradient(Gradient { min, max })), _) => {
            Some(format!("concurrency {min} to {max} by latency"))
        }
        (Some(Controller::Rampup(Rampup { variable: RampVariable::Concurrency { start, max }, .. })), _) => {
            Some(format!("concurrency 1 to {max} by overloads, initially {start}"))
        }
        (_, Some(limit)) => Some(format!("concurrency {limit}")),
        (_, None) => None,
    }
}

/// Returns the slots of one client; `None` if it may occupy all slots.
fn client_slots(throttle: &ThrottleConfig) -> Option<String> {
    let (limit, is_fixed) = match (&throttle.controller, throttle.concurrency) {
        (Some(Controller::Gradient(Gradient { max, .. })), _) => (*max, false),
        (Some(Controller::Rampup(Rampup { variable: RampVariable::Concurrency { max, .. }, .. })), _) => (*max, false),
        (_, limit) => (limit?.get(), true),
    };
    let slots = throttle.client_slots.of(limit)?;
    Some(if is_fixed { format!("{slots} per client") } else { format!("up to {slots} per client") })
}

/// Returns the delay between requests, or the bounds between which a controller adapts it; `None` if there is no delay.
fn delay(throttle: &ThrottleConfig) -> Option<String> {
    match (&throttle.controller, throttle.spacing.delay) {
        (Some(Controller::Autothrottle(auto)), min_delay) => {
            Some(format!("delay {} to {} by latency", duration(min_delay), duration(auto.max_delay)))
        }
        (Some(Controller::Rampup(Rampup { variable: RampVariable::Delay { start, min, max }, .. })), _) => {
            let (start, min, max) = (duration(*start), duration(*min), duration(*max));
            Some(format!("delay {min} to {max} by overloads, initially {start}"))
        }
        (_, Duration::ZERO) => None,
        (_, delay) => Some(format!("delay {}", duration(delay))),
    }
}

fn partition_key(key: &PartitionKey) -> String {
    match key {
        PartitionKey::Query(name) => format!("value of ?{name}="),
        PartitionKey::Header(name) => format!("value of {name}:"),
        PartitionKey::Host => "host".into(),
        PartitionKey::Path(number) => format!("path segment {number}"),
        PartitionKey::Route => "route".into(),
    }
}
