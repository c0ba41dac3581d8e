//! Validates `quotas`: limits, windows, tiers and synchronization, including the quotas of scopes.

use super::diagnostics::Diagnostics;
use super::pacing::pacing;
use crate::calendar::{self, CivilCalendar};
use crate::raw::quotas::{self as raw, Tiers, Unit};
use crate::raw::scopes::Scope;
use crate::scalars::{Field, ThresholdValue};
use crate::serde_forms::NamedMap;
use crate::setting_path::SettingPath;
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::class::Class;
use tidegate_policy::quota::{ClassTiers, ExhaustedRule, ExhaustedText, Quota, SyncFrom, TextPlace};
use tidegate_policy::tier::{Share, Tier, TierSet};
use tidegate_policy::window::Window;
use tidegate_policy::{QuotaId, Units};

const MAX_QUOTAS: usize = 1000;
/// Minimum length of a window. RateLimit fields have whole seconds; shorter intervals are for the `delay` of a scope.
const MIN_WINDOW: Duration = Duration::from_secs(1);
/// Number of sub-windows of a sliding window. The window errs low by at most one sub-window: with 60, 24 minutes of a
/// day.
const SUB_WINDOWS: u32 = 60;
/// Maximum number of tiers of a class; a tier number is one byte.
const MAX_TIERS: usize = 100;
/// Maximum length of the text searched in response bodies, in bytes.
const MAX_SCAN_TEXT: usize = 200;

/// The quota of a scope. Both have the same name.
pub(super) struct ScopeQuota {
    pub(super) scope: String,
    pub(super) quota: QuotaId,
}

/// Returns all quotas, those of scopes last, and the quotas of scopes.
pub(super) fn quotas(
    raw: &NamedMap<raw::Quota>,
    scopes: &NamedMap<Scope>,
    classes: &[Class],
    report: &mut Diagnostics,
) -> (Vec<Quota>, Vec<ScopeQuota>) {
    let mut quotas: Vec<Quota> = Vec::new();
    let mut scope_quotas = Vec::new();
    for (name, quota) in &raw.0 {
        let path = SettingPath::of_quota(name);
        report.check_name(&path, name);
        quotas.push(self::quota(name, quota, &path, classes, report));
    }
    for (name, scope) in &scopes.0 {
        let Some(quota) = &scope.quota else { continue };
        let path = SettingPath::of_scope(name).quota();
        if scope.partition_by.is_some() {
            let message = "the usage of a quota is stored permanently, and partitions are not";
            report.error(&path, message, "limit each partition by concurrency and delay, or each client by a bucket");
        } else if raw.0.iter().any(|(other, _)| other == name) {
            let message = format!("{} has the same name", SettingPath::of_quota(name));
            report.error(&path, message, "keep one of them, or rename the scope");
        }
        scope_quotas.push(ScopeQuota { scope: name.clone(), quota: QuotaId::from_index(quotas.len()) });
        quotas.push(self::quota(name, quota, &path, classes, report));
    }
    report.check_len(&SettingPath::ROOT.quotas(), "quotas", quotas.len(), MAX_QUOTAS, "merge some");
    (quotas, scope_quotas)
}

fn quota(name: &str, raw: &raw::Quota, path: &SettingPath, classes: &[Class], report: &mut Diagnostics) -> Quota {
    if classes.iter().any(|class| class.name == name && class.bucket.is_some()) {
        report.error(
            path,
            format!("the bucket of class {name:?} has the same name in RateLimit fields"),
            "rename one of them",
        );
    }
    let limit = raw.limit.as_ref().map_or(Units::from_whole(1), |amount| amount.0);
    if raw.limit.is_none() {
        report.error(&path.limit(), "missing", "write the units per window, such as 10000");
    }
    if limit.is_zero() {
        report.error(&path.limit(), "found 0", "write the purchased units, or block a class with block: true");
    }
    let window = window(raw.window.as_ref(), &path.window(), report);
    let class_tiers = class_tiers(raw, limit, path, classes, report);
    Quota {
        name: name.to_owned(),
        limit,
        client_limit: client_limit(raw, limit, &window, path, report),
        pacing: pacing(&raw.pacing, &window, &class_tiers, &path.pacing(), classes, report),
        window,
        enforce: raw.enforce.unwrap_or(true),
        cost_header: raw.cost_header.as_ref().map(|field| field.0.clone()),
        free_when_cached: raw.free_when_cached,
        sync_from: raw.sync_from.as_ref().map(|raw| sync_from(raw, &path.sync_from(), report)),
        class_tiers,
    }
}

fn client_limit(
    raw: &raw::Quota,
    limit: Units,
    window: &Window,
    path: &SettingPath,
    report: &mut Diagnostics,
) -> Option<Units> {
    let client_limit = units(raw.per_client.as_ref()?.0, limit);
    let limit_path = path.limit();
    let path = &path.per_client();
    if client_limit.is_zero() || client_limit > limit {
        report.contradiction(
            path,
            &[limit_path],
            format!("found {client_limit} of {limit} {}", limit.noun()),
            "write a share such as 2%, or an amount up to the limit",
        );
    }
    if window.is_sliding() {
        report.error(
            path,
            "a sliding window has no end at which a share is renewed",
            "use a calendar, fixed or first_use window, or a bucket",
        );
    }
    Some(client_limit)
}

