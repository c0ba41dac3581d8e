//! Validates `crawl_policy`.

use super::diagnostics::Diagnostics;
use crate::raw::crawl_policy as raw;
use crate::setting_path::SettingPath;
use crate::settings::CrawlPolicy;

pub(super) fn crawl_policy(raw: &raw::CrawlPolicy, report: &mut Diagnostics) -> Option<CrawlPolicy> {
    let raw::CrawlPolicyOptions { contact, show_units } = match raw {
        raw::CrawlPolicy::Off => return None,
        raw::CrawlPolicy::On => return Some(CrawlPolicy::default()),
        raw::CrawlPolicy::Options(options) => options,
    };
    if let Some(contact) = contact.as_deref().filter(|contact| !is_valid_contact(contact)) {
        report.error(
            &SettingPath::ROOT.crawl_policy().contact(),
            format!("found {contact:?}, needs a mailto:, https:// or http:// address"),
            "write it like mailto:bots@example.com or https://example.com/bots",
        );
    }
    Some(CrawlPolicy { contact: contact.clone(), show_units: *show_units })
}

/// Returns true if `contact` has a scheme that is safe as a link.
fn is_valid_contact(contact: &str) -> bool {
    let rest = ["mailto:", "https://", "http://"].iter().find_map(|scheme| contact.strip_prefix(scheme));
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic()))
}
