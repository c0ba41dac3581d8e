//! Scopes: their names, and a look at what this version does not carry out.

use super::report::Report;
use crate::config::forms::Named;
use crate::config::raw::scopes::Scope;
use crate::config::words::Span;
use crate::policy::throttle::Scope as Settled;
use std::time::Duration;

/// The scope of every route that names none; there is always one.
pub(super) const DEFAULT: &str = "default";

const MOST: usize = 1000;

/// The scopes, `default` first.
pub(super) fn scopes(raw: &Named<Scope>, report: &mut Report) -> Vec<Settled> {
    if raw.0.len() > MOST {
        report.mistake("scopes", format!("found {} scopes, at most {MOST} fit", raw.0.len()), "merge some");
    }
    let mut scopes = vec![Settled::open(DEFAULT)];
    for (name, scope) in &raw.0 {
        let path = format!("scopes.{name}");
        report.name(&path, name);
        look_at(scope, &path, report);
        if name != DEFAULT {
            scopes.push(Settled::open(name));
        }
    }
    scopes
}

fn look_at(scope: &Scope, path: &str, report: &mut Report) {
    let given = [
        ("concurrency", scope.concurrency.is_some()),
        ("delay", scope.delay.is_some()),
        ("delay_per_slot", scope.delay_per_slot.is_some()),
        ("jitter", scope.jitter.is_some()),
        ("autothrottle", scope.autothrottle.is_some()),
        ("backoff", scope.backoff.is_some()),
        ("queue", scope.queue.is_some()),
    ];
    given.iter().filter(|(_, given)| *given).for_each(|(key, _)| report.not_carried_out(&format!("{path}.{key}")));
    report.count(&format!("{path}.concurrency"), scope.concurrency, 64);
    if let Some(auto) = &scope.autothrottle {
        report.count(&format!("{path}.autothrottle.target_concurrency"), auto.target_concurrency, 2);
        in_order(
            &format!("{path}.autothrottle"),
            ("start_delay", &auto.start_delay),
            ("max_delay", &auto.max_delay),
            report,
        );
    }
    if let Some(backoff) = &scope.backoff {
        let path = format!("{path}.backoff");
        for (index, status) in backoff.statuses.iter().enumerate().filter(|(_, status)| !(100..=599).contains(*status))
        {
            report.mistake(
                &format!("{path}.statuses[{index}]"),
                format!("found {status}, needs a status"),
                "write one from 100 to 599",
            );
        }
        report.count(&format!("{path}.factor"), backoff.factor, 2);
        report.lasting(
            &format!("{path}.min_delay"),
            backoff.min_delay.as_ref().map(|span| span.0),
            Duration::from_secs(1),
        );
        report.lasting(&format!("{path}.window"), backoff.window.as_ref().map(|span| span.0), Duration::from_secs(60));
        in_order(&path, ("min_delay", &backoff.min_delay), ("max_delay", &backoff.max_delay), report);
    }
    if let Some(queue) = &scope.queue {
        report.count(&format!("{path}.queue.max_length"), queue.max_length, 256);
    }
}

fn in_order(path: &str, least: (&str, &Option<Span>), most: (&str, &Option<Span>), report: &mut Report) {
    if let (Some(low), Some(high)) = (least.1, most.1)
        && high.0 < low.0
    {
        report.mistake(&format!("{path}.{}", most.0), format!("less than {}", least.0), "write at least as much");
    }
}