fn sync_from(raw: &raw::SyncFrom, path: &SettingPath, report: &mut Diagnostics) -> SyncFrom {
    if raw.remaining_header.is_none() && raw.exhausted.is_none() {
        report.error(
            path,
            "has no effect",
            "write { remaining_header: X-RateLimit-Remaining } or { exhausted: { statuses: [429] } }",
        );
    }
    let field = |field: &Option<Field>| field.as_ref().map(|field| field.0.clone());
    let exhausted = raw.exhausted.as_ref().map(|exhausted| {
        let path = path.exhausted();
        let unknown = exhausted.statuses.iter().find(|status| !(100..=599).contains(*status));
        if exhausted.statuses.is_empty() {
            report.error(&path.statuses(), "missing", "write the statuses, such as [429]");
        } else if let Some(status) = unknown {
            report.error(&path.statuses(), format!("found {status}"), "write statuses from 100 to 599");
        } else if exhausted.contains.is_none() && exhausted.statuses.iter().any(|status| *status < 400) {
            report.error(
                &path.statuses(),
                "a success status alone does not report an exhausted quota",
                "add contains with the text of such a response",
            );
        }
        if exhausted.contains.as_ref().is_some_and(|text| !(1..=MAX_SCAN_TEXT).contains(&text.len())) {
            report.error(
                &path.contains(),
                format!("needs 1 to {MAX_SCAN_TEXT} bytes"),
                "write a text that only such a response contains",
            );
        }
        ExhaustedRule { statuses: exhausted.statuses.clone(), text: exhausted_text(exhausted, &path, report) }
    });
    SyncFrom { remaining_header: field(&raw.remaining_header), reset_header: field(&raw.reset_header), exhausted }
}

fn exhausted_text(raw: &raw::Exhausted, path: &SettingPath, report: &mut Diagnostics) -> Option<ExhaustedText> {
    if raw.contains.is_none() && (raw.header.is_some() || raw.json.is_some()) {
        report.error(path, "header and json need contains", "add contains with the text of such a response");
    }
    let place = match (&raw.header, &raw.json) {
        (Some(_), Some(_)) => {
            report.error(&path.json(), "given beside header", "write one of header and json");
            TextPlace::Anywhere
        }
        (Some(name), None) => TextPlace::Header(name.0.clone()),
        (None, Some(pointer)) => {
            if !pointer.starts_with('/') {
                report.error(&path.json(), format!("found {pointer:?}"), "write a JSON Pointer, such as /error/reason");
            }
            TextPlace::Json(pointer.clone())
        }
        (None, None) => TextPlace::Anywhere,
    };
    Some(ExhaustedText { text: raw.contains.clone()?, place })
}

fn window(raw: Option<&raw::Window>, path: &SettingPath, report: &mut Diagnostics) -> Window {
    const EXAMPLE: &str = "write { calendar: day, zone: America/Los_Angeles, at: \"00:00\" } or { fixed: 24h }";
    let placeholder = Window::Fixed { length: Duration::from_secs(1) };
    let Some(raw) = raw else {
        report.error(path, "missing", EXAMPLE);
        return placeholder;
    };
    let lengths = [(path.fixed(), &raw.fixed), (path.first_use(), &raw.first_use), (path.sliding(), &raw.sliding)];
    let given: Vec<_> = lengths.into_iter().filter_map(|(path, length)| Some((path, length.as_ref()?.0))).collect();
    match (raw.calendar, &given[..]) {
        (Some(unit), []) => calendar_window(unit, raw, path, report).unwrap_or(placeholder),
        (None, [(length_path, length)]) => {
            let key = length_path.last_key();
            reject_calendar_keys(key, raw, path, report);
            let length = report.nonzero_duration(length_path, Some(*length), MIN_WINDOW);
            if length < MIN_WINDOW {
                report.error(length_path, "found less than a second", "write 1s or more");
            }
            match key {
                "first_use" => Window::FirstUse { length },
                "sliding" => Window::Sliding { length, sub_windows: SUB_WINDOWS },
                _ => Window::Fixed { length },
            }
        }
        (None, []) => {
            if !report.has_error_at(path) {
                report.error(path, "found none of calendar, fixed, first_use and sliding", EXAMPLE);
            }
            placeholder
        }
        (calendar, several) => {
            let mut found: Vec<&str> = calendar.map(|_| "calendar").into_iter().collect();
            found.extend(several.iter().map(|(path, _)| path.last_key()));
            report.error(path, format!("found {} at once", found.join(" and ")), "keep one of them");
            placeholder
        }
    }
}

