//! Validates `quotas`, including the quotas of scopes.

use super::diagnostics::Diagnostics;
use crate::raw::scopes::Scope;
use crate::sections::quotas::{Quota as Keys, quota};
use crate::serde_forms::NamedMap;
use crate::setting_path::SettingPath;
use tidegate_policy::QuotaId;
use tidegate_policy::budget::CustomerSource;
use tidegate_policy::class::Class;
use tidegate_policy::quota::Quota;

const MAX_QUOTAS: usize = 1000;

/// The quota of a scope. Both have the same name.
pub(super) struct ScopeQuota {
    pub(super) scope: String,
    pub(super) quota: QuotaId,
}

/// All quotas.
pub(super) struct Quotas {
    /// The quotas, those of scopes last.
    pub(super) quotas: Vec<Quota>,
    pub(super) scope_quotas: Vec<ScopeQuota>,
    /// Credential that names customers; `None` if no quota counts by customer.
    pub(super) customer: Option<CustomerSource>,
}

/// Returns all quotas.
pub(super) fn quotas(
    raw: &NamedMap<Keys>,
    scopes: &NamedMap<Scope>,
    classes: &[Class],
    report: &mut Diagnostics,
) -> Quotas {
    let mut quotas: Vec<Quota> = Vec::new();
    let mut scope_quotas = Vec::new();
    let mut customer = None;
    for (name, keys) in &raw.0 {
        let path = SettingPath::of_quota(name);
        report.check_name(&path, name);
        let (quota, source) = quota(name, keys, &path, classes, report);
        quotas.push(quota);
        if customer.is_some() && source.is_some() && source != customer {
            let message = "another quota names the customer in another way";
            report.error(&path.per(), message, "use the same api_key, header or cookie for all quotas of customers");
        }
        customer = customer.or(source);
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
        if keys.per.is_some() {
            let hint = "write it at a quota, and give the routes of the scope a cost in it";
            report.error(&path.per(), "the quota of a scope is for all requests together", hint);
        }
        quotas.push(quota(name, keys, &path, classes, report).0);
    }
    report.check_len(&SettingPath::ROOT.quotas(), "quotas", quotas.len(), MAX_QUOTAS, "merge some");
    Quotas { quotas, scope_quotas, customer }
}
