//! Validates `scopes`: limits, controllers, backoff and queues.

use super::diagnostics::Diagnostics;
use super::partition::partitioning;
use super::quotas::ScopeQuota;
use crate::raw::scopes as raw;
use crate::scalars::{Change, Span, ThresholdValue};
use crate::serde_forms::{NamedMap, OneOrRange};
use crate::setting_path::SettingPath;
use std::num::NonZeroU32;
use std::time::Duration;
use tidegate_policy::route::Route;
use tidegate_policy::throttle::autothrottle::Autothrottle;
use tidegate_policy::throttle::backoff::{Backoff, OVERLOAD_STATUSES};
use tidegate_policy::throttle::controller::Controller;
use tidegate_policy::throttle::gradient::Gradient;
use tidegate_policy::throttle::rampup::{RampVariable, Rampup};
use tidegate_policy::throttle::spacing::Spacing;
use tidegate_policy::throttle::{ClientSlots, Jitter, QueueConfig, Scope, ThrottleConfig};
use tidegate_policy::tier::Share;

const MAX_SCOPES: usize = 1000;

/// Default maximum of adaptive_concurrency; equal to the default of origin.max_connections.
const DEFAULT_MAX_CONCURRENCY: u32 = 256;

/// Default factor between the initial value of rampup and its bounds.
const RAMP_RANGE: u32 = 10;

/// Returns the scopes, `default` first.
pub(super) fn scopes(raw: &NamedMap<raw::Scope>, report: &mut Diagnostics) -> Vec<Scope> {
    report.check_len(&SettingPath::ROOT.scopes(), "scopes", raw.0.len(), MAX_SCOPES, "merge some");
    let mut scopes = vec![Scope::unthrottled(Scope::DEFAULT)];
    for (name, raw_scope) in &raw.0 {
        let path = SettingPath::of_scope(name);
        report.check_name(&path, name);
        let scope = Scope {
            name: name.clone(),
            throttle: throttle(raw_scope, &path, report),
            partitioning: partitioning(raw_scope, name, report),
        };
        match name == Scope::DEFAULT {
            true => scopes[0] = scope,
            false => scopes.push(scope),
        }
    }
    scopes
}

/// Returns the throttle of a scope; `None` if no key limits requests.
fn throttle(raw: &raw::Scope, path: &SettingPath, report: &mut Diagnostics) -> Option<ThrottleConfig> {
    let concurrency = raw.concurrency.map(|_| report.nonzero_count(&path.concurrency(), raw.concurrency, 64));
    let spacing = Spacing {
        delay: span(&raw.delay).unwrap_or_default(),
        jitter: raw.jitter.as_ref().map_or(Jitter::at_most(0.0), |raw| jitter(raw, &path.jitter(), report)),
        per_slot: span(&raw.delay_per_slot).unwrap_or_default(),
    };
    if raw.delay_per_slot.is_some() && raw.concurrency.is_none() && raw.adaptive_concurrency.is_none() {
        report.error(
            &path.delay_per_slot(),
            "delay_per_slot requires concurrency",
            "add one such as concurrency: 4, or use delay",
        );
    }
    let throttle = ThrottleConfig {
        concurrency: concurrency.and_then(NonZeroU32::new),
        client_slots: client_slots(raw, path, report),
        spacing,
        backoff: raw.backoff.as_ref().map(|raw| backoff(raw, &path.backoff(), report)),
        controller: controller(raw, path, report),
        queue: queue(raw.queue.clone().unwrap_or_default()),
    };
    let is_throttled = throttle.concurrency.is_some()
        || throttle.controller.is_some()
        || throttle.backoff.is_some()
        || !spacing.delay.is_zero();
    if is_throttled {
        warn_delay_exceeds_wait(&throttle, path, report);
    } else if raw.queue.is_some() || raw.jitter.is_some() {
        report.warning(format!("{path}: queue and jitter alone have no effect, so the scope is not throttled"));
    }
    is_throttled.then_some(throttle)
}

fn client_slots(raw: &raw::Scope, path: &SettingPath, report: &mut Diagnostics) -> ClientSlots {
    let Some(mark) = &raw.per_client else { return ClientSlots::Quarter };
    let slots = match mark.0 {
        ThresholdValue::LimitShare(share) => Some(ClientSlots::Share(share)).filter(|_| share > Share::NONE),
        ThresholdValue::Units(count) if count.milli() % 1000 == 0 => {
            u32::try_from(count.milli() / 1000).ok().and_then(NonZeroU32::new).map(ClientSlots::Count)
        }
        ThresholdValue::Units(_) => None,
    };
    let path = path.per_client();
    if raw.concurrency.is_none() && raw.adaptive_concurrency.is_none() {
        report.error(&path, "per_client requires concurrency", "add one such as concurrency: 64, or leave it out");
    }
    slots.unwrap_or_else(|| {
        report.error(
            &path,
            "needs a share or a whole number above 0",
            "write a share such as 25%, or a number such as 8",
        );
        ClientSlots::Quarter
    })
}

