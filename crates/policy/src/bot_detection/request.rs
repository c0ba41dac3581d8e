//! What one request contradicts of the browser that its user agent names. It needs no profile, so it counts on the first
//! request of a client.

use super::{ClientHints, FetchSite, HeadersSeen, Referer, RequestFeatures, UpgradeRequests};

/// A contradiction between the header fields of a page request and the claimed browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contradiction {
    /// Uses HTTP/1.0.
    Http10,
    /// Lacks `Accept-Language`.
    NoLanguage,
    /// Lacks `Sec-Fetch-Mode`.
    NoFetch,
    /// Has client hints of a browser that sends none, or lacks them.
    Hints,
    /// Lacks `Accept` or `Accept-Encoding`.
    MissingAccept,
    /// Has client hints of another version.
    HintsVersion,
    /// Has a `Sec-Fetch-Site` that its referer rules out.
    FetchSite,
    /// Has none of the fields that the browser adds to every page request.
    NameOnly,
}

/// Contradictions of one request, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Contradictions(u8);

/// Moving ratio of the pages of a client with each contradiction, in 255ths.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ContradictionRatios([u8; 8]);

impl Contradictions {
    /// Returns the contradictions of a page request.
    pub(super) fn of(request: &RequestFeatures) -> Self {
        let RequestFeatures { browser, headers, referer, .. } = request;
        let has = |header| headers.contains(header);
        let found = Self::default().with(Contradiction::Http10, has(HeadersSeen::HTTP_10));
        if !has(HeadersSeen::INSPECTED) {
            return found;
        }
        let is_secure = has(HeadersSeen::TLS);
        let no_language = browser.sends_language && !has(HeadersSeen::LANGUAGE);
        let lacks_hints = is_secure && browser.hints == ClientHints::Always && !has(HeadersSeen::HINTS);
        let has_foreign_hints = browser.hints == ClientHints::Never && has(HeadersSeen::HINTS);
        let lacks_accept = !has(HeadersSeen::ACCEPT.with(HeadersSeen::ENCODING, true));
        let is_other_version = |major: u16| browser.chromium_major != 0 && major != browser.chromium_major;
        let is_other_site = matches!(
            (headers.fetch_site(), referer),
            (Some(FetchSite::None), Referer::Internal | Referer::External)
                | (Some(FetchSite::SameOrigin), Referer::External)
        );
        found
            .with(Contradiction::NoLanguage, no_language)
            .with(Contradiction::NoFetch, is_secure && browser.sends_fetch && !has(HeadersSeen::FETCH))
            .with(Contradiction::Hints, lacks_hints || has_foreign_hints)
            .with(Contradiction::MissingAccept, browser.is_graphical && lacks_accept)
            .with(Contradiction::HintsVersion, headers.hints_major().is_some_and(is_other_version))
            .with(Contradiction::FetchSite, is_other_site)
            .with(Contradiction::NameOnly, is_name_only(request, no_language))
    }

    /// Returns true if there are any.
    pub(super) fn any(self) -> bool {
        self.0 != 0
    }

    fn with(self, contradiction: Contradiction, is_found: bool) -> Self {
        Self(self.0 | u8::from(is_found) << contradiction as u8)
    }
}

impl ContradictionRatios {
    /// Records a request; it weighs one part in `divisor`. Only the HTTP version is known if its headers were not inspected.
    pub(super) fn record(&mut self, found: Contradictions, is_inspected: bool, divisor: i16) {
        // Nearly always.
        if !found.any() && *self == Self::default() {
            return;
        }
        let known = if is_inspected { self.0.len() } else { 1 };
        for (bit, ratio) in self.0.iter_mut().enumerate().take(known) {
            let target = if found.0 & 1 << bit != 0 { 255 } else { 0 };
            let distance = target - i16::from(*ratio);
            *ratio = (i16::from(*ratio) + (distance + distance.signum() * (divisor / 2)) / divisor) as u8;
        }
    }

    /// Returns the ratio of pages with a contradiction, 0 to 1.
    pub(super) fn ratio(self, contradiction: Contradiction) -> f32 {
        f32::from(self.0[contradiction as usize]) / 255.0
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
