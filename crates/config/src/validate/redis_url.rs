//! URL of a Redis server.

use crate::authority;
use crate::number;
use crate::settings::RedisAddress;
use tidegate_policy::secret::Secret;

pub(super) const EXAMPLE: &str = "write it like redis://:${REDIS_PASSWORD}@10.0.0.5:6379";
const SENTINEL_EXAMPLE: &str = "write it like redis+sentinel://10.0.0.5,10.0.0.6,10.0.0.7/mymaster";
const UNIX_EXAMPLE: &str = "write it like unix:///run/redis.sock";

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;
/// Upper bound of Sentinels, of which one is asked per attempt.
const MAX_SENTINELS: usize = 16;

/// What a URL says about a server.
pub(super) struct RedisUrl {
    pub(super) address: RedisAddress,
    /// True if the server, and its Sentinels, are reached over TLS.
    pub(super) has_tls: bool,
    /// User name, if it is not the default user.
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) database: u32,
}

/// Message and hint. Neither contains a part of the URL, which may be a password.
type Problem = (&'static str, &'static str);

impl Default for RedisUrl {
    /// Returns a placeholder for a URL that is missing or has an error.
    fn default() -> Self {
        let address = RedisAddress::Tcp(String::new(), DEFAULT_PORT);
        Self { address, has_tls: false, user: None, password: None, database: 0 }
    }
}

impl RedisUrl {
    /// Parses a URL.
    pub(super) fn parse(url: &str) -> Result<Self, Problem> {
        let (scheme, rest) = url.split_once(':').ok_or(("unsupported scheme", EXAMPLE))?;
        // As in `origin.url`, a socket may be written as unix:/PATH.
        let rest = match rest.strip_prefix("//") {
            Some(rest) => rest,
            None if scheme.ends_with("unix") => rest,
            None => return Err(("unsupported scheme", EXAMPLE)),
        };
        let (credentials, rest) = match rest.rsplit_once('@') {
            Some((credentials, rest)) => (Some(credentials), rest),
            None => (None, rest),
        };
        let (address, database) = match scheme {
            "redis" | "valkey" | "rediss" | "valkeys" => server(rest)?,
            "redis+sentinel" | "valkey+sentinel" | "rediss+sentinel" | "valkeys+sentinel" => sentinels(rest)?,
            "unix" | "redis+unix" | "valkey+unix" => socket(rest)?,
            _ => return Err(("unsupported scheme", EXAMPLE)),
        };
        let (user, password) = credentials.map(user_and_password).transpose()?.unwrap_or_default();
        let has_tls = scheme.starts_with("rediss") || scheme.starts_with("valkeys");
        Ok(Self { address, has_tls, user, password, database })
    }
}

fn server(rest: &str) -> Result<(RedisAddress, u32), Problem> {
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    refuse_parameters(rest)?;
    let (host, port) = host_and_port(address, DEFAULT_PORT).ok_or(("missing or invalid host or port", EXAMPLE))?;
    Ok((RedisAddress::Tcp(host, port), database(path)?))
}

fn sentinels(rest: &str) -> Result<(RedisAddress, u32), Problem> {
    refuse_parameters(rest)?;
    let (hosts, path) = rest.split_once('/').ok_or(("missing name of the primary", SENTINEL_EXAMPLE))?;
    let (primary, number) = path.split_once('/').unwrap_or((path, ""));
    if primary.is_empty() || !primary.bytes().all(is_plain) {
        return Err(("missing or invalid name of the primary", SENTINEL_EXAMPLE));
    }
    let sentinels = hosts.split(',').map(|address| host_and_port(address, DEFAULT_SENTINEL_PORT));
    let sentinels = sentinels.collect::<Option<Vec<_>>>();
    let sentinels = sentinels.ok_or(("missing or invalid host or port of a Sentinel", SENTINEL_EXAMPLE))?;
    if sentinels.len() > MAX_SENTINELS {
        return Err(("more than 16 Sentinels", "name those that are nearest"));
    }
    Ok((RedisAddress::Sentinel { sentinels, primary: primary.to_owned() }, database(number)?))
}

fn socket(rest: &str) -> Result<(RedisAddress, u32), Problem> {
    let (path, number) = match rest.split_once('?') {
        None => (rest, ""),
        Some((path, parameter)) => match parameter.strip_prefix("db=") {
            Some(number) => (path, number),
            None => return Err(("unknown parameter", "write none but ?db=NUMBER")),
        },
    };
    if !path.starts_with('/') || path.len() == 1 || path.contains('#') {
        return Err(("missing or invalid path of a socket", UNIX_EXAMPLE));
    }
    let path = percent_decode(path).ok_or(("invalid percent-encoding or UTF-8 in the path", UNIX_EXAMPLE))?;
    Ok((RedisAddress::Unix(path.into()), database(number)?))
}

fn refuse_parameters(rest: &str) -> Result<(), Problem> {
    match rest.contains(['?', '#']) {
        true => Err(("parameters are not supported", "leave out ? or # and the text after it")),
        false => Ok(()),
    }
}

fn database(digits: &str) -> Result<u32, Problem> {
    let number = if digits.is_empty() { Some(0) } else { number::whole(digits) };
    number.ok_or(("invalid database number", "write it like redis://host/0"))
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}

