//! Features of one request that bot detection uses.

use super::{BrowserTraits, HintsBrand, UpgradeRequests};
use crate::Timestamp;
use crate::exempt::ROBOTS_TXT_PATH;
use crate::hash::fnv1a;
use crate::session::Session;
use http::Method;

/// Features of a request of a client that claims a browser or sends no user agent.
#[derive(Clone, Copy, Debug)]
pub struct RequestFeatures {
    /// Time of the request.
    pub at: Timestamp,
    /// Traits of the claimed browser.
    pub browser: BrowserTraits,
    /// Kind of the requested resource.
    pub resource_kind: ResourceKind,
    /// True if the request would be charged to a quota.
    pub is_costly: bool,
    /// Referer of the request.
    pub referer: Referer,
    /// Headers of the request, if known.
    pub headers: HeadersSeen,
    /// Session of the client; `None` without sessions.
    pub session: Option<Session>,
}

/// Kind of a requested resource, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// A page, with a hash of path and query.
    Page(u16),
    /// An asset of pages: style, script, image, font or media.
    Asset,
    /// robots.txt.
    Robots,
    /// The honeypot: forbidden by robots.txt and not linked.
    Honeypot,
    /// A submitted form or another change, with a hash of its path.
    Form(u16),
    /// Uninformative: a site icon, or a preflight request.
    Other,
}

/// Source of a referer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Referer {
    /// Not logged.
    #[default]
    Unknown,
    /// No referer was sent.
    Absent,
    /// A page of another site.
    External,
    /// A page of this site.
    Internal,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseOutcome {
    /// Refused or unanswered: what the client does next is not its normal behavior.
    Refused,
    /// Answered with the resource.
    Served,
    /// Redirected, unauthorized or not modified.
    Redirected,
    /// Not found.
    NotFound,
}

/// Headers and connection properties of a request: a set with one bit each, and what some values say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HeadersSeen {
    bits: u16,
    /// Values of `Sec-Fetch-Mode` and `Sec-Fetch-Site`, if known.
    fetch: (Option<FetchMode>, Option<FetchSite>),
    /// Version of Chromium in `Sec-CH-UA`; 0 if unknown.
    hints_major: u16,
    /// Brand in `Sec-CH-UA`, if it is known and one of those that are told apart.
    hints_brand: Option<HintsBrand>,
}

/// Value of `Sec-Fetch-Mode` (Fetch, section 3.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FetchMode {
    /// `navigate`: the response becomes the page that is shown.
    Navigate,
    /// Another mode: a page has fetched the resource.
    Subresource,
}

/// Value of `Sec-Fetch-Site`: who made the request (Fetch Metadata, section 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FetchSite {
    /// `none`: the person, by the address bar or a bookmark.
    None,
    /// `same-origin`: a page of this origin.
    SameOrigin,
    /// `same-site`: a page of another origin of this site.
    SameSite,
    /// `cross-site`: a page of another site.
    CrossSite,
}

impl FetchMode {
    /// Returns the mode of a value of the header.
    pub fn from_value(value: &[u8]) -> Option<Self> {
        match value {
            b"" => None,
            b"navigate" => Some(Self::Navigate),
            _ => Some(Self::Subresource),
        }
    }

    /// Returns the mode in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Navigate => "navigate",
            Self::Subresource => "subresource",
        }
    }
}

impl FetchSite {
    const ALL: [Self; 4] = [Self::None, Self::SameOrigin, Self::SameSite, Self::CrossSite];

    /// Returns the site of a value of the header.
    pub fn from_value(value: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|site| site.name().as_bytes() == value)
    }

    /// Returns the value of the header.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SameOrigin => "same-origin",
            Self::SameSite => "same-site",
            Self::CrossSite => "cross-site",
        }
    }
}

impl HeadersSeen {
    const fn bit(bits: u16) -> Self {
        Self { bits, fetch: (None, None), hints_major: 0, hints_brand: None }
    }

    /// `Accept`
    pub const ACCEPT: Self = Self::bit(1);
    /// `Accept-Encoding`
    pub const ENCODING: Self = Self::bit(1 << 1);
    /// `Accept-Language`
    pub const LANGUAGE: Self = Self::bit(1 << 2);
    /// `Referer`
    pub const REFERER: Self = Self::bit(1 << 3);
    /// `Sec-CH-UA`
    pub const HINTS: Self = Self::bit(1 << 4);
    /// `Sec-Fetch-Mode`
    pub const FETCH: Self = Self::bit(1 << 5);
    /// `User-Agent`
    pub const USER_AGENT: Self = Self::bit(1 << 6);
    /// `Upgrade-Insecure-Requests`: browsers send it on navigation, not on background fetches of a page.
    pub const UPGRADE: Self = Self::bit(1 << 10);
    /// `Access-Control-Request-Method` of a CORS preflight, known also if no other header was inspected.
    pub const PREFLIGHT: Self = Self::bit(1 << 11);
    /// `Accept-Encoding` without `zstd`, over TLS.
    pub const NO_ZSTD: Self = Self::bit(1 << 12);
    /// The headers were inspected: those not in the set were absent.
    pub const INSPECTED: Self = Self::bit(1 << 7);
    /// The client used TLS, possibly to a proxy in front of the gateway; browsers send some headers only over TLS.
    pub const TLS: Self = Self::bit(1 << 8);
    /// The client itself used HTTP/1.0, not a proxy in front of the gateway.
    pub const HTTP_10: Self = Self::bit(1 << 9);

