//! Scopes: how hard each part of the origin may be pressed.

use super::diagnostics::Diagnostics;
use super::partition::partitioning;
use super::quotas::ScopeQuota;
use crate::config::raw::scopes as raw;
use crate::config::scalars::{Change, Span};
use crate::config::serde_forms::{NamedMap, OneOrRange};
use crate::policy::route::Route;
use crate::policy::throttle::autothrottle::Autothrottle;
use crate::policy::throttle::backoff::{Backoff, OVERLOAD_STATUSES};
use crate::policy::throttle::controller::Controller;
use crate::policy::throttle::gradient::Gradient;
use crate::policy::throttle::rampup::{RampVariable, Rampup};
use crate::policy::throttle::spacing::Spacing;
use crate::policy::throttle::{Jitter, QueueConfig, Scope, ThrottleConfig};
use std::num::NonZeroU32;
use std::time::Duration;

/// The scope of every route that names none; there is always one.
pub(super) const DEFAULT: &str = "default";

const MAX_SCOPES: usize = 1000;

/// The window of backoff and rampup.
const WINDOW: Duration = Duration::from_secs(60);

/// Where adaptive ends without a word; as many as origin.max_connections has by default.
const CEILING: u32 = 256;

/// Rampup goes so many times faster or slower than it begins.
const RAMP_RANGE: u32 = 10;

/// The scopes, `default` first.
pub(super) fn scopes(raw: &NamedMap<raw::Scope>, report: &mut Diagnostics) -> Vec<Scope> {
    if raw.0.len() > MAX_SCOPES {
        report.error("scopes", format!("found {} scopes, at most {MAX_SCOPES} fit", raw.0.len()), "merge some");
    }
    let mut scopes = vec![Scope::unthrottled(DEFAULT)];
    for (name, written) in &raw.0 {
        let path = format!("scopes.{name}");
        report.name(&path, name);
        let scope = Scope {
            name: name.clone(),
            throttle: throttle(written, &path, report),
            partitioning: partitioning(written, name, &path, report),
        };
        match name == DEFAULT {
            true => scopes[0] = scope,
            false => scopes.push(scope),
        }
    }
    scopes
}

/// What the keys mean together; without one that makes anybody wait, nothing.
fn throttle(raw: &raw::Scope, path: &str, report: &mut Diagnostics) -> Option<ThrottleConfig> {
    let concurrency =
        raw.concurrency.map(|_| report.nonzero_count(&format!("{path}.concurrency"), raw.concurrency, 64));
    let spacing = Spacing {
        delay: span(&raw.delay).unwrap_or_default(),
        jitter: jitter(&raw.jitter, 0.0, &format!("{path}.jitter"), report),
        per_slot: span(&raw.delay_per_slot).unwrap_or_default(),
    };
    if raw.delay_per_slot.is_some() && raw.concurrency.is_none() && raw.adaptive.is_none() {
        report.error(
            &format!("{path}.delay_per_slot"),
            "without concurrency there are no slots",
            "say how many, such as concurrency: 4, or write delay",
        );
    }
    let throttle = ThrottleConfig {
        concurrency: concurrency.and_then(NonZeroU32::new),
        spacing,
        backoff: raw.backoff.as_ref().map(|written| backoff(written, &format!("{path}.backoff"), report)),
        controller: controller(raw, path, report),
        queue: queue(raw.queue.as_ref(), &format!("{path}.queue"), report),
    };
    let holds_back = throttle.concurrency.is_some()
        || throttle.controller.is_some()
        || throttle.backoff.is_some()
        || !spacing.delay.is_zero();
    if holds_back {
        warn_delay_exceeds_wait(&throttle, path, report);
    } else if raw.queue.is_some() || raw.jitter.is_some() {
        report.warning(format!("{path}: queue and jitter alone make nobody wait, so nothing in it is throttled"));
    }
    holds_back.then_some(throttle)
}

