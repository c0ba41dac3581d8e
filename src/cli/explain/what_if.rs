//! Finds larger limits and weights with which the pacing plan would admit a refused line: replays the log with each.

use super::from_log::LogReplay;
use crate::cli::{CommandError, environment};
use std::fs;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use tidegate_config::{self as config, SettingPath, Settings};
use tidegate_crawlers::verify::OperatorTable;
use tidegate_policy::pacing::PacingRole;
use tidegate_policy::{QuotaId, Reason, Units};
use tidegate_replay::Policy;
use tidegate_replay::explain::{ChangeKind, Explanation, Remedy, Stage, StepResult, Verdict};
use tidegate_replay::terminal::decimal;

/// Returns the smallest tried limit and the smallest tried weight that admit the line; empty if no pacing plan refused
/// it.
pub(super) fn remedies(
    log: &LogReplay<'_>,
    file: &Path,
    policy: &Policy,
    refused: &Explanation,
) -> Result<Vec<Remedy>, CommandError> {
    let is_refused_by_plan =
        refused.responses.iter().any(|response| response.reason.as_deref() == Some(Reason::Pacing.name()));
    let refusing = refused.steps.iter().find(|step| step.step == Stage::Pacing && step.finding == StepResult::Refused);
    let Some(name) = refusing.filter(|_| is_refused_by_plan).and_then(|step| step.quota.as_deref()) else {
        return Ok(Vec::new());
    };
    let Some(quota) = policy.settings.rules.quota_id(name) else {
        return Ok(Vec::new());
    };
    let mut remedies = Vec::new();

    let limit = policy.settings.rules[quota].limit;
    let path = policy.settings.source_map.quota_path(name).limit();
    for percent in LIMIT_PERCENTS {
        let larger = Units::from_milli(limit.milli().saturating_mul(percent) / 100);
        let Some(settings) = with_limit(file, &path, larger) else { break };
        if admits(log, &policy.with_settings(settings))? {
            let message =
                format!("a limit of {} {} for {name} instead of {}", decimal(larger), larger.noun(), decimal(limit));
            remedies.push(Remedy::new(ChangeKind::Limit, message).with_number("limit", larger.as_f64()));
            break;
        }
    }

    let class = refused.steps.iter().find_map(|step| step.numbers.get("class")?.as_str()).unwrap_or_default();
    for factor in WEIGHT_FACTORS {
        let Some((settings, from, to)) = with_weight(&policy.settings, quota, class, factor) else { break };
        if admits(log, &policy.with_settings(settings))? {
            let message = format!("a weight of {to} for {class} in the pacing of {name} instead of {from}");
            remedies.push(Remedy::new(ChangeKind::Weight, message).with_number("weight", to.get()));
            break;
        }
    }
    Ok(remedies)
}

fn admits(log: &LogReplay<'_>, policy: &Policy) -> Result<bool, CommandError> {
    let explained = log.explain_with(policy)?;
    Ok(explained.responses.iter().all(|response| response.verdict == Verdict::Admitted))
}

/// Returns the settings of the file with `limit` at `path`; `None` if that is invalid.
fn with_limit(file: &Path, path: &SettingPath, limit: Units) -> Option<Settings> {
    let text = fs::read_to_string(file).ok()?;
    let overrides = [(path.clone(), limit.to_string())];
    config::load(file, &text, &environment(), &overrides, &OperatorTable::builtin_names()).ok()
}

/// Returns the settings with the weight of `class` multiplied by `factor`, and the weights before and after; `None` if
/// the class has no weight.
fn with_weight(
    settings: &Settings,
    quota: QuotaId,
    class: &str,
    factor: u32,
) -> Option<(Settings, NonZeroU32, NonZeroU32)> {
    let mut rules = (*settings.rules).clone();
    let index = rules.classes.iter().position(|known| known.name == class)?;
    let role = rules.quotas[quota.index()].pacing.as_mut()?.roles.get_mut(index)?;
    let PacingRole::Paced(from) = *role else { return None };
    let to = from.checked_mul(NonZeroU32::new(factor)?)?;
    *role = PacingRole::Paced(to);
    let mut settings = settings.clone();
    settings.rules = Arc::new(rules);
    Some((settings, from, to))
}

/// Limits to try, in percent of the configured one. Few values, because each costs one replay.
const LIMIT_PERCENTS: [u64; 4] = [110, 125, 150, 200];

/// Factors of the configured weight to try.
const WEIGHT_FACTORS: [u32; 2] = [2, 4];