/// Warns if the delay is longer than the longest wait: the queue is then of little use.
fn warn_delay_exceeds_wait(throttle: &ThrottleConfig, path: &SettingPath, report: &mut Diagnostics) {
    let min_delay = match &throttle.controller {
        Some(Controller::Rampup(Rampup { variable: RampVariable::Delay { min, .. }, .. })) => *min,
        _ => throttle.spacing.delay,
    };
    let max_wait = throttle.queue.max_wait;
    if min_delay > max_wait && !max_wait.is_zero() {
        report.warning(format!(
            "{}: longer than queue.max_wait ({max_wait:?}), so no request can wait for a full delay",
            path.delay()
        ));
    }
}

/// Warns about scopes that no route refers to; they have no effect.
pub(super) fn warn_unused(scopes: &[Scope], scope_quotas: &[ScopeQuota], routes: &[Route], report: &mut Diagnostics) {
    for (index, scope) in scopes.iter().enumerate().filter(|(_, scope)| scope.partitioning.is_none()) {
        let is_named = routes.iter().flat_map(|route| &route.scopes).any(|id| id.index() == index);
        let quota = scope_quotas.iter().find(|entry| entry.scope == scope.name).map(|entry| entry.quota);
        let has_cost = routes.iter().flat_map(|route| &route.costs).any(|(id, _)| Some(*id) == quota);
        let is_configured = scope.name != Scope::DEFAULT || scope.throttle.is_some() || quota.is_some();
        if is_configured && !is_named && (scope.throttle.is_some() || !has_cost) {
            let path = SettingPath::of_scope(&scope.name);
            report.warning(format!("{path}: unused scope: no route refers to it"));
        }
    }
}

/// Returns the controller of a scope. More than one is an error, because they would counteract each other.
fn controller(raw: &raw::Scope, path: &SettingPath, report: &mut Diagnostics) -> Option<Controller> {
    let mut found = Vec::new();
    if let Some(keys) = &raw.autothrottle {
        let min_delay = span(&raw.delay).unwrap_or_default();
        let auto = autothrottle(keys, min_delay, &path.autothrottle(), report);
        found.push((path.autothrottle(), Controller::Autothrottle(auto)));
    }
    if let Some(raw::AdaptiveConcurrency(keys)) = &raw.adaptive_concurrency {
        let gradient = gradient(keys, raw.concurrency, &path.adaptive_concurrency(), report);
        found.push((path.adaptive_concurrency(), Controller::Gradient(gradient)));
    }
    if let Some(keys) = &raw.rampup {
        let rampup = rampup(keys, raw, &path.rampup(), report);
        found.push((path.rampup(), Controller::Rampup(rampup)));
    }
    if let [(first, _), (second, _), ..] = &found[..] {
        report.error(
            second,
            format!("conflicts with {}: a scope can have only one controller", first.last_key()),
            "keep one, or use two scopes and name both in the route",
        );
    }
    found.into_iter().next().map(|(_, controller)| controller)
}

fn autothrottle(
    raw: &raw::Autothrottle,
    min_delay: Duration,
    path: &SettingPath,
    report: &mut Diagnostics,
) -> Autothrottle {
    check_order((path.start_delay(), raw.start_delay), (path.max_delay(), raw.max_delay), report);
    if raw.max_delay < min_delay {
        report.error(&path.max_delay(), "less than the scope's delay", "raise it, or lower delay");
    }
    check_statuses(&raw.success_statuses, &path.success_statuses(), report);
    Autothrottle {
        target_concurrency: raw.target_concurrency.as_f64(),
        start_delay: raw.start_delay,
        max_delay: raw.max_delay,
        success_statuses: match raw.success_statuses.is_empty() {
            true => (200..=299).chain([304]).collect(),
            false => raw.success_statuses.clone(),
        },
        log_adjustments: raw.log_adjustments,
    }
}

fn gradient(
    raw: &raw::ConcurrencyBounds,
    concurrency: Option<u32>,
    path: &SettingPath,
    report: &mut Diagnostics,
) -> Gradient {
    let (min, max) = (raw.min, raw.max.or(concurrency).unwrap_or(DEFAULT_MAX_CONCURRENCY));
    if raw.max.zip(concurrency).is_some_and(|(max, concurrency)| max > concurrency) {
        report.error(&path.max(), "more than the scope's concurrency", "lower it, or leave one of them out");
    } else if max < min {
        report.error(&path.max(), format!("{max} is less than min"), "raise it");
    }
    Gradient { min, max }
}

fn rampup(raw: &raw::Rampup, scope: &raw::Scope, path: &SettingPath, report: &mut Diagnostics) -> Rampup {
    if scope.backoff.is_none() {
        report.error(path, "rampup requires backoff", "add backoff: {}");
    }
    let window = scope.backoff.clone().unwrap_or_default().window;
    Rampup { target: raw.target_overloads.bounds(), window, variable: ramp_variable(raw, scope, path, report) }
}

