//! Section `headers`.

use crate::scalars::Percent;
use crate::section::{FromWritten, any, section};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_policy::tier::Share;

section! {
    /// Rate limit header fields of responses.
    pub struct Headers {
        /// `RateLimit` and `RateLimit-Policy` fields as in the IETF draft: draft-11 or off.
        ratelimit: bool = true => RateLimit, any;
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
    }
}

/// Fields of the IETF draft. A value is stored as true if they are sent.
#[derive(Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) enum RateLimit {
    #[serde(rename = "draft-11")]
    Draft11,
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

impl FromWritten<RateLimit> for bool {
    fn from_written(written: RateLimit) -> Self {
        written == RateLimit::Draft11
    }

    fn to_written(&self) -> Option<RateLimit> {
        Some(if *self { RateLimit::Draft11 } else { RateLimit::Off })
    }
}

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
