//! Scopes: how hard each part of the origin may be pressed.

use super::report::Report;
use super::scope_from::by_value;
use crate::config::forms::Named;
use crate::config::raw::scopes as raw;
use crate::config::words::{Percent, Span};
use crate::policy::throttle::autothrottle::Autothrottle;
use crate::policy::throttle::backoff::Backoff;
use crate::policy::throttle::spacing::Spacing;
use crate::policy::throttle::{Jitter, Queue, Scope, Throttle};
use std::num::NonZeroU32;
use std::time::Duration;

/// The scope of every route that names none; there is always one.
pub(super) const DEFAULT: &str = "default";

const MOST: usize = 1000;

/// What an origin, or a proxy before it, says when it has had enough.
const COMPLAINTS: [u16; 9] = [429, 502, 503, 504, 520, 521, 522, 523, 524];

/// The scopes, `default` first.
pub(super) fn scopes(raw: &Named<raw::Scope>, report: &mut Report) -> Vec<Scope> {
    if raw.0.len() > MOST {
        report.mistake("scopes", format!("found {} scopes, at most {MOST} fit", raw.0.len()), "merge some");
    }
    let mut scopes = vec![Scope::open(DEFAULT)];
    for (name, written) in &raw.0 {
        let path = format!("scopes.{name}");
        report.name(&path, name);
        let scope = Scope {
            name: name.clone(),
            throttle: throttle(written, &path, report),
            by_value: by_value(written, name, &path, report),
        };
        match name == DEFAULT {
            true => scopes[0] = scope,
            false => scopes.push(scope),
        }
    }
    scopes
}

/// What the keys mean together; without one that makes anybody wait, nothing.
fn throttle(raw: &raw::Scope, path: &str, report: &mut Report) -> Option<Throttle> {
    if raw.delay_per_slot.is_some() {
        report.not_carried_out(&format!("{path}.delay_per_slot"));
    }
    let concurrency = raw.concurrency.map(|_| report.count(&format!("{path}.concurrency"), raw.concurrency, 64));
    let spacing = Spacing { delay: span(&raw.delay).unwrap_or_default(), jitter: jitter(&raw.jitter, 0.0) };
    let throttle = Throttle {
        concurrency: concurrency.and_then(NonZeroU32::new),
        spacing,
        autothrottle: raw
            .autothrottle
            .as_ref()
            .map(|auto| autothrottle(auto, spacing.delay, &format!("{path}.autothrottle"), report)),
        backoff: raw.backoff.as_ref().map(|written| backoff(written, &format!("{path}.backoff"), report)),
        queue: queue(raw.queue.as_ref(), &format!("{path}.queue"), report),
    };
    let holds_back = throttle.concurrency.is_some()
        || throttle.autothrottle.is_some()
        || throttle.backoff.is_some()
        || !spacing.delay.is_zero();
    holds_back.then_some(throttle)
}

fn autothrottle(raw: &raw::Autothrottle, least: Duration, path: &str, report: &mut Report) -> Autothrottle {
    in_order(path, ("start_delay", &raw.start_delay), ("max_delay", &raw.max_delay), report);
    let max_delay = report.lasting(&format!("{path}.max_delay"), span(&raw.max_delay), Duration::from_secs(5));
    if max_delay < least {
        report.mistake(
            &format!("{path}.max_delay"),
            "less than the scope's delay",
            "write at least as much, or lower that",
        );
    }
    Autothrottle {
        target_concurrency: report.count(&format!("{path}.target_concurrency"), raw.target_concurrency, 2),
        start_delay: span(&raw.start_delay).unwrap_or_default(),
        max_delay,
    }
}

fn backoff(raw: &raw::Backoff, path: &str, report: &mut Report) -> Backoff {
    for (index, status) in raw.statuses.iter().enumerate().filter(|(_, status)| !(100..=599).contains(*status)) {
        report.mistake(
            &format!("{path}.statuses[{index}]"),
            format!("found {status}, needs a status"),
            "write one from 100 to 599",
        );
    }
    in_order(path, ("min_delay", &raw.min_delay), ("max_delay", &raw.max_delay), report);
    let min_delay = report.lasting(&format!("{path}.min_delay"), span(&raw.min_delay), Duration::from_secs(1));
    let max_delay = span(&raw.max_delay).unwrap_or(Duration::from_secs(300).max(min_delay));
    Backoff {
        statuses: if raw.statuses.is_empty() { COMPLAINTS.into() } else { raw.statuses.clone() },
        factor: report.count(&format!("{path}.factor"), raw.factor, 2),
        min_delay,
        max_delay,
        jitter: jitter(&raw.jitter, 0.1),
        window: report.lasting(&format!("{path}.window"), span(&raw.window), Duration::from_secs(60)),
    }
}

fn queue(raw: Option<&raw::Queue>, path: &str, report: &mut Report) -> Queue {
    let max_length = raw.and_then(|queue| queue.max_length);
    let max_wait = raw.and_then(|queue| span(&queue.max_wait));
    Queue {
        max_wait: max_wait.unwrap_or(Duration::from_secs(2)),
        max_length: report.count(&format!("{path}.max_length"), max_length, 256),
    }
}

fn span(written: &Option<Span>) -> Option<Duration> {
    written.as_ref().map(|span| span.0)
}

fn jitter(written: &Option<Percent>, default: f64) -> Jitter {
    Jitter(written.as_ref().map_or(default, |share| share.0.ratio()))
}

fn in_order(path: &str, least: (&str, &Option<Span>), most: (&str, &Option<Span>), report: &mut Report) {
    if let (Some(low), Some(high)) = (least.1, most.1)
        && high.0 < low.0
    {
        report.mistake(&format!("{path}.{}", most.0), format!("less than {}", least.0), "write at least as much");
    }
}