fn reject_calendar_keys(kind: &str, raw: &raw::Window, path: &SettingPath, report: &mut Diagnostics) {
    for (path, given) in [(path.zone(), raw.zone.is_some()), (path.at(), raw.at.is_some())] {
        if given {
            report.error(&path, format!("has no effect on a {kind} window"), "leave it out, or use calendar");
        }
    }
}

fn calendar_window(unit: Unit, raw: &raw::Window, path: &SettingPath, report: &mut Diagnostics) -> Option<Window> {
    let unit = match unit {
        Unit::Hour => calendar::CalendarUnit::Hour,
        Unit::Day => calendar::CalendarUnit::Day,
        Unit::Week => calendar::CalendarUnit::Week,
        Unit::Month => calendar::CalendarUnit::Month,
    };
    let at = raw.at.as_ref().map_or(jiff::civil::Time::midnight(), |time| time.0);
    if unit == calendar::CalendarUnit::Hour && at.hour() != 0 {
        report.error(&path.at(), "an hourly window needs a minute, not an hour", "write it like \"00:15\"");
    }
    let zone = raw.zone.as_deref().unwrap_or("UTC");
    match CivilCalendar::new(unit, zone, at) {
        Ok(civil) => Some(Window::Calendar(Arc::new(civil))),
        Err(calendar::UnknownZone) => {
            report.error(
                &path.zone(),
                format!("unknown time zone {zone:?}"),
                "use an IANA name such as America/Los_Angeles",
            );
            None
        }
    }
}

fn class_tiers(
    raw: &raw::Quota,
    limit: Units,
    path: &SettingPath,
    classes: &[Class],
    report: &mut Diagnostics,
) -> Vec<Option<ClassTiers>> {
    let mut by_class: Vec<Option<ClassTiers>> = vec![None; classes.len()];
    let limit_path = path.limit();
    for (class, tiers) in &raw.tiers.0 {
        let path = path.tiers_of(class, tiers.long_form);
        match classes.iter().position(|known| known.name == *class) {
            Some(index) => by_class[index] = Some(tier_set(tiers, limit, &limit_path, &path, report)),
            None => {
                if !has_class_errors(report, classes.len()) {
                    report.unknown_name(&path, "class", class, classes.iter().map(|class| class.name.as_str()));
                }
                tier_set(tiers, limit, &limit_path, &path, report);
            }
        }
    }
    by_class
}

/// Returns true if the name of a class has an error: it may be the one that seems unknown.
fn has_class_errors(report: &Diagnostics, count: usize) -> bool {
    report.has_error_at(&SettingPath::ROOT.classes())
        && (count <= 1 || (0..count).any(|index| report.has_error_at(&SettingPath::of_class(index).name())))
}

fn tier_set(
    raw: &Tiers,
    limit: Units,
    limit_path: &SettingPath,
    path: &SettingPath,
    report: &mut Diagnostics,
) -> ClassTiers {
    if raw.steps.is_empty() {
        report.error(path, "no tiers", "write [{ above: 80%, shed: 50% }], or leave the class out");
    }
    report.check_len(path, "tiers", raw.steps.len(), MAX_TIERS, "use fewer tiers");
    let mut tiers: Vec<Tier> = Vec::new();
    for (index, step) in raw.steps.iter().enumerate() {
        let path = path.index(index);
        for (path, given, example) in
            [(path.above(), step.above.is_some(), "above: 80%"), (path.shed(), step.shed.is_some(), "shed: 50%")]
        {
            if !given {
                report.error(&path, "missing", format!("write it like {example}"));
            }
        }
        let (Some(above), Some(shed)) = (&step.above, &step.shed) else { continue };
        let tier = Tier { threshold: units(above.0, limit), shed_share: shed.0 };
        if tier.threshold > limit {
            report.contradiction(
                &path.above(),
                std::slice::from_ref(limit_path),
                format!("unreachable: {} exceeds the limit {limit}", tier.threshold),
                "write a share such as 80%, or less than the limit",
            );
        }
        if tiers.last().is_some_and(|previous| tier.threshold <= previous.threshold) {
            report.error(&path.above(), "not above the previous tier", "write the lowest tier first");
        }
        if tier.shed_share <= tiers.last().map_or(Share::NONE, |previous| previous.shed_share) {
            let message =
                if tier.shed_share == Share::NONE { "sheds nothing" } else { "sheds no more than the previous tier" };
            report.error(&path.shed(), message, "shed more with each tier, 100% at most");
        }
        tiers.push(tier);
    }
    ClassTiers { tiers: TierSet::new(tiers, limit), enforce: raw.enforce.unwrap_or(true) }
}

/// Returns `threshold` in units. A share of the limit is rounded up: 0.1 % of 0.5 units is one thousandth, not 0.
fn units(threshold: ThresholdValue, limit: Units) -> Units {
    match threshold {
        ThresholdValue::Units(units) => units,
        ThresholdValue::LimitShare(share) => {
            let millionths = u128::from(limit.milli()) * u128::from(share.millionths());
            let milli = millionths.div_ceil(u128::from(Share::ALL.millionths()));
            Units::from_milli(u64::try_from(milli).unwrap_or(u64::MAX))
        }
    }
}
