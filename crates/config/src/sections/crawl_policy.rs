//! Section `crawl_policy`: a word, or keys.

use crate::section::{any, section, text};
use crate::serde_forms::word_or_keys;

/// The crawl policy document: a word, or its contents.
#[derive(Clone, Default)]
pub(crate) enum CrawlPolicyDocument {
    #[default]
    Off,
    On(CrawlPolicy),
}

section! {
    /// Optional contents of the crawl policy document.
    pub struct CrawlPolicy {
        /// Address for questions of crawler operators, such as `mailto:bots@example.com` or `https://example.com/bots`.
        /// Default none.
        contact: Option<String> = None => String, text(link);
        /// true: shows the limit and the remainder of each quota in units, not only as shares.
        show_units: bool = false => bool, any;
    }
}

word_or_keys! {
    CrawlPolicyDocument, "on, off or keys; use on, off or { contact: \"mailto:bots@example.com\" }":
    "on" => Self::On(CrawlPolicy::default()),
    "off" => Self::Off,
    CrawlPolicy => Self::On
}

/// Accepts an address with a scheme that is safe as a link.
fn link(contact: &str) -> Option<String> {
    let rest = ["mailto:", "https://", "http://"].iter().find_map(|scheme| contact.strip_prefix(scheme));
    let is_valid = rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic()));
    let hint = "write it like mailto:bots@example.com or https://example.com/bots";
    (!is_valid).then(|| format!("found {contact:?}, needs a mailto:, https:// or http:// address; {hint}"))
}