/// Where the time between two is longer than anybody may wait, the line is of little use.
fn warn_delay_exceeds_wait(throttle: &ThrottleConfig, path: &str, report: &mut Diagnostics) {
    let shortest = match &throttle.controller {
        Some(Controller::Rampup(Rampup { variable: RampVariable::Delay { min: least, .. }, .. })) => *least,
        _ => throttle.spacing.delay,
    };
    let max_wait = throttle.queue.max_wait;
    if shortest > max_wait && !max_wait.is_zero() {
        report.warning(format!(
            "{path}.delay: longer than queue.max_wait ({max_wait:?}), so nobody can wait from one request to the next"
        ));
    }
}

/// Whatever a scope says has an effect only on the routes that name it.
pub(super) fn warn_unused(scopes: &[Scope], own: &[ScopeQuota], routes: &[Route], report: &mut Diagnostics) {
    for (place, scope) in scopes.iter().enumerate().filter(|(_, scope)| scope.partitioning.is_none()) {
        let is_named = routes.iter().flat_map(|route| &route.scopes).any(|id| usize::from(id.0) == place);
        let quota = own.iter().find(|own| own.scope == scope.name).map(|own| own.quota);
        let is_paid = routes.iter().flat_map(|route| &route.costs).any(|(paid, _)| Some(*paid) == quota);
        let is_written = scope.name != DEFAULT || scope.throttle.is_some() || quota.is_some();
        if is_written && !is_named && (scope.throttle.is_some() || !is_paid) {
            report.warning(format!("scopes.{}: no route names this scope, so it holds nobody back", scope.name));
        }
    }
}

/// At most one: two would undo each other's work.
fn controller(raw: &raw::Scope, path: &str, report: &mut Diagnostics) -> Option<Controller> {
    let mut found = Vec::new();
    if let Some(written) = &raw.autothrottle {
        let least = span(&raw.delay).unwrap_or_default();
        let auto = autothrottle(written, least, &format!("{path}.autothrottle"), report);
        found.push(("autothrottle", Controller::Autothrottle(auto)));
    }
    if let Some(written) = &raw.adaptive {
        let gradient = gradient(written, raw.concurrency, &format!("{path}.adaptive"), report);
        found.push(("adaptive", Controller::Gradient(gradient)));
    }
    if let Some(written) = &raw.rampup {
        let rampup = rampup(written, raw, &format!("{path}.rampup"), report);
        found.push(("rampup", Controller::Rampup(rampup)));
    }
    if let [(first, _), (second, _), ..] = &found[..] {
        report.error(
            &format!("{path}.{second}"),
            format!("the scope has {first}, too: they would undo each other's work"),
            "keep one, or give them a scope each and the route both scopes",
        );
    }
    found.into_iter().next().map(|(_, controller)| controller)
}

fn autothrottle(raw: &raw::Autothrottle, least: Duration, path: &str, report: &mut Diagnostics) -> Autothrottle {
    let start_delay = Bound::new("start_delay", &raw.start_delay, Duration::ZERO);
    let max_delay = Bound::new("max_delay", &raw.max_delay, Duration::from_secs(5));
    in_order(path, &start_delay, &max_delay, report);
    let max_delay = report.nonzero_duration(&format!("{path}.max_delay"), span(&raw.max_delay), max_delay.value);
    if max_delay < least {
        report.error(
            &format!("{path}.max_delay"),
            "less than the scope's delay",
            "write at least as much, or lower that",
        );
    }
    let target = raw.target_concurrency.as_ref().map_or(2.0, |target| target.0.as_f64());
    if target <= 0.0 {
        report.error(
            &format!("{path}.target_concurrency"),
            "found 0, needs more",
            "write a number such as 2, or 0.5 for as much pause as work",
        );
    }
    statuses(&raw.good_statuses, &format!("{path}.good_statuses"), report);
    Autothrottle {
        target_concurrency: target,
        start_delay: start_delay.value,
        max_delay,
        success_statuses: match raw.good_statuses.is_empty() {
            true => (200..=299).chain([304]).collect(),
            false => raw.good_statuses.clone(),
        },
        log_adjustments: raw.debug,
    }
}

