//! Validates `promise`.

use super::diagnostics::Diagnostics;
use crate::raw::promise as raw;
use crate::setting_path::SettingPath;
use tidegate_policy::class::Class;
use tidegate_policy::promise::Promise;
use tidegate_policy::quota::Quota;

pub(super) fn promise(raw: &raw::Promise, quotas: &[Quota], classes: &[Class], report: &mut Diagnostics) -> Promise {
    let path = SettingPath::ROOT.promise();
    let raw::Promise { people_refused, search_served, left_over } = *raw;
    if report.is_set(&path) && !report.has_error_at(&SettingPath::ROOT.quotas()) {
        let hint = "it is compared with the windows of the first quota without `per`; define one";
        match quotas {
            [] => report.error(&path, "no quota", hint),
            [first, ..] if quotas.iter().all(|quota| quota.budget.is_some()) => {
                let budget = SettingPath::of_quota(&first.name).per();
                report.contradiction(&path, &[budget], "each quota has a budget for each key", hint);
            }
            _ => {}
        }
    }
    let figures = [
        (path.people_refused(), people_refused, Promise::PEOPLE_CLASS, "people"),
        (path.search_served(), search_served, Promise::SEARCH_CLASS, "verified search engines"),
    ];
    for (path, share, class, who) in figures {
        if share.is_some() && classes.iter().all(|known| known.name != class) {
            let hint = format!("name the class of {who} {class}, or leave this out");
            report.contradiction(&path, &[SettingPath::ROOT.classes()], format!("there is no class {class}"), hint);
        }
    }
    Promise { people_refused, search_served, left_over }
}
