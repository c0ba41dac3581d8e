//! Freshness lifetime of a robots.txt (RFC 9309 section 2.4, RFC 9111 section 5.2).

use std::time::Duration;

/// Lifetime without `Cache-Control`.
const DEFAULT_TTL: Duration = Duration::from_secs(60 * 60);
/// Maximum lifetime: crawlers should not cache a robots.txt for more than a day (RFC 9309 section 2.4).
const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the freshness lifetime for these `Cache-Control` fields, or `None` if the response must not be stored.
pub fn ttl_from_cache_control<'f>(cache_control: impl Iterator<Item = &'f [u8]>) -> Option<Duration> {
    let (mut fresh_for, mut is_for_shared) = (DEFAULT_TTL, false);
    for directive in cache_control.flat_map(|field| field.split(|&byte| byte == b',')) {
        let directive = String::from_utf8_lossy(directive.trim_ascii()).to_ascii_lowercase();
        let (name, value) = directive.split_once('=').unwrap_or((&directive, ""));
        let seconds = || Duration::from_secs(value.trim_matches('"').parse().unwrap_or(0)).min(MAX_TTL);
        match name {
            "no-store" | "private" => return None,
            "no-cache" => (fresh_for, is_for_shared) = (Duration::ZERO, true),
            "s-maxage" => (fresh_for, is_for_shared) = (seconds(), true),
            "max-age" if !is_for_shared => fresh_for = seconds(),
            _ => {}
        }
    }
    Some(fresh_for)
}

/// Lifetime of the override file, which has no headers.
pub(super) const OVERRIDE_TTL: Duration = DEFAULT_TTL;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freshness_follows_cache_control_up_to_a_day() {
        for (field, seconds) in [
            ("", Some(3600)),
            ("public", Some(3600)),
            ("max-age=60", Some(60)),
            ("Max-Age=\"60\", must-revalidate", Some(60)),
            ("max-age=99999999999", Some(86_400)),
            ("max-age=soon", Some(0)),
            ("max-age=60, s-maxage=600", Some(600)),
            ("s-maxage=600, max-age=60", Some(600)),
            ("no-cache, max-age=60", Some(0)),
            ("no-store", None),
            ("max-age=60, private", None),
        ] {
            let lifetime = ttl_from_cache_control([field.as_bytes()].into_iter());
            assert_eq!(lifetime, seconds.map(Duration::from_secs), "{field}");
        }
    }
}