fn gradient(raw: &raw::Adaptive, concurrency: Option<u32>, path: &str, report: &mut Diagnostics) -> Gradient {
    let floor = report.nonzero_count(&format!("{path}.floor"), raw.floor, 1);
    let ceiling = report.nonzero_count(&format!("{path}.ceiling"), raw.ceiling, concurrency.unwrap_or(CEILING));
    let above = format!("{path}.ceiling");
    if raw.ceiling.zip(concurrency).is_some_and(|(ceiling, concurrency)| ceiling > concurrency) {
        report.error(&above, "more than the scope's concurrency", "write at most as much, or leave one of them out");
    } else if ceiling < floor {
        let wrong = format!("{ceiling}, which is less than floor");
        report.error(&above, wrong, "write at least as much");
    }
    Gradient { min: floor, max: ceiling }
}

fn rampup(raw: &raw::Rampup, scope: &raw::Scope, path: &str, report: &mut Diagnostics) -> Rampup {
    let target = match raw.backoff_target {
        None => 1..=1,
        Some(OneOrRange::One(target)) => target..=target,
        Some(OneOrRange::Range(least, most)) => least..=most,
    };
    if target.is_empty() || *target.end() == 0 {
        report.error(
            &format!("{path}.backoff_target"),
            "no number of complaints is right",
            "write a number such as 1, or [1, 3] with the least first",
        );
    }
    if scope.backoff.is_none() {
        report.error(path, "without backoff no complaints are counted", "write backoff: {}, too");
    }
    let window = scope.backoff.as_ref().and_then(|backoff| span(&backoff.window)).unwrap_or(WINDOW);
    Rampup { target, window, variable: ramp_variable(raw, scope, path, report) }
}

fn ramp_variable(raw: &raw::Rampup, scope: &raw::Scope, path: &str, report: &mut Diagnostics) -> RampVariable {
    let delay = span(&scope.delay).filter(|delay| !delay.is_zero());
    let of_delay = [("min_delay", raw.min_delay.is_some()), ("max_delay", raw.max_delay.is_some())];
    let of_concurrency = [("max_concurrency", raw.max_concurrency.is_some())];
    let idle: &[(&str, bool)] = if delay.is_some() { &of_concurrency } else { &of_delay };
    for (key, _) in idle.iter().filter(|(_, is_written)| *is_written) {
        let varied = if delay.is_some() { "delay" } else { "concurrency" };
        report.error(&format!("{path}.{key}"), format!("the scope's {varied} is varied"), "leave it out");
    }
    match (delay, scope.concurrency) {
        (Some(start), _) => {
            let least = report.nonzero_duration(&format!("{path}.min_delay"), span(&raw.min_delay), start / RAMP_RANGE);
            let most = span(&raw.max_delay).unwrap_or(start.saturating_mul(RAMP_RANGE));
            for (key, is_outside) in [("min_delay", least > start), ("max_delay", most < start)] {
                if is_outside {
                    let remedy = "begin between min_delay and max_delay";
                    report.error(&format!("{path}.{key}"), "the scope's delay is beyond it", remedy);
                }
            }
            RampVariable::Delay { start, min: least, max: most }
        }
        (None, Some(start)) => {
            let path = format!("{path}.max_concurrency");
            let most = report.nonzero_count(&path, raw.max_concurrency, start.saturating_mul(RAMP_RANGE));
            if most < start {
                report.error(&path, "less than the scope's concurrency", "write at least as much");
            }
            RampVariable::Concurrency { start, max: most }
        }
        (None, None) => {
            report.error(path, "there is nothing to begin with", "write delay or concurrency, too");
            RampVariable::Concurrency { start: 1, max: 1 }
        }
    }
}

