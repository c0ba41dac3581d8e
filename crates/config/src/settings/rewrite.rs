//! Rewriting of the path that the origin of a route is sent.

use super::redirect::push_rest;
use std::fmt;
use tidegate_policy::path::{PathPolicy, PathReadings};

/// Path that the origin is sent in place of the client's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// Path without the placeholder of the rest, which every origin reads alike; ends with a slash where the rest is appended.
    pub target: String,
    /// Number of segments of the request path before the rest that is appended; `None` if none is.
    pub rest_after: Option<usize>,
}

impl Rewrite {
    /// Placeholder of the rest, at the end of a target.
    pub const REST: &str = super::Redirect::REST;

    /// Returns the path for the origin of a request with `path`, in which dot segments are resolved. It begins with the
    /// target.
    pub fn path(&self, path: &str) -> String {
        let mut rewritten = self.target.clone();
        if let Some(segments) = self.rest_after {
            push_rest(&mut rewritten, path, segments);
        }
        rewritten
    }

    /// Returns true if no origin reads the rewritten `path` as one outside of the target, such as one that takes `..;` for a
    /// dot segment, or `%2F` for a slash.
    pub fn is_confined(&self, path: &str, policy: PathPolicy) -> bool {
        let rewritten = self.path(path);
        PathReadings::new(&rewritten, policy).is_ok_and(|readings| {
            let mut others = readings.others().iter();
            readings.normalized(&rewritten).starts_with(&self.target)
                && others.all(|reading| reading.starts_with(&self.target))
        })
    }
}

impl fmt::Display for Rewrite {
    /// Writes the target as the file does.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.target)?;
        out.write_str(if self.rest_after.is_some() { Self::REST } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Uri;
    use proptest::prelude::*;
    use tidegate_policy::path::normalize;

    fn rewrite(target: &str, rest_after: Option<usize>) -> Rewrite {
        Rewrite { target: target.into(), rest_after }
    }

    #[test]
    fn rest_follows_the_target_as_it_is_spelled() {
        for (target, rest_after, path, expected) in [
            ("/new", None, "/old/a", "/new"),
            ("/new/", Some(1), "/old/a/b/", "/new/a/b/"),
            ("/new/", Some(1), "/old", "/new/"),
            ("/new/", Some(1), "/old/", "/new/"),
            ("/new/", Some(1), "/old//a//b", "/new/a//b"),
            ("/new/", Some(1), "/old/%2e%2E%252e", "/new/%2e%2E%252e"),
            ("/new/", Some(1), "/old/%41b%zz%", "/new/%41b%zz%"),
            ("/", Some(1), "/old//evil.example/a", "/evil.example/a"),
            ("/new/", Some(0), "/a", "/new/a"),
            ("/new/", Some(1), "/old/\"<>\\|", "/new/%22%3C%3E%5C%7C"),
        ] {
            assert_eq!(rewrite(target, rest_after).path(path), expected, "{path}");
        }
    }

    #[test]
    fn path_that_some_origin_reads_outside_of_the_target_is_not_confined() {
        let rewrite = rewrite("/new/", Some(1));
        for (path, is_confined) in [
            ("/old/a", true),
            ("/old/a;x=1/b", true),
            ("/old/a/..;/b", true),
            ("/old/..;/admin", false),
            ("/old/..;x/..;y/admin", false),
            ("/old/a%2F..%2Fb", true),
            ("/old/..%2Fadmin", false),
            ("/old/a%2f..%2f..%2fadmin", false),
            ("/old/..%5Cadmin", false),
            ("/old/%2e%2e%2fadmin", false),
            ("/old/%252e%252e%252fadmin", true),
        ] {
            assert_eq!(rewrite.is_confined(path, PathPolicy::Lenient), is_confined, "{path}");
        }
    }

    proptest! {
        #[test]
        fn rewritten_path_begins_with_the_target_in_every_reading(path in "/old/[/\\\\.;a%25eEF2]{0,14}") {
            let rewrite = rewrite("/new/", Some(1));
            let Ok(readings) = PathReadings::new(&path, PathPolicy::Lenient) else { return Ok(()) };
            let resolved = readings.for_origin().unwrap_or(&path);
            let rewritten = rewrite.path(resolved);
            prop_assert!(rewritten.starts_with("/new/"));
            prop_assert!(Uri::try_from(rewritten.as_str()).is_ok(), "{rewritten}");
            if rewrite.is_confined(resolved, PathPolicy::Lenient) {
                let normalized = normalize(&rewritten).expect("read before");
                prop_assert!(normalized.starts_with("/new/"), "{path} {normalized}");
            }
        }
    }
}
