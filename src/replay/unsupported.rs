//! What of a policy no log can put to the test.

use crate::config::Settings;
use crate::policy::Rules;
use crate::policy::identity::KeySource;

/// Each of them, in a line that begins with its key.
pub(super) fn unsupported(settings: &Settings) -> Vec<String> {
    let rules = &settings.rules;
    let quotas = rules.quotas.iter().filter(|quota| quota.sync_from.is_some());
    let counted = quotas.map(|quota| {
        format!(
            "quotas.{}.sync_from: what the origin counted is followed as the gate logged it, not asked for",
            quota.name
        )
    });
    let scopes = (!rules.scopes.is_empty()).then(|| {
        "scopes: nobody waits for the origin here; refusals by throttle and backoff are taken as the gate logged them".to_owned()
    });
    let secrets = uses_credentials(rules)
        .then(|| "classes by key, cookie or header: only the gate's own log tells who had one".to_owned());
    let dns = settings
        .verify
        .dns
        .is_some()
        .then(|| "verify.dns: nobody is asked; names count where the gate logged what they proved".to_owned());
    counted.chain(scopes).chain(secrets).chain(dns).collect()
}

/// True where the buckets of a class go by what its clients send, which no log tells but the gate's own.
fn uses_credentials(rules: &Rules) -> bool {
    rules.classes.iter().any(|class| matches!(class.key, KeySource::Credential(_)) || class.when.keys.is_some())
}
