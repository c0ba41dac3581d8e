//! Summary lines of quotas: window, pacing, origin headers and tiers.

use super::classes::credential_source;
use super::format::{duration, shadow};
use tidegate_policy::budget::{BudgetKey, CustomerSource};
use tidegate_policy::class::Class;
use tidegate_policy::pacing::{Pacing, PacingMode, PacingRole};
use tidegate_policy::quota::{BodyCostPath, ClassTiers, ExhaustedRule, ExhaustedText, Quota, SyncFrom, TextPlace};
use tidegate_policy::units::Units;
use tidegate_policy::window::Window;
use tidegate_policy::{ClassId, Rules};

pub(super) fn window(window: &Window) -> String {
    match window {
        Window::Fixed { length } => format!("every {}", duration(*length)),
        Window::Calendar(calendar) => format!("each {calendar:?}"),
        Window::FirstUse { length } => format!("for {} from the first use", duration(*length)),
        Window::Sliding { length, .. } => format!("in any span of {}", duration(*length)),
    }
}

/// Returns the summary line of what has a budget of its own; `None` without `per`.
pub(super) fn budget(quota: &Quota, rules: &Rules) -> Option<String> {
    let budget = quota.budget.as_ref()?;
    let per = match (budget.per, &rules.customer) {
        (BudgetKey::Client, _) => "client".to_owned(),
        (BudgetKey::Class, _) => "class".to_owned(),
        (BudgetKey::Customer, Some(CustomerSource::Credential(source))) => credential_source(source),
        (BudgetKey::Customer, _) => "API key".to_owned(),
    };
    let classes = rules.classes.iter().enumerate().filter_map(|(index, class)| {
        let limit = budget.class_limits.get(&ClassId::from_index(index))?;
        Some(format!("; {} of class {}", limit, class.name))
    });
    let keys = match budget.key_limits.len() {
        0 => String::new(),
        1 => "; 1 key has a limit of its own".to_owned(),
        count => format!("; {count} keys have limits of their own"),
    };
    let metrics = if budget.has_metrics_by_key { "; in metrics" } else { "" };
    Some(format!("for each {per}, up to {} of them{}{keys}{metrics}", budget.max_keys, classes.collect::<String>()))
}

/// Returns the summary line of the share of a client; `None` without `per_client`.
pub(super) fn client_limit(quota: &Quota) -> Option<String> {
    let limit = quota.client_limit?;
    let share = limit.as_f64() / quota.limit.as_f64() * 100.0;
    Some(format!("per client: {limit} {} ({share:.0}%)", limit.noun()))
}

/// Returns the summary line of the pacing of `quota`; `None` if it is not paced.
pub(super) fn pacing(quota: &Quota, classes: &[Class]) -> Option<String> {
    let Pacing { forecast, burst_share: burst, roles, enforce, .. } = quota.pacing.as_ref()?;
    let paced = classes.iter().zip(roles).filter_map(|(class, role)| match role {
        PacingRole::Paced(weight) => Some(format!("{} (weight {weight})", class.name)),
        PacingRole::Unpaced | PacingRole::Excluded => None,
    });
    let mode = match forecast {
        PacingMode::Even => "even",
        PacingMode::Learned => "learned",
    };
    let (paced, burst) = (paced.collect::<Vec<_>>().join(", "), burst.ratio() * 100.0);
    Some(format!("pacing {mode}, burst {burst}%: {paced}{}", shadow(*enforce)))
}

/// Returns one summary line for each header or response by which the origin affects `quota`.
pub(super) fn origin_headers(quota: &Quota) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(header) = &quota.cost_header {
        lines.push(format!("actual cost from {header}"));
    }
    if !quota.cost_json.is_empty() {
        let path = |BodyCostPath { path, weight }: &BodyCostPath| match *weight == Units::from_whole(1) {
            true => path.clone(),
            false => format!("{weight} for each {path}"),
        };
        let paths: Vec<String> = quota.cost_json.iter().map(path).collect();
        lines.push(format!("actual cost from the body: {}", paths.join(" and ")));
    }
    if let Some(trailer) = &quota.cost_trailer {
        lines.push(format!("actual cost from the trailer {trailer}"));
    }
    if quota.free_when_cached {
        lines.push("free when cached by the origin".into());
    }
    let Some(SyncFrom { remaining_header, reset_header, exhausted }) = &quota.sync_from else { return lines };
    if let Some(header) = remaining_header {
        let renewal = reset_header.as_ref().map_or_else(String::new, |header| format!(", renewal from {header}"));
        lines.push(format!("remaining units from {header}{renewal}"));
    }
    if let Some(ExhaustedRule { statuses, text }) = exhausted {
        let statuses: Vec<String> = statuses.iter().map(ToString::to_string).collect();
        let text = text.as_ref().map_or_else(String::new, |ExhaustedText { text, place }| match place {
            TextPlace::Anywhere => format!(" with {text:?}"),
            TextPlace::Header(name) => format!(" with {text:?} in {name}"),
            TextPlace::Json(pointer) => format!(" with {text:?} at {pointer}"),
        });
        lines.push(format!("exhausted on status {}{text}", statuses.join(" or ")));
    }
    lines
}

pub(super) fn tiers(quota: &Quota, class_tiers: &ClassTiers) -> String {
    let step = |tier: &tidegate_policy::tier::Tier| {
        let share = tier.threshold.as_f64() / quota.limit.as_f64() * 100.0;
        format!("from {} ({share:.0}%) sheds {}%", tier.threshold, tier.shed_share.ratio() * 100.0)
    };
    let steps: Vec<String> = class_tiers.tiers.tiers().iter().map(step).collect();
    format!("{}{}", steps.join(", "), shadow(class_tiers.enforce))
}
