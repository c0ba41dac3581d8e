//! What one request contradicts of the browser that its user agent names. It needs no profile, so it counts on the first
//! request of a client.

use super::{ClientHints, FetchSite, HeadersSeen, Referer, RequestFeatures, UpgradeRequests};

/// Contradictions between the header fields of a page request and the claimed browser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Contradictions {
    /// Uses HTTP/1.0.
    pub(super) http_10: bool,
    /// Lacks `Accept-Language`.
    pub(super) no_language: bool,
    /// Lacks `Sec-Fetch-Mode`.
    pub(super) no_fetch: bool,
    /// Has client hints of a browser that sends none, or lacks them.
    pub(super) hints: bool,
    /// Lacks `Accept` or `Accept-Encoding`.
    pub(super) missing_accept: bool,
    /// Has client hints of another version.
    pub(super) hints_version: bool,
    /// Has a `Sec-Fetch-Site` that its referer rules out.
    pub(super) fetch_site: bool,
    /// Has none of the fields that the browser adds to every page request.
    pub(super) name_only: bool,
}

impl Contradictions {
    /// Returns the contradictions of a page request.
    pub(super) fn of(request: &RequestFeatures) -> Self {
        let RequestFeatures { browser, headers, referer, .. } = request;
        let has = |header| headers.contains(header);
        let http_10 = has(HeadersSeen::HTTP_10);
        if !has(HeadersSeen::INSPECTED) {
            return Self { http_10, ..Self::default() };
        }
        let is_secure = has(HeadersSeen::TLS);
        let no_language = browser.sends_language && !has(HeadersSeen::LANGUAGE);
        let lacks_hints = is_secure && browser.hints == ClientHints::Always && !has(HeadersSeen::HINTS);
        Self {
            http_10,
            no_language,
            no_fetch: is_secure && browser.sends_fetch && !has(HeadersSeen::FETCH),
            hints: lacks_hints || browser.hints == ClientHints::Never && has(HeadersSeen::HINTS),
            missing_accept: browser.is_graphical && !has(HeadersSeen::ACCEPT.with(HeadersSeen::ENCODING, true)),
            hints_version: browser.chromium_major != 0
                && headers.hints_major().is_some_and(|major| major != browser.chromium_major),
            fetch_site: matches!(
                (headers.fetch_site(), referer),
                (Some(FetchSite::None), Referer::Internal | Referer::External)
                    | (Some(FetchSite::SameOrigin), Referer::External)
            ),
            name_only: is_name_only(request, no_language),
        }
    }

    /// Returns true if there are any.
    pub(super) fn any(self) -> bool {
        self != Self::default()
    }
}

/// Returns true if the request, over TLS, has none of the fields that the claimed browser adds to each page request, and lacks two
/// at least. A proxy that removes unknown fields leaves `Accept-Language` or `Upgrade-Insecure-Requests`.
fn is_name_only(request: &RequestFeatures, no_language: bool) -> bool {
    let RequestFeatures { browser, headers, .. } = request;
    if !headers.contains(HeadersSeen::TLS) {
        return false;
    }
    let own_fields = [
        (browser.sends_fetch, HeadersSeen::FETCH),
        (browser.hints == ClientHints::Always, HeadersSeen::HINTS),
        (browser.upgrade == UpgradeRequests::Always, HeadersSeen::UPGRADE),
    ];
    let expected = || own_fields.into_iter().filter(|(is_sent, _)| *is_sent);
    let lacks_all = expected().all(|(_, header)| !headers.contains(header));
    let lacking = expected().count() + usize::from(no_language);
    lacks_all && expected().count() > 0 && lacking >= 2
}