fn ramp_variable(raw: &raw::Rampup, scope: &raw::Scope, path: &SettingPath, report: &mut Diagnostics) -> RampVariable {
    let delay = span(&scope.delay).filter(|delay| !delay.is_zero());
    let delay_keys = [(path.min_delay(), raw.min_delay.is_some()), (path.max_delay(), raw.max_delay.is_some())];
    let concurrency_keys = [(path.max_concurrency(), raw.max_concurrency.is_some())];
    let ineffective_keys: &[(SettingPath, bool)] = if delay.is_some() { &concurrency_keys } else { &delay_keys };
    for (path, _) in ineffective_keys.iter().filter(|(_, is_set)| *is_set) {
        let varied = if delay.is_some() { "delay" } else { "concurrency" };
        report.error(path, format!("has no effect: rampup varies {varied}"), "leave it out");
    }
    match (delay, scope.concurrency) {
        (Some(start), _) => {
            let min = raw.min_delay.unwrap_or(start / RAMP_RANGE);
            let max = raw.max_delay.unwrap_or(start.saturating_mul(RAMP_RANGE));
            for (path, is_outside) in [(path.min_delay(), min > start), (path.max_delay(), max < start)] {
                if is_outside {
                    let hint = "set delay between min_delay and max_delay";
                    report.error(&path, "the scope's delay is outside this bound", hint);
                }
            }
            RampVariable::Delay { start, min, max }
        }
        (None, Some(start)) => {
            let path = path.max_concurrency();
            let max = raw.max_concurrency.unwrap_or(start.saturating_mul(RAMP_RANGE));
            if max < start {
                report.error(&path, "less than the scope's concurrency", "raise it");
            }
            RampVariable::Concurrency { start, max }
        }
        (None, None) => {
            report.error(path, "rampup needs an initial value", "set delay or concurrency");
            RampVariable::Concurrency { start: 1, max: 1 }
        }
    }
}

fn backoff(raw: &raw::Backoff, path: &SettingPath, report: &mut Diagnostics) -> Backoff {
    check_statuses(&raw.statuses, &path.statuses(), report);
    let is_default = !report.is_set(&path.max_delay());
    let max_delay = if is_default { raw.max_delay.max(raw.min_delay) } else { raw.max_delay };
    check_order((path.min_delay(), raw.min_delay), (path.max_delay(), max_delay), report);
    Backoff {
        statuses: if raw.statuses.is_empty() { OVERLOAD_STATUSES.into() } else { raw.statuses.clone() },
        factor: raw.factor,
        min_delay: raw.min_delay,
        max_delay,
        jitter: jitter(&raw.jitter, &path.jitter(), report),
        window: raw.window,
        min_clients: NonZeroU32::new(raw.min_clients).unwrap_or(NonZeroU32::MIN),
    }
}

fn queue(raw::Queue { max_wait, max_length }: raw::Queue) -> QueueConfig {
    QueueConfig { max_wait, max_length }
}

fn span(value: &Option<Span>) -> Option<Duration> {
    value.as_ref().map(|span| span.0)
}

fn jitter(raw: &OneOrRange<Change>, path: &SettingPath, report: &mut Diagnostics) -> Jitter {
    let jitter = match raw {
        OneOrRange::One(Change(max)) => Jitter::at_most(*max),
        OneOrRange::Range(Change(low), Change(high)) => Jitter { low: *low, high: *high },
    };
    if jitter.high < jitter.low {
        report.error(path, "the maximum is less than the minimum", "write 10%, or [-10%, 30%] with the minimum first");
    }
    jitter
}

fn check_statuses(values: &[u16], path: &SettingPath, report: &mut Diagnostics) {
    for (index, status) in values.iter().enumerate().filter(|(_, status)| !(100..=599).contains(*status)) {
        report.error(&path.index(index), format!("found {status}, needs a status"), "write one from 100 to 599");
    }
}

/// Checks that the value of one key is at most that of another.
fn check_order(
    (min_path, min): (SettingPath, Duration),
    (max_path, max): (SettingPath, Duration),
    report: &mut Diagnostics,
) {
    if max >= min || report.has_error_at(&min_path) || report.has_error_at(&max_path) {
        return;
    }
    // The key, with the value if it is the default.
    let describe = |path: &SettingPath, value: Duration| match report.is_set(path) {
        true => path.last_key().to_owned(),
        false => format!("{} ({value:?} by default)", path.last_key()),
    };
    let (min_key, max_key) = (describe(&min_path, min), describe(&max_path, max));
    match report.is_set(&max_path) {
        true => report.error(&max_path, format!("less than {min_key}"), "raise it"),
        false => {
            let hint = format!("lower it, or set {}", max_path.last_key());
            report.error(&min_path, format!("more than {max_key}"), hint);
        }
    }
}
