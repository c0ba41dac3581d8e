//! Section `headers`.

use crate::scalars::Percent;
use crate::section::{FromWritten, any, section, stored_as_written};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_policy::tier::Share;

section! {
    /// What clients learn of their limits: header fields of responses, and the usage of a customer.
    pub struct Headers {
        /// `RateLimit` and `RateLimit-Policy` fields as in a version of the IETF draft: draft-11, draft-12 or off. draft-12 is
        /// the form that is proposed for the next version: `a` and `w` in place of `r` and `t`, no `RateLimit` in a redirect,
        /// and `RateLimit-Partition` with the policies that count each client apart.
        ratelimit: RateLimitDraft = RateLimitDraft::Draft11 => RateLimitDraft, any;
        /// Older `X-RateLimit` or `RateLimit` fields as well, for the most binding policy: a list of atlassian, github and
        /// draft-03. Default none.
        legacy: Vec<LegacyFamily> = Vec::new() => Vec<LegacyFamily>, any;
        /// Random share, up to this one, of the wait, or of the first hour of a longer one, added to each Retry-After.
        /// Without it all refused clients would return in the same second.
        retry_after_spread: Share = Share::from_millionths(200_000) => Percent, any;
        /// true: pages of other origins may read refusals and errors of the gateway, such as a 429 with its Retry-After.
        /// These get `Access-Control-Allow-Origin` with the Origin of the request and `Access-Control-Expose-Headers`, but
        /// no `Access-Control-Allow-Credentials`. Without these fields a script sees a network error. Fields that
        /// response_headers of the route sets stay.
        cors: bool = true => bool, any;
        /// true: `GET /.well-known/usage` tells a customer what it has used of its budgets, as JSON. It has a listed key in the
        /// request, or gets 401. The answer costs nothing. Another method than GET and HEAD gets 405, also with a spent budget.
        usage: bool = false => bool, any;
    }
}

/// Version of draft-ietf-httpapi-ratelimit-headers whose fields are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum RateLimitDraft {
    /// The one of May 2026: `"daily";r=50;t=30`.
    #[serde(rename = "draft-11")]
    Draft11,
    /// The proposal of August 2026 for the next one: `"daily";a=50;w=30`.
    #[serde(rename = "draft-12")]
    Draft12,
    /// None.
    #[serde(rename = "off")]
    Off,
}

/// A family of older rate limit fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LegacyFamily {
    /// `X-RateLimit-Limit`, `-Remaining`, `-Interval-Seconds`, `-FillRate`, and `Retry-After` on every response.
    Atlassian,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Used`, `-Reset` in seconds since 1970, `-Resource`.
    Github,
    /// `RateLimit-Limit`, `-Remaining`, `-Reset` in seconds from now.
    #[serde(rename = "draft-03")]
    Draft03,
}

stored_as_written!(RateLimitDraft);

/// Duplicates are left out; an absent key is an empty list.
impl FromWritten<Vec<LegacyFamily>> for Vec<LegacyFamily> {
    fn from_written(written: Vec<LegacyFamily>) -> Self {
        let mut families = Self::new();
        for family in written {
            if !families.contains(&family) {
                families.push(family);
            }
        }
        families
    }

    fn to_written(&self) -> Option<Vec<LegacyFamily>> {
        (!self.is_empty()).then(|| self.clone())
    }
}
