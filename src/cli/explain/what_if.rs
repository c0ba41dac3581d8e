//! Finds larger limits and weights with which the pacing plan would admit a refused line: replays the log with each.

use super::from_log::LogReplay;
use crate::cli::{CommandError, environment};
use crate::config::{self, Settings};
use crate::explain::{ChangeKind, Explanation, Remedy, Stage, StepResult, Verdict};
use crate::policy::pacing::Role;
use crate::policy::{Reason, Units};
use crate::replay::Policy;
use crate::terminal::decimal;
use crate::verify::OperatorTable;
use std::fs;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

/// Returns the smallest tried limit and the smallest tried weight that admit the line; empty if no pacing plan refused
/// it.
pub(super) fn remedies(
    log: &LogReplay<'_>,
    file: &Path,
    policy: &Policy,
    refused: &Explanation,
) -> Result<Vec<Remedy>, CommandError> {
    let by_plan = refused.responses.iter().any(|answer| answer.reason.as_deref() == Some(Reason::Pacing.name()));
    let of_quota = |stage: Stage, name: &str| {
        refused.steps.iter().find(|step| step.step == stage && step.quota.as_deref() == Some(name))
    };
    let refusing = refused.steps.iter().find(|step| step.step == Stage::Pacing && step.finding == StepResult::Refused);
    let Some(name) = refusing.filter(|_| by_plan).and_then(|step| step.quota.as_deref()) else { return Ok(Vec::new()) };
    let Some(quota) = policy.settings.rules.quotas.iter().position(|quota| quota.name == name) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();

    let limit = policy.settings.rules.quotas[quota].limit;
    let key = of_quota(Stage::Quota, name).and_then(|step| step.rule.as_ref()).map(|rule| rule.path.as_str());
    for percent in LIMITS {
        let larger = Units::from_milli(limit.milli().saturating_mul(percent) / 100);
        let Some(settings) = key.and_then(|key| with_limit(file, key, larger)) else { break };
        if admits(log, &policy.with(settings))? {
            let says =
                format!("a limit of {} units for {name} instead of {}", format_units(larger), format_units(limit));
            found.push(Remedy::new(ChangeKind::Limit, says).with("limit", larger.as_f64()));
            break;
        }
    }

    let class = refused.steps.iter().find_map(|step| step.numbers.get("class")?.as_str()).unwrap_or_default();
    for times in WEIGHTS {
        let Some((settings, from, to)) = with_weight(&policy.settings, quota, class, times) else { break };
        if admits(log, &policy.with(settings))? {
            let says = format!("a weight of {to} for {class} in the pacing of {name} instead of {from}");
            found.push(Remedy::new(ChangeKind::Weight, says).with("weight", to.get()));
            break;
        }
    }
    Ok(found)
}

fn admits(log: &LogReplay<'_>, policy: &Policy) -> Result<bool, CommandError> {
    let explained = log.explained(policy)?;
    Ok(explained.responses.iter().all(|answer| answer.verdict == Verdict::Admitted))
}

/// Returns the settings of the file with `limit` at `key`; `None` if that is invalid.
fn with_limit(file: &Path, key: &str, limit: Units) -> Option<Settings> {
    let builtin = OperatorTable::builtin();
    let operators: Vec<&str> = builtin.names().collect();
    let text = fs::read_to_string(file).ok()?;
    config::load(file, &text, &environment(), &[(key, limit.to_string())], &operators).ok()
}

/// Returns the settings with the weight of `class` multiplied by `times`, and the weights before and after; `None` if
/// the class has no weight.
fn with_weight(
    settings: &Settings,
    quota: usize,
    class: &str,
    times: u32,
) -> Option<(Settings, NonZeroU32, NonZeroU32)> {
    let mut rules = (*settings.rules).clone();
    let place = rules.classes.iter().position(|known| known.name == class)?;
    let role = rules.quotas[quota].pacing.as_mut()?.roles.get_mut(place)?;
    let Role::Paced(from) = *role else { return None };
    let to = from.checked_mul(NonZeroU32::new(times)?)?;
    *role = Role::Paced(to);
    let mut settings = settings.clone();
    settings.rules = Arc::new(rules);
    Some((settings, from, to))
}

fn format_units(units: Units) -> String {
    decimal(&units.to_string())
}

/// Limits to try, in percent of the configured one. Few values, because each costs one replay.
const LIMITS: [u64; 4] = [110, 125, 150, 200];

/// Factors of the configured weight to try.
const WEIGHTS: [u32; 2] = [2, 4];
