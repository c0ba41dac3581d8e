//! Freshness lifetime of a robots.txt (RFC 9309 section 2.4, RFC 9111 section 5.2).

use std::time::Duration;
use tidegate_http_cache::ResponseDirectives;

/// Lifetime without `Cache-Control`.
const DEFAULT_TTL: Duration = Duration::from_secs(60 * 60);
/// Maximum lifetime: crawlers should not cache a robots.txt for more than a day (RFC 9309 section 2.4).
const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the freshness lifetime for these `Cache-Control` fields, or `None` if the response must not be stored.
pub fn ttl_from_cache_control<'f>(cache_control: impl Iterator<Item = &'f [u8]>) -> Option<Duration> {
    let directives = ResponseDirectives::of_cache_control(cache_control);
    if directives.no_store || directives.private {
        return None;
    }
    let stated = directives.s_maxage.or(directives.max_age);
    let stated = if directives.no_cache { Some(Duration::ZERO) } else { stated };
    Some(stated.unwrap_or(DEFAULT_TTL).min(MAX_TTL))
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
            ("no-cache, s-maxage=60", Some(0)),
            ("max-age=60, max-age=600", Some(60)),
            ("max-age=99999999999999999999", Some(86_400)),
            ("no-store", None),
            ("max-age=60, private", None),
        ] {
            let lifetime = ttl_from_cache_control([field.as_bytes()].into_iter());
            assert_eq!(lifetime, seconds.map(Duration::from_secs), "{field}");
        }
    }
}
