//! Errors of a Redis server, with hints.

use super::endpoint::RedisEndpoint;
use crate::ledger::StoreError;
use std::fmt::Display;

pub(super) fn unreachable(server: &RedisEndpoint, reason: impl Display) -> StoreError {
    StoreError::Unreachable(format!("{server}: {reason}"))
}

pub(super) fn refused(server: &RedisEndpoint, reason: impl Display) -> StoreError {
    StoreError::Refused(format!("{server}: {reason}"))
}

/// Converts an error reply of a server.
pub(super) fn from_server(server: &RedisEndpoint, message: &str) -> StoreError {
    let excerpt: String = message.chars().filter(|c| !c.is_control()).take(200).collect();
    // Servers limit the length of arguments before authentication. The script exceeds it, so the error is another one.
    let message = if message.contains("unauthenticated") { "NOAUTH" } else { message };
    match message.split(' ').next().unwrap_or_default() {
        "NOAUTH" | "WRONGPASS" => {
            refused(server, "authentication required or failed; check user and password in ledger.redis.url")
        }
        "NOPERM" => refused(server, format!("permission denied by ACL ({excerpt})")),
        "OOM" => refused(server, "out of memory (maxmemory reached): no leases until memory is free"),
        "READONLY" => refused(server, "read-only replica; set ledger.redis.url to the primary"),
        // These errors end without an intervention.
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "MISCONF" | "NOREPLICAS" => {
            unreachable(server, excerpt)
        }
        _ => refused(server, excerpt),
    }
}

/// Returns the address to which a cluster redirects a key, or `None` for any other error.
pub(super) fn parse_redirect(message: &str) -> Option<(&str, u16)> {
    let address = message.strip_prefix("MOVED ")?.split(' ').nth(1)?;
    let (host, port) = address.rsplit_once(':')?;
    Some((host.trim_start_matches('[').trim_end_matches(']'), port.parse().ok()?)).filter(|(host, _)| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_that_end_by_themselves_count_as_unreachable() {
        let server = RedisEndpoint { host: "a".into(), port: 1, user: None, password: None, database: 0 };
        let converted = |message: &str| match from_server(&server, message) {
            StoreError::Unreachable(text) => (true, text),
            error => (false, error.to_string()),
        };
        let temporary = ["LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MISCONF", "NOREPLICAS"];
        for (word, is_temporary) in temporary.map(|word| (word, true)).into_iter().chain([("ERR", false), ("", false)])
        {
            let expected = (is_temporary, format!("redis at a:1: {word} some[31mthing"));
            assert_eq!(converted(&format!("{word} some\x1b[31m\r\nthing\0")), expected);
        }
        let hints = [
            ("NOAUTH Authentication required.", "check user and password"),
            ("WRONGPASS invalid", "check user and password"),
            ("ERR Protocol error: unauthenticated bulk length", "check user and password"),
            ("NOPERM no rights", "ACL (NOPERM no rights)"),
            ("OOM command not allowed", "out of memory"),
            ("READONLY You can't write", "set ledger.redis.url to the primary"),
        ];
        for (message, hint) in hints {
            let (is_temporary, text) = converted(message);
            assert!(!is_temporary && text.contains(hint), "{text}");
        }
    }

    #[test]
    fn moved_error_contains_the_node_address() {
        assert_eq!(parse_redirect("MOVED 3999 127.0.0.1:6381"), Some(("127.0.0.1", 6381)));
        assert_eq!(parse_redirect("MOVED 3999 [::1]:6381"), Some(("::1", 6381)));
        for other in ["MOVED 3999 :6381", "MOVED 3999 a:x", "MOVED", "ERR MOVED 1 a:1", ""] {
            assert_eq!(parse_redirect(other), None, "{other}");
        }
    }
}
