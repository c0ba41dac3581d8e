//! Settings of a policy that no log can test.

use tidegate_config::{SettingPath, Settings};
use tidegate_policy::Rules;
use tidegate_policy::identity::KeySource;

/// Returns a line for each setting, starting with its key.
pub(super) fn unsupported(settings: &Settings) -> Vec<String> {
    let rules = &settings.rules;
    let quotas = rules.quotas.iter().filter(|quota| quota.sync_from.is_some());
    let paths = quotas.map(|quota| SettingPath::of_quota(&quota.name).sync_from());
    let synced = paths.map(|path| format!("{path}: the origin's counter is copied from the gateway's log"));
    let scopes = (!rules.scopes.is_empty()).then(|| {
        "scopes: no request waits here; refusals by throttle and backoff are copied from the gateway's log".to_owned()
    });
    let credentials = uses_credentials(rules)
        .then(|| "classes by key, cookie or header: only the gateway's own log contains them".to_owned());
    let dns = settings
        .verify
        .dns
        .is_some()
        .then(|| "verify.dns: no name is resolved; results are copied from the gateway's log".to_owned());
    let cache = settings.cache.map(|_| {
        "cache: simulated unless the log names its results; a log shows neither cookies nor response fields, so no \
         request has a cookie, every response with a storable status is stored, and a stale one is fetched whole"
            .to_owned()
    });
    synced.chain(scopes).chain(cache).chain(credentials).chain(dns).collect()
}

/// Returns true if the buckets of a class depend on credentials, which only the gateway's own log contains.
fn uses_credentials(rules: &Rules) -> bool {
    rules.classes.iter().any(|class| matches!(class.key, KeySource::Credential(_)) || class.matcher.keys.is_some())
}
