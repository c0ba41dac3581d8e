//! Features of one request that bot detection uses.

use super::BrowserTraits;
use crate::Timestamp;
use crate::exempt::ROBOTS_TXT_PATH;
use crate::hash::fnv1a;
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

/// Set of headers and connection properties of a request, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HeadersSeen(u16);

impl HeadersSeen {
    /// `Accept`
    pub const ACCEPT: Self = Self(1);
    /// `Accept-Encoding`
    pub const ENCODING: Self = Self(1 << 1);
    /// `Accept-Language`
    pub const LANGUAGE: Self = Self(1 << 2);
    /// `Referer`
    pub const REFERER: Self = Self(1 << 3);
    /// `Sec-CH-UA`
    pub const HINTS: Self = Self(1 << 4);
    /// `Sec-Fetch-Mode`
    pub const FETCH: Self = Self(1 << 5);
    /// `User-Agent`
    pub const USER_AGENT: Self = Self(1 << 6);
    /// `Upgrade-Insecure-Requests`: browsers send it on navigation, not on background fetches of a page.
    pub const UPGRADE: Self = Self(1 << 10);
    /// `Access-Control-Request-Method` of a CORS preflight, known also if no other header was inspected.
    pub const PREFLIGHT: Self = Self(1 << 11);
    /// The headers were inspected: those not in the set were absent.
    pub const INSPECTED: Self = Self(1 << 7);
    /// The client used TLS, possibly to a proxy in front of the gateway; browsers send some headers only over TLS.
    pub const TLS: Self = Self(1 << 8);
    /// The client itself used HTTP/1.0, not a proxy in front of the gateway.
    pub const HTTP_10: Self = Self(1 << 9);

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
        Self(self.0 | if present { flag.0 } else { 0 })
    }

    /// Returns true if all of `flags` are in the set.
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns the set as a bit mask.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the set of a bit mask.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
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

    /// Returns true if a page of this site seems to have fetched this in the background, such as a page that refreshes
    /// itself.
    pub(super) fn is_background_fetch(&self) -> bool {
        self.referer == Referer::Internal
            && self.headers.contains(HeadersSeen::INSPECTED)
            && !self.headers.contains(HeadersSeen::UPGRADE)
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