fn backoff(raw: &raw::Backoff, path: &str, report: &mut Diagnostics) -> Backoff {
    statuses(&raw.statuses, &format!("{path}.statuses"), report);
    let min_delay = report.nonzero_duration(&format!("{path}.min_delay"), span(&raw.min_delay), Duration::from_secs(1));
    let max_delay = Bound::new("max_delay", &raw.max_delay, Duration::from_secs(300).max(min_delay));
    in_order(path, &Bound::new("min_delay", &raw.min_delay, min_delay), &max_delay, report);
    Backoff {
        statuses: if raw.statuses.is_empty() { OVERLOAD_STATUSES.into() } else { raw.statuses.clone() },
        factor: report.nonzero_count(&format!("{path}.factor"), raw.factor, 2),
        min_delay,
        max_delay: max_delay.value,
        jitter: jitter(&raw.jitter, 0.1, &format!("{path}.jitter"), report),
        window: report.nonzero_duration(&format!("{path}.window"), span(&raw.window), WINDOW),
    }
}

fn queue(raw: Option<&raw::Queue>, path: &str, report: &mut Diagnostics) -> QueueConfig {
    let max_length = raw.and_then(|queue| queue.max_length);
    let max_wait = raw.and_then(|queue| span(&queue.max_wait));
    QueueConfig {
        max_wait: max_wait.unwrap_or(Duration::from_secs(2)),
        max_length: report.nonzero_count(&format!("{path}.max_length"), max_length, 256),
    }
}

fn span(written: &Option<Span>) -> Option<Duration> {
    written.as_ref().map(|span| span.0)
}

fn jitter(written: &Option<OneOrRange<Change>>, default: f64, path: &str, report: &mut Diagnostics) -> Jitter {
    let jitter = match written {
        None => Jitter::at_most(default),
        Some(OneOrRange::One(Change(most))) => Jitter::at_most(*most),
        Some(OneOrRange::Range(Change(low), Change(high))) => Jitter { low: *low, high: *high },
    };
    if jitter.high < jitter.low {
        report.error(path, "the most is less than the least", "write 10%, or [-10%, 30%] with the least first");
    }
    jitter
}

fn statuses(written: &[u16], path: &str, report: &mut Diagnostics) {
    for (index, status) in written.iter().enumerate().filter(|(_, status)| !(100..=599).contains(*status)) {
        report.error(
            &format!("{path}[{index}]"),
            format!("found {status}, needs a status"),
            "write one from 100 to 599",
        );
    }
}

/// One end of a range, written or by default.
struct Bound {
    key: &'static str,
    value: Duration,
    is_written: bool,
}

impl Bound {
    fn new(key: &'static str, written: &Option<Span>, default: Duration) -> Self {
        Self { key, value: span(written).unwrap_or(default), is_written: written.is_some() }
    }

    /// What it is called; what it is, too, where nobody has written it.
    fn describe(&self) -> String {
        let Self { key, value, is_written } = self;
        if *is_written { (*key).to_owned() } else { format!("{key}, which is {value:?} by default") }
    }
}

fn in_order(path: &str, least: &Bound, most: &Bound, report: &mut Diagnostics) {
    let is_spoiled = |bound: &Bound| report.has_error_at(&format!("{path}.{}", bound.key));
    if most.value >= least.value || is_spoiled(least) || is_spoiled(most) {
        return;
    }
    match most.is_written {
        true => {
            let wrong = format!("less than {}", least.describe());
            report.error(&format!("{path}.{}", most.key), wrong, "write at least as much");
        }
        false => {
            let wrong = format!("more than {}", most.describe());
            report.error(
                &format!("{path}.{}", least.key),
                wrong,
                format!("write at most as much, or {}, too", most.key),
            );
        }
    }
}
