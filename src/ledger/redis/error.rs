//! What can go wrong with a Redis, in words that say what to do.

use super::endpoint::RedisEndpoint;
use crate::ledger::StoreError;
use std::fmt::Display;

pub(super) fn unreachable(server: &RedisEndpoint, why: impl Display) -> StoreError {
    StoreError::Unreachable(format!("{server}: {why}"))
}

pub(super) fn refused(server: &RedisEndpoint, why: impl Display) -> StoreError {
    StoreError::Refused(format!("{server}: {why}"))
}

/// What a server meant by an error that it `told`.
pub(super) fn from_server(server: &RedisEndpoint, told: &str) -> StoreError {
    let shown: String = told.chars().filter(|sign| !sign.is_control()).take(200).collect();
    // A script is long, and long words from strangers are cut off before they are understood.
    let told = if told.contains("unauthenticated") { "NOAUTH" } else { told };
    match told.split(' ').next().unwrap_or_default() {
        "NOAUTH" | "WRONGPASS" => refused(server, "it wants another user or password than ledger.redis.url has"),
        "NOPERM" => refused(server, format!("its access list keeps us out ({shown})")),
        "OOM" => refused(server, "it has no memory left (maxmemory is reached): nothing is leased until it has"),
        "READONLY" => refused(server, "it is a read-only replica; give the address of the primary in ledger.redis.url"),
        // All of them end by themselves.
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "MISCONF" | "NOREPLICAS" => {
            unreachable(server, shown)
        }
        _ => refused(server, shown),
    }
}

/// Where a cluster says that the key lies.
pub(super) fn parse_redirect(told: &str) -> Option<(&str, u16)> {
    let address = told.strip_prefix("MOVED ")?.split(' ').nth(1)?;
    let (host, port) = address.rsplit_once(':')?;
    Some((host.trim_start_matches('[').trim_end_matches(']'), port.parse().ok()?)).filter(|(host, _)| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_says_where_a_key_lies() {
        assert_eq!(parse_redirect("MOVED 3999 127.0.0.1:6381"), Some(("127.0.0.1", 6381)));
        assert_eq!(parse_redirect("MOVED 3999 [::1]:6381"), Some(("::1", 6381)));
        for other in ["MOVED 3999 :6381", "MOVED 3999 a:x", "MOVED", "ERR MOVED 1 a:1", ""] {
            assert_eq!(parse_redirect(other), None, "{other}");
        }
    }
}
