//! Errors of a Redis server, with hints.

use super::endpoint::{HostPort, RedisEndpoint};
use crate::ledger::StoreError;
use redis::{ErrorKind, RedisError, ServerError};
use std::fmt::Display;
use std::io;
use std::time::Duration;

pub(super) fn unreachable(server: &RedisEndpoint, reason: impl Display) -> StoreError {
    StoreError::Unreachable(format!("{server}: {reason}"))
}

pub(super) fn refused(server: &RedisEndpoint, reason: impl Display) -> StoreError {
    StoreError::Refused(format!("{server}: {reason}"))
}

/// Hint at a server that does not complete a TLS handshake.
const NO_TLS: &str = "; the port may not speak TLS: if it does not, write redis:// in place of rediss://";

/// Converts an error of a new connection, before the protocol of Redis.
pub(super) fn from_stream(server: &RedisEndpoint, error: &io::Error) -> StoreError {
    let text = error.to_string();
    // Without TLS, the server responds in plain text or closes the connection.
    let is_plain = text.contains("InvalidContentType") || error.kind() == io::ErrorKind::UnexpectedEof;
    let hint = match text.contains("UnknownIssuer") {
        true => "; name the file of its authority in ledger.redis.ca",
        false if is_plain && server.tls.is_some() => NO_TLS,
        false => "",
    };
    unreachable(server, format!("{text}{hint}"))
}

/// Returns the error of a server that did not complete a handshake within `limit`. `is_accepted` is true if it accepted a
/// connection.
pub(super) fn timed_out(server: &RedisEndpoint, limit: Duration, is_accepted: bool) -> StoreError {
    let hint = match (is_accepted, server.tls.is_some()) {
        (false, _) => "",
        (true, true) => NO_TLS,
        (true, false) => {
            "; the port accepts connections, but does not respond: if it expects TLS, write rediss:// in place of redis://"
        }
    };
    unreachable(server, format!("connect timed out after {limit:?}{hint}"))
}

/// Returns the error of a Sentinel whose address was written like that of a server.
pub(super) fn sentinel(server: &RedisEndpoint) -> StoreError {
    let scheme = if server.tls.is_some() { "rediss" } else { "redis" };
    let address = &server.address;
    refused(server, format!("is a Sentinel; write {scheme}+sentinel://{address}/PRIMARY, with the name of the primary"))
}

/// Returns the reason of an error, without `server`.
pub(super) fn reason(server: &RedisEndpoint, error: &StoreError) -> String {
    let (StoreError::Unreachable(text) | StoreError::Refused(text)) = error else { return error.to_string() };
    text.strip_prefix(&format!("{server}: ")).unwrap_or(text).to_owned()
}

/// Converts an error of the client. The reply to a password is not logged: some servers repeat arguments that they cannot
/// parse.
pub(super) fn from_client(server: &RedisEndpoint, error: &RedisError) -> StoreError {
    match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) => refused(server, AUTHENTICATION),
        (ErrorKind::Io, _) => unreachable(server, error),
        (_, Some(code)) => from_reply(server, code, error.detail().unwrap_or_default()),
        _ => refused(server, error),
    }
}

/// Converts an error of the client before it has had any reply.
pub(super) fn from_handshake(server: &RedisEndpoint, error: &RedisError) -> StoreError {
    match error.kind() == ErrorKind::Parse || error.is_connection_dropped() {
        true => {
            unreachable(server, "closes new connections; is this the port of Redis, and TLS on both sides or on none?")
        }
        false => from_client(server, error),
    }
}

/// Converts an error reply of a server.
pub(super) fn from_server(server: &RedisEndpoint, error: &ServerError) -> StoreError {
    from_reply(server, error.code(), error.details().unwrap_or_default())
}

const AUTHENTICATION: &str = "authentication required or failed; check user and password in ledger.redis.url";