fn host_and_port(address: &str, default_port: u16) -> Option<(String, u16)> {
    let (host, port) = authority::parse(address.strip_suffix(':').unwrap_or(address)).ok()?;
    Some((host, port.unwrap_or(default_port)))
}

fn user_and_password(credentials: &str) -> Result<(Option<String>, Option<Secret>), Problem> {
    let (user, password) = credentials
        .split_once(':')
        .ok_or(("user without a password", "write it like redis://user:password@host, or :password@host"))?;
    let invalid = ("invalid percent-encoding or UTF-8 in the user or password", "write % as %25");
    let (user, password) = (percent_decode(user).ok_or(invalid)?, percent_decode(password).ok_or(invalid)?);
    Ok((Some(user).filter(|user| !user.is_empty() && user != "default"), Some(Secret::new(password))))
}

/// Decodes percent-encoding, such as `%40` for `@`. Returns `None` if it is invalid or not UTF-8.
fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let (digits, after) = after.split_at_checked(2)?;
            let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.contains('+'))?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
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
    fn url_is_parsed() {
        let read = |url: &str| {
            let parsed = RedisUrl::parse(url).unwrap_or_else(|(message, _)| panic!("{url}: {message}"));
            let password = parsed.password.map(|password| password.expose_secret().to_owned()).unwrap_or_default();
            let tls = if parsed.has_tls { " TLS" } else { "" };
            let user = parsed.user.unwrap_or_default();
            format!("{} {}{tls} {user} {password}", parsed.address, parsed.database)
        };
        for (url, expected) in [
            ("redis://Host", "host:6379 0  "),
            ("valkey://10.0.0.5:7000/3", "10.0.0.5:7000 3  "),
            ("redis://[::1]:7000/", "[::1]:7000 0  "),
            ("redis://:se%40cr/e:t@host", "host:6379 0  se@cr/e:t"),
            ("redis://gate:pass@host:1", "host:1 0 gate pass"),
            ("redis://default:pass@host", "host:6379 0  pass"),
            ("rediss://host:6380", "host:6380 0 TLS  "),
            ("valkeys://gate:p@[::1]/2", "[::1]:6379 2 TLS gate p"),
            ("unix:///run/redis.sock", "/run/redis.sock 0  "),
            ("unix:/run/redis.sock", "/run/redis.sock 0  "),
            ("redis+unix://:p@/run/a%20b.sock?db=4", "/run/a b.sock 4  p"),
            ("redis+sentinel://a,b:1,[::1]/mymaster", "mymaster of Sentinel a:26379, b:1, [::1]:26379 0  "),
            ("rediss+sentinel://u:p@a:5/m_1.x-y/7", "m_1.x-y of Sentinel a:5 7 TLS u p"),
        ] {
            assert_eq!(read(url), expected, "{url}");
        }
    }

    #[test]
    fn errors_omit_the_password() {
        for (url, expected) in [
            ("http://host", "unsupported scheme"),
            ("host:6379", "unsupported scheme"),
            ("redis:host", "unsupported scheme"),
            ("redis://", "missing or invalid host or port"),
            ("redis://a b", "missing or invalid host or port"),
            ("redis://a,b", "missing or invalid host or port"),
            ("redis://[::1", "missing or invalid host or port"),
            ("redis://[::1]x", "missing or invalid host or port"),
            ("redis://host:0", "missing or invalid host or port"),
            ("redis://host:+1", "missing or invalid host or port"),
            ("redis://host:65536", "missing or invalid host or port"),
            ("redis://host:06379", "missing or invalid host or port"),
            ("redis://10.0.0.256", "missing or invalid host or port"),
            ("redis://a..b", "missing or invalid host or port"),
            ("redis://host/01", "invalid database number"),
            ("redis+sentinel://a,1.2.3/m", "missing or invalid host or port of a Sentinel"),
            ("redis://host/db", "invalid database number"),
            ("redis://host/+1", "invalid database number"),
            ("redis://host?x=1", "parameters are not supported"),
            ("redis://secret@host", "user without a password"),
            ("redis://:secret%zz@host", "invalid percent-encoding or UTF-8 in the user or password"),
            ("unix://", "missing or invalid path of a socket"),
            ("unix:///", "missing or invalid path of a socket"),
            ("unix://run/redis.sock", "missing or invalid path of a socket"),
            ("unix:///run/redis.sock?password=secret", "unknown parameter"),
            ("unix:///run/redis.sock?db=x", "invalid database number"),
            ("redis+sentinel://a", "missing name of the primary"),
            ("redis+sentinel://a/", "missing or invalid name of the primary"),
            ("redis+sentinel://a/m%20", "missing or invalid name of the primary"),
            ("redis+sentinel:///m", "missing or invalid host or port of a Sentinel"),
            ("redis+sentinel://a,,b/m", "missing or invalid host or port of a Sentinel"),
            ("redis+sentinel://a/m/x", "invalid database number"),
            ("redis+sentinel://a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a/m", "more than 16 Sentinels"),
        ] {
            let Err((message, hint)) = RedisUrl::parse(url) else { panic!("{url} is accepted") };
            assert_eq!(message, expected, "{url}");
            assert!(!format!("{message}{hint}").contains("secret"));
        }
    }
}
