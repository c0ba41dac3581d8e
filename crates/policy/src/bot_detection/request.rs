//! What one request contradicts of the browser that its user agent names. It needs no profile, so it counts on the first
//! request of a client.

use super::{ClientHints, FetchMode, FetchSite, HeadersSeen, HintsBrand, Referer, RequestFeatures, UpgradeRequests};

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
    /// Lacks `Accept` or `Accept-Encoding`, or an encoding of the claimed version.
    MissingAccept,
    /// Has client hints of another brand or version.
    HintsVersion,
    /// Has a `Sec-Fetch-Site` that its referer rules out. One third, if it is from this site and has no referer: extensions of
    /// people remove referers.
    FetchSite,
    /// Has none of the fields that the browser adds to every page request.
    NameOnly,
}

/// Contradictions of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Contradictions {
    /// Those found, a bit each.
    found: u8,
    /// True if a page of this site has led to the request, and it has no referer.
    lacks_referer: bool,
}

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
        let lacks_hints = is_secure && matches!(browser.hints, ClientHints::Always(_)) && !has(HeadersSeen::HINTS);
        let has_foreign_hints = browser.hints == ClientHints::Never && has(HeadersSeen::HINTS);
        let lacks_accept = !has(HeadersSeen::ACCEPT.with(HeadersSeen::ENCODING, true));
        let lacks_zstd = is_secure && browser.sends_zstd && has(HeadersSeen::NO_ZSTD);
        let is_other_version = |major: u16| browser.chromium_major != 0 && major != browser.chromium_major;
        let is_other_brand =
            |brand: HintsBrand| matches!(browser.hints, ClientHints::Always(claimed) if claimed != brand);
        let has_other_hints =
            headers.hints_major().is_some_and(is_other_version) || headers.hints_brand().is_some_and(is_other_brand);
        let is_other_site = matches!(
            (headers.fetch_site(), referer),
            (Some(FetchSite::None), Referer::Internal | Referer::External)
                | (Some(FetchSite::SameOrigin), Referer::External)
        );
        found
            .with(Contradiction::NoLanguage, no_language)
            .with(Contradiction::NoFetch, is_secure && browser.sends_fetch && !has(HeadersSeen::FETCH))
            .with(Contradiction::Hints, lacks_hints || has_foreign_hints)
            .with(Contradiction::MissingAccept, browser.is_graphical && (lacks_accept || lacks_zstd))
            .with(Contradiction::HintsVersion, has_other_hints)
            .with(Contradiction::FetchSite, is_other_site)
            .with(Contradiction::NameOnly, is_name_only(request, no_language))
            .with_missing_referer(request)
    }

    /// Returns true if there are any.
    pub(super) fn any(self) -> bool {
        self.found != 0 || self.lacks_referer
    }

    fn with(self, contradiction: Contradiction, is_found: bool) -> Self {
        Self { found: self.found | u8::from(is_found) << contradiction as u8, ..self }
    }

    fn with_missing_referer(self, request: &RequestFeatures) -> Self {
        let RequestFeatures { headers, referer, .. } = request;
        let is_link =
            (headers.fetch_mode(), headers.fetch_site()) == (Some(FetchMode::Navigate), Some(FetchSite::SameOrigin));
        Self { lacks_referer: is_link && *referer == Referer::Absent, ..self }
    }

    /// Returns how much of a contradiction the request shows, in 255ths.
    fn share(self, bit: usize) -> i16 {
        match (self.found & 1 << bit != 0, bit == Contradiction::FetchSite as usize && self.lacks_referer) {
            (true, _) => 255,
            (false, true) => 255 / 3,
            (false, false) => 0,
        }
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
            let distance = found.share(bit) - i16::from(*ratio);
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
        (matches!(browser.hints, ClientHints::Always(_)), HeadersSeen::HINTS),
        (browser.upgrade == UpgradeRequests::Always, HeadersSeen::UPGRADE),
    ];
    let expected = || own_fields.into_iter().filter(|(is_sent, _)| *is_sent);
    let lacks_all = expected().all(|(_, header)| !headers.contains(header));
    let lacking = expected().count() + usize::from(no_language);
    lacks_all && expected().count() > 0 && lacking >= 2
}
