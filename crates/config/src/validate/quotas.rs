//! Validates `quotas`, including the quotas of scopes.

use super::diagnostics::Diagnostics;
use crate::raw::scopes::Scope;
use crate::sections::quotas::{Quota as Keys, quota};
use crate::serde_forms::NamedMap;
use crate::setting_path::SettingPath;
use tidegate_policy::QuotaId;
use tidegate_policy::class::Class;
use tidegate_policy::quota::Quota;

const MAX_QUOTAS: usize = 1000;

/// The quota of a scope. Both have the same name.
pub(super) struct ScopeQuota {
    pub(super) scope: String,
    pub(super) quota: QuotaId,
}

/// Returns all quotas, those of scopes last, and the quotas of scopes.
pub(super) fn quotas(
    raw: &NamedMap<Keys>,
    scopes: &NamedMap<Scope>,
    classes: &[Class],
    report: &mut Diagnostics,
) -> (Vec<Quota>, Vec<ScopeQuota>) {
    let mut quotas: Vec<Quota> = Vec::new();
    let mut scope_quotas = Vec::new();
    for (name, keys) in &raw.0 {
        let path = SettingPath::of_quota(name);
        report.check_name(&path, name);
        quotas.push(quota(name, keys, &path, classes, report));
    }
    for (name, scope) in &scopes.0 {
        let Some(keys) = &scope.quota else { continue };
        let path = SettingPath::of_scope(name).quota();
        if scope.partition_by.is_some() {
            let message = "the usage of a quota is stored permanently, and partitions are not";
            report.error(&path, message, "limit each partition by concurrency and delay, or each client by a bucket");
        } else if raw.0.iter().any(|(other, _)| other == name) {
            let message = format!("{} has the same name", SettingPath::of_quota(name));
            report.error(&path, message, "keep one of them, or rename the scope");
        }
        scope_quotas.push(ScopeQuota { scope: name.clone(), quota: QuotaId::from_index(quotas.len()) });
        quotas.push(quota(name, keys, &path, classes, report));
    }
    report.check_len(&SettingPath::ROOT.quotas(), "quotas", quotas.len(), MAX_QUOTAS, "merge some");
    (quotas, scope_quotas)
}
