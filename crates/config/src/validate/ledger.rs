//! Validates `ledger`.

use super::diagnostics::Diagnostics;
use super::redis_url::{EXAMPLE, RedisUrl};
use super::server::secret;
use crate::raw::ledger as raw;
use crate::setting_path::SettingPath;
use crate::settings::{Ledger, Redis, RedisTls};
use tidegate_policy::Units;
use tidegate_policy::quota::Quota;

/// Maximum limit of a quota in Redis. Its scripts use floating point and would lose thousandths beyond it.
const MAX_REDIS_LIMIT: Units = Units::from_milli(1 << 53);

pub(super) fn ledger(raw: &raw::Ledger, quotas: &[Quota], report: &mut Diagnostics) -> Ledger {
    let shared = match raw {
        raw::Ledger::File => return Ledger::File,
        raw::Ledger::Memory => return Ledger::Memory,
        raw::Ledger::Shared(shared) => shared,
    };
    let Some(raw_redis) = &shared.redis else {
        report.error(&SettingPath::ROOT.ledger(), "is empty", "use file, memory or { redis: { url: redis://HOST } }");
        return Ledger::File;
    };
    let path = SettingPath::ROOT.ledger().redis();
    let url = match raw_redis.url.as_ref().map(|url| RedisUrl::parse(url.0.expose_secret())) {
        Some(Ok(url)) => url,
        Some(Err((message, hint))) => {
            report.error(&path.url(), message, hint);
            RedisUrl::default()
        }
        None => {
            report.error(&path.url(), "missing", EXAMPLE);
            RedisUrl::default()
        }
    };
    report.check_name(&path.prefix(), &raw_redis.prefix);
    let ca = raw_redis.ca.as_ref().map(|file| report.beside_file(file));
    if ca.is_some() && !url.has_tls {
        report.error(&path.ca(), "is not used without TLS", "write ledger.redis.url with rediss://, or leave out ca");
    }
    let redis = Redis {
        address: url.address,
        tls: url.has_tls.then_some(RedisTls { ca }),
        user: url.user,
        password: url.password,
        database: url.database,
        prefix: raw_redis.prefix.clone(),
        certificate_secret: secret(&path.certificate_secret(), raw_redis.certificate_secret.as_ref(), report),
        failure_mode: raw_redis.failure_mode,
    };
    for quota in quotas.iter().filter(|quota| quota.budget.is_some()) {
        let message = "each gateway would count the budgets on its own, so that a key had that many times its limit";
        let hint = "leave out ledger.redis, or let one gateway count the budgets";
        report.contradiction(&SettingPath::of_quota(&quota.name).per(), std::slice::from_ref(&path), message, hint);
    }
    for quota in quotas.iter().filter(|quota| quota.limit > MAX_REDIS_LIMIT) {
        report.error(
            &SettingPath::of_quota(&quota.name).limit(),
            format!("{} exceeds the maximum of Redis", quota.limit),
            format!("write at most {MAX_REDIS_LIMIT}, or leave out ledger.redis"),
        );
    }
    Ledger::Redis(redis)
}