fn from_reply(server: &RedisEndpoint, code: &str, detail: &str) -> StoreError {
    let excerpt: String = format!("{code} {detail}").chars().filter(|c| !c.is_control()).take(200).collect();
    match code {
        "NOAUTH" | "WRONGPASS" => refused(server, AUTHENTICATION),
        // Servers limit the length of arguments before authentication. The script exceeds it, so the error is another one.
        _ if detail.contains("unauthenticated") => refused(server, AUTHENTICATION),
        _ if code == "ERR" && detail.contains("unknown command 'SENTINEL'") => {
            refused(server, "is no Sentinel; write its address as redis:// or rediss://")
        }
        "NOPERM" => refused(server, format!("permission denied by ACL ({excerpt})")),
        "OOM" => refused(server, "out of memory (maxmemory reached): no leases until memory is free"),
        "READONLY" => refused(server, "read-only replica; set ledger.redis.url to the primary, or to its Sentinels"),
        // These errors end without an intervention.
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "MISCONF" | "NOREPLICAS" => {
            unreachable(server, excerpt)
        }
        _ => refused(server, excerpt),
    }
}

/// Returns the node to which a cluster redirects a key, or `None` for any other error.
pub(super) fn redirect(error: &ServerError) -> Option<HostPort> {
    let address = error.details().filter(|_| error.code() == "MOVED")?.split(' ').nth(1)?;
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some(HostPort { host: host.to_owned(), port: port.parse().ok()? }).filter(|node| !node.host.is_empty())
}

/// Returns TLS that trusts no server.
#[cfg(test)]
pub(super) fn tls_connector() -> tokio_rustls::TlsConnector {
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};
    let config = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    std::sync::Arc::new(config).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::Value;

    fn reply(message: &str) -> ServerError {
        match redis::parse_redis_value(format!("-{message}\r\n").as_bytes()) {
            Ok(Value::ServerError(error)) => error,
            other => panic!("{message} is an error: {other:?}"),
        }
    }

    #[test]
    fn only_errors_that_end_by_themselves_count_as_unreachable() {
        let server = RedisEndpoint::local(1);
        let converted = |message: &str| match from_server(&server, &reply(message)) {
            StoreError::Unreachable(text) => (true, text),
            error => (false, error.to_string()),
        };
        let temporary = ["LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MISCONF", "NOREPLICAS"];
        for (word, is_temporary) in temporary.map(|word| (word, true)).into_iter().chain([("ERR", false)]) {
            let expected = (is_temporary, format!("redis at 127.0.0.1:1: {word} some[31mthing"));
            assert_eq!(converted(&format!("{word} some\x1b[31mthing\0")), expected);
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
    fn timeout_of_a_port_that_accepts_connections_has_a_hint_at_tls() {
        let plain = RedisEndpoint::local(1);
        let tls = RedisEndpoint { tls: Some(tls_connector()), ..plain.clone() };
        let error = |server, is_accepted| timed_out(server, Duration::from_millis(250), is_accepted).to_string();
        let bare = "cannot reach redis at 127.0.0.1:1: connect timed out after 250ms";
        assert_eq!([error(&plain, false), error(&tls, false)], [bare, bare]);
        assert!(error(&plain, true).ends_with("if it expects TLS, write rediss:// in place of redis://"));
        assert!(error(&tls, true).ends_with("may not speak TLS: if it does not, write redis:// in place of rediss://"));
    }

    #[test]
    fn unknown_authority_has_a_hint_at_its_key() {
        let error = io::Error::other("invalid peer certificate: UnknownIssuer");
        let text = from_stream(&RedisEndpoint::local(1), &error).to_string();
        assert!(text.ends_with("UnknownIssuer; name the file of its authority in ledger.redis.ca"), "{text}");
    }

    #[test]
    fn moved_error_contains_the_node_address() {
        let node = |message: &str| redirect(&reply(message)).map(|node| node.to_string());
        assert_eq!(node("MOVED 3999 127.0.0.1:6381").as_deref(), Some("127.0.0.1:6381"));
        assert_eq!(node("MOVED 3999 [::1]:6381").as_deref(), Some("[::1]:6381"));
        for other in ["MOVED 3999 :6381", "MOVED 3999 a:x", "MOVED", "ERR MOVED 1 a:1"] {
            assert_eq!(node(other), None, "{other}");
        }
    }
}