    const NAMES: [(Self, &str); 9] = [
        (Self::ACCEPT, "accept"),
        (Self::ENCODING, "accept-encoding"),
        (Self::LANGUAGE, "accept-language"),
        (Self::REFERER, "referer"),
        (Self::HINTS, "sec-ch-ua"),
        (Self::FETCH, "sec-fetch-mode"),
        (Self::UPGRADE, "upgrade-insecure-requests"),
        (Self::USER_AGENT, "user-agent"),
        (Self::PREFLIGHT, "access-control-request-method"),
    ];

    /// Returns the set with `flag` added if `present` is true.
    #[must_use]
    pub const fn with(self, flag: Self, present: bool) -> Self {
        Self { bits: self.bits | if present { flag.bits } else { 0 }, ..self }
    }

    /// Returns true if all of `flags` are in the set.
    pub const fn contains(self, flags: Self) -> bool {
        self.bits & flags.bits == flags.bits
    }

    /// Returns the set with the values of `Sec-Fetch-Mode` and `Sec-Fetch-Site`.
    #[must_use]
    pub const fn with_fetch(self, mode: Option<FetchMode>, site: Option<FetchSite>) -> Self {
        Self { fetch: (mode, site), ..self }
    }

    /// Returns the set with the version of Chromium in `Sec-CH-UA`; 0 if unknown.
    #[must_use]
    pub const fn with_hints_major(self, hints_major: u16) -> Self {
        Self { hints_major, ..self }
    }

    /// Returns the set with the brand in `Sec-CH-UA`.
    #[must_use]
    pub const fn with_hints_brand(self, hints_brand: Option<HintsBrand>) -> Self {
        Self { hints_brand, ..self }
    }

    /// Returns the mode of the request; `None` if it is unknown.
    pub const fn fetch_mode(self) -> Option<FetchMode> {
        self.fetch.0
    }

    /// Returns who made the request; `None` if it is unknown.
    pub const fn fetch_site(self) -> Option<FetchSite> {
        self.fetch.1
    }

    /// Returns the version of Chromium in `Sec-CH-UA`; `None` if it is unknown.
    pub const fn hints_major(self) -> Option<u16> {
        match self.hints_major {
            0 => None,
            major => Some(major),
        }
    }

    /// Returns the brand in `Sec-CH-UA`; `None` if it is unknown, or none of those that are told apart.
    pub const fn hints_brand(self) -> Option<HintsBrand> {
        self.hints_brand
    }

    /// Returns the set as a bit mask, without values.
    pub const fn bits(self) -> u16 {
        self.bits
    }

    /// Returns the set of a bit mask.
    pub const fn from_bits(bits: u16) -> Self {
        Self::bit(bits)
    }

    /// Returns the names of the headers in the set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(header, _)| self.contains(*header)).map(|(_, name)| name)
    }

    /// Returns the header with this name, if known.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.into_iter().find(|(_, header_name)| *header_name == name).map(|(header, _)| header)
    }
}

impl RequestFeatures {
    /// Returns true if the request, given its outcome, is informative.
    pub fn is_informative(&self, outcome: ResponseOutcome) -> bool {
        match self.resource_kind {
            ResourceKind::Robots | ResourceKind::Honeypot => true,
            ResourceKind::Page(_) | ResourceKind::Asset | ResourceKind::Form(_) => outcome != ResponseOutcome::Refused,
            ResourceKind::Other => false,
        }
    }

    /// Returns true if there are sessions, and the client has none: it teaches nothing about people.
    pub fn lacks_session(&self) -> bool {
        self.session == Some(Session::None)
    }

