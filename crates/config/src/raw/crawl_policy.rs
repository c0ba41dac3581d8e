//! Raw section `crawl_policy`: a word, or keys.

use crate::serde_forms::word_or_keys;
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Clone, Default)]
pub(crate) enum CrawlPolicy {
    #[default]
    Off,
    On,
    Options(CrawlPolicyOptions),
}

/// Optional contents of the crawl policy document.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CrawlPolicyOptions {
    /// Address for questions of crawler operators, such as `mailto:bots@example.com` or `https://example.com/bots`.
    /// Default none.
    pub contact: Option<String>,
    /// true: shows the limit and the remainder of each quota in units, not only as shares. Default false.
    pub show_units: bool,
}

word_or_keys! {
    CrawlPolicy, "on, off or keys; use on, off or { contact: \"mailto:bots@example.com\" }":
    "on" => Self::On,
    "off" => Self::Off,
    CrawlPolicyOptions => Self::Options
}
