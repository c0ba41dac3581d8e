//! How long a robots.txt may be served without asking the origin again (RFC 9309 section 2.4, RFC 9111 section 5.2).

use std::time::Duration;

/// Where the origin says nothing.
const DEFAULT_TTL: Duration = Duration::from_secs(60 * 60);
/// Crawlers should not keep one for longer than a day, and nor do we.
const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// How long an answer with these `Cache-Control` fields is fresh; `None` where it must not be kept at all.
pub fn fresh_for<'f>(cache_control: impl Iterator<Item = &'f [u8]>) -> Option<Duration> {
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

/// How long ours is, which no header speaks for.
pub(super) const OVERRIDE_TTL: Duration = DEFAULT_TTL;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_says_how_long_within_a_day() {
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
            let told = fresh_for([field.as_bytes()].into_iter());
            assert_eq!(told, seconds.map(Duration::from_secs), "{field}");
        }
    }
}
