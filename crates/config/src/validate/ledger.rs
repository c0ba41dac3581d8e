//! Validates `ledger`.

use super::diagnostics::Diagnostics;
use crate::raw::ledger as raw;
use crate::setting_path::SettingPath;
use crate::settings::{Ledger, LedgerFailureMode, Redis};
use tidegate_policy::Units;
use tidegate_policy::quota::Quota;
use tidegate_policy::secret::Secret;

const DEFAULT_PORT: u16 = 6379;
const EXAMPLE: &str = "write it like redis://:${REDIS_PASSWORD}@10.0.0.5:6379";
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
    let mut redis = match raw_redis.url.as_ref().map(|url| parse_redis_url(&url.0)) {
        Some(Ok(redis)) => redis,
        Some(Err((message, hint))) => {
            report.error(&path.url(), message, hint);
            placeholder_redis()
        }
        None => {
            report.error(&path.url(), "missing", EXAMPLE);
            placeholder_redis()
        }
    };
    if let Some(prefix) = &raw_redis.prefix {
        report.check_name(&path.prefix(), prefix);
        redis.prefix.clone_from(prefix);
    }
    redis.failure_mode = match raw_redis.failure_mode {
        raw::LedgerFailureMode::Refuse => LedgerFailureMode::Refuse,
        raw::LedgerFailureMode::Fallback => LedgerFailureMode::Fallback,
    };
    for quota in quotas.iter().filter(|quota| quota.limit > MAX_REDIS_LIMIT) {
        report.error(
            &SettingPath::of_quota(&quota.name).limit(),
            format!("{} exceeds the maximum of Redis", quota.limit),
            format!("write at most {MAX_REDIS_LIMIT}, or leave out ledger.redis"),
        );
    }
    Ledger::Redis(redis)
}

fn placeholder_redis() -> Redis {
    let (prefix, when_lost) = ("tidegate".into(), LedgerFailureMode::Refuse);
    Redis {
        host: String::new(),
        port: DEFAULT_PORT,
        user: None,
        password: None,
        database: 0,
        prefix,
        failure_mode: when_lost,
    }
}

/// Parses a Redis URL. `Err` is the message and the hint, without the URL, which may contain a password.
fn parse_redis_url(url: &str) -> Result<Redis, (&'static str, &'static str)> {
    if url.starts_with("rediss://") || url.starts_with("valkeys://") {
        return Err((
            "TLS to Redis is not supported in this version",
            "use redis:// over a network that you trust, or a tunnel such as stunnel on this host",
        ));
    }
    if url.starts_with("unix:") || url.starts_with("redis+unix:") {
        return Err(("Unix sockets are not supported in this version", "use redis:// with a host"));
    }
    let Some(rest) = url.strip_prefix("redis://").or_else(|| url.strip_prefix("valkey://")) else {
        return Err(("unsupported scheme", EXAMPLE));
    };
    let (credentials, rest) = match rest.rsplit_once('@') {
        Some((credentials, rest)) => (Some(credentials), rest),
        None => (None, rest),
    };
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    if rest.contains(['?', '#']) {
        return Err(("parameters are not supported", "leave out ? or # and the text after it"));
    }
    let database = match path {
        "" => 0,
        digits => digits.parse::<u32>().map_err(|_| ("invalid database number", "write it like redis://host/0"))?,
    };
    let (host, port) = match address.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((host, port))) if host.parse::<std::net::Ipv6Addr>().is_ok() => (host, port),
        Some(_) => return Err(("missing or invalid host", EXAMPLE)),
        None => address.find(':').map_or((address, ""), |colon| address.split_at(colon)),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':');
    if host.is_empty() || !host.bytes().all(plain) {
        return Err(("missing or invalid host", EXAMPLE));
    }
    let port = match port.strip_prefix(':').unwrap_or(port) {
        "" => DEFAULT_PORT,
        digits => match digits.parse::<u16>() {
            Ok(port) if port > 0 => port,
            _ => return Err(("invalid port, needs 1 to 65535", EXAMPLE)),
        },
    };
    let mut redis = placeholder_redis();
    (redis.host, redis.port, redis.database) = (host.to_ascii_lowercase(), port, database);
    if let Some(credentials) = credentials {
        let (user, password) = credentials
            .split_once(':')
            .ok_or(("user without a password", "write it like redis://user:password@host, or :password@host"))?;
        let invalid = ("invalid percent-encoding or UTF-8 in the user or password", "write % as %25");
        let (user, password) = (percent_decode(user).ok_or(invalid)?, percent_decode(password).ok_or(invalid)?);
        redis.user = Some(user).filter(|user| !user.is_empty() && user != "default");
        redis.password = Some(Secret::new(password));
    }
    Ok(redis)
}

/// Decodes percent-encoding, such as `%40` for `@`. Returns `None` if it is invalid or not UTF-8.
fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let (digits, after) = after.split_at_checked(2)?;
            let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.contains('+'))?;
            bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))?);
            rest = after;
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_url_is_parsed() {
        let read = |url: &str| {
            let redis = parse_redis_url(url).unwrap_or_else(|(message, _)| panic!("{url}: {message}"));
            let password = redis.password.map(|password| password.expose_secret().to_owned()).unwrap_or_default();
            format!("{} {} {} {} {password}", redis.host, redis.port, redis.database, redis.user.unwrap_or_default())
        };
        assert_eq!(read("redis://Host"), "host 6379 0  ");
        assert_eq!(read("valkey://10.0.0.5:7000/3"), "10.0.0.5 7000 3  ");
        assert_eq!(read("redis://[::1]:7000/"), "::1 7000 0  ");
        assert_eq!(read("redis://:se%40cr/e:t@host"), "host 6379 0  se@cr/e:t");
        assert_eq!(read("redis://gate:pass@host:1"), "host 1 0 gate pass");
        assert_eq!(read("redis://default:pass@host"), "host 6379 0  pass");
    }

    #[test]
    fn redis_url_errors_omit_the_password() {
        for (url, expected) in [
            ("rediss://host", "TLS to Redis is not supported in this version"),
            ("unix:///run/redis.sock", "Unix sockets are not supported in this version"),
            ("http://host", "unsupported scheme"),
            ("redis://", "missing or invalid host"),
            ("redis://a b", "missing or invalid host"),
            ("redis://[::1", "missing or invalid host"),
            ("redis://host:0", "invalid port, needs 1 to 65535"),
            ("redis://host/db", "invalid database number"),
            ("redis://host?x=1", "parameters are not supported"),
            ("redis://secret@host", "user without a password"),
            ("redis://:secret%zz@host", "invalid percent-encoding or UTF-8 in the user or password"),
        ] {
            let (message, hint) = parse_redis_url(url).expect_err(url);
            assert_eq!(message, expected, "{url}");
            assert!(!format!("{message}{hint}").contains("secret"));
        }
    }
}