    /// Returns true if a page of this site seems to have fetched this in the background, such as a page that refreshes
    /// itself.
    pub(super) fn is_background_fetch(&self) -> bool {
        let Self { headers, browser, .. } = self;
        let is_fetched = match headers.fetch_mode() {
            Some(mode) => mode == FetchMode::Subresource,
            None => {
                let is_secure = headers.contains(HeadersSeen::TLS);
                let is_silent = browser.upgrade == UpgradeRequests::WithoutTls && is_secure;
                // The browser would name the mode.
                let is_of_program = browser.sends_fetch && is_secure && !headers.contains(HeadersSeen::FETCH);
                !(headers.contains(HeadersSeen::UPGRADE) || is_silent || is_of_program)
            }
        };
        self.referer == Referer::Internal && headers.contains(HeadersSeen::INSPECTED) && is_fetched
    }
}

impl ResourceKind {
    /// Returns the kind of the resource at the normalized `path`; `honeypot` is the configured honeypot, if any.
    pub fn from_request(method: &Method, path: &str, query: Option<&str>, honeypot: Option<&str>) -> Self {
        if path == ROBOTS_TXT_PATH {
            return Self::Robots;
        }
        if honeypot
            .is_some_and(|dir| path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
        {
            return Self::Honeypot;
        }
        match *method {
            Method::GET | Method::HEAD => {}
            Method::OPTIONS => return Self::Other,
            _ => return Self::Form(short_hash(path, None)),
        }
        let name = after_last(b'/', path).unwrap_or(path);
        let extension = after_last(b'.', name).unwrap_or_default();
        if ICON_PREFIXES.iter().any(|icon| name.starts_with(icon)) {
            return Self::Other;
        }
        match ASSET_EXTENSIONS.iter().any(|asset| extension.eq_ignore_ascii_case(asset)) {
            true => Self::Asset,
            false => Self::Page(short_hash(path, query)),
        }
    }
}

impl Referer {
    /// Classifies the referer of a request to `host`. Sibling hosts of the same domain count as this site; so does
    /// every referer if a log has no host.
    pub fn from_header(referer: Option<&[u8]>, host: &str) -> Self {
        let Some(referer) = referer.filter(|referer| !referer.is_empty()) else { return Self::Absent };
        let Some(authority) = referer.splitn(4, |&byte| byte == b'/').nth(2) else { return Self::External };
        let referer_host = authority.rsplit(|&byte| byte == b'@').next().unwrap_or_default();
        let referer_host = referer_host.split(|&byte| byte == b':').next().unwrap_or_default();
        match host.is_empty() || last_two_labels(referer_host).eq_ignore_ascii_case(last_two_labels(host.as_bytes())) {
            true => Self::Internal,
            false => Self::External,
        }
    }
}

impl ResponseOutcome {
    /// Returns the outcome for a response `status` of the origin, or of a log's server.
    pub fn from_status(status: u16) -> Self {
        match status {
            200..300 => Self::Served,
            400 | 404 | 405 | 410 => Self::NotFound,
            429 | 500.. => Self::Refused,
            _ => Self::Redirected,
        }
    }
}

/// Returns the part after the last ASCII byte `separator`, if there is one. Scans bytewise, as names are short.
fn after_last(separator: u8, text: &str) -> Option<&str> {
    let at = text.bytes().rposition(|byte| byte == separator)?;
    Some(&text[at + 1..])
}

/// Returns the last two labels: enough to recognize siblings. If not enough (`co.uk`), it errs in favor of the client.
fn last_two_labels(host: &[u8]) -> &[u8] {
    let mut dots = host.iter().enumerate().rev().filter(|(_, byte)| **byte == b'.').map(|(at, _)| at);
    dots.nth(1).map_or(host, |at| &host[at + 1..])
}

/// Hashes a page, to distinguish a client's last few pages only.
fn short_hash(path: &str, query: Option<&str>) -> u16 {
    let hash = fnv1a(path.bytes().chain([b'?']).chain(query.unwrap_or("").bytes()));
    // Never 0, which marks an empty entry.
    (mix_hash(hash) >> 48).max(1) as u16
}

/// Mixes `hash` over all bits (the finalizer of MurmurHash3). FNV-1a maps paths that differ in their last digit to
/// similar values, so sequential pages would appear to repeat.
fn mix_hash(mut hash: u64) -> u64 {
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ hash >> 33).wrapping_mul(factor);
    }
    hash ^ hash >> 33
}

/// Icons: browsers request them on their own, often on another day than the page.
const ICON_PREFIXES: [&str; 2] = ["favicon", "apple-touch-icon"];

/// File extensions of styles, scripts, images, fonts and media.
const ASSET_EXTENSIONS: [&str; 25] = [
    "css",
    "js",
    "mjs",
    "map",
    "png",
    "jpg",
    "jpeg",
    "gif",
    "svg",
    "webp",
    "avif",
    "ico",
    "bmp",
    "woff",
    "woff2",
    "ttf",
    "otf",
    "eot",
    "mp4",
    "webm",
    "mp3",
    "ogg",
    "m4a",
    "wasm",
    "webmanifest",
];
