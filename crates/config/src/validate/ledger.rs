//! Validates `ledger`.

use super::diagnostics::Diagnostics;
use super::redis_url::{EXAMPLE, RedisUrl};
use super::server::secret;
use crate::raw::{File, ledger as raw};
use crate::scalars::Amount;
use crate::serde_forms::NamedMap;
use crate::setting_path::SettingPath;
use crate::settings::{Ledger, Redis, RedisTls};
use tidegate_policy::Units;
use tidegate_policy::quota::Quota;

/// Maximum limit of a quota in Redis. Its scripts use floating point and would lose thousandths beyond it.
const MAX_REDIS_LIMIT: Units = Units::from_milli(1 << 53);

pub(super) fn ledger(file: &File, quotas: &[Quota], report: &mut Diagnostics) -> Ledger {
    let shared = match &file.ledger {
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
    check_limits(file, quotas, report);
    Ledger::Redis(redis)
}

/// Reports limits of quotas, classes and keys that Redis cannot represent.
fn check_limits(file: &File, quotas: &[Quota], report: &mut Diagnostics) {
    let of_quotas = quotas.iter().map(|quota| (SettingPath::of_quota(&quota.name).limit(), quota.limit));
    let of_classes = file.quotas.0.iter().flat_map(|(name, quota)| limits(SettingPath::of_quota(name), &quota.limits));
    let keys = file.api_keys.0.iter().enumerate();
    let of_keys = keys.flat_map(|(index, key)| limits(SettingPath::ROOT.api_keys().index(index), &key.limits));
    for (path, limit) in of_quotas.chain(of_classes).chain(of_keys).filter(|(_, limit)| *limit > MAX_REDIS_LIMIT) {
        let hint = format!("write at most {MAX_REDIS_LIMIT}, or leave out ledger.redis");
        report.error(&path, format!("{limit} exceeds the maximum of Redis"), hint);
    }
}

fn limits(path: SettingPath, limits: &NamedMap<Amount>) -> impl Iterator<Item = (SettingPath, Units)> {
    limits.0.iter().map(move |(name, Amount(limit))| (path.limits().entry(name), *limit))
}
