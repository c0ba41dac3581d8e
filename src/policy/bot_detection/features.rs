//! One request, as far as behaviour looks at it.

use super::BrowserTraits;
use crate::policy::Timestamp;
use crate::policy::decide::ROBOTS_TXT_PATH;

/// One request of a client that says it is a browser, or says nothing.
#[derive(Clone, Copy, Debug)]
pub struct RequestFeatures {
    /// When it came.
    pub at: Timestamp,
    /// What follows from the browser that it names.
    pub browser: BrowserTraits,
    /// What it is after.
    pub aim: ResourceKind,
    /// Its quotas would be charged.
    pub costly: bool,
    /// The page that it says led here.
    pub referer: Referer,
    /// The headers that were there, where they are known.
    pub seen: HeadersSeen,
}

/// What a request is after, as its path tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// A page, known by a hash of path and query.
    Page(u16),
    /// What belongs to pages: styles, scripts, pictures, fonts, media.
    Asset,
    /// robots.txt.
    Robots,
    /// What robots.txt forbids and nothing links to.
    Honeypot,
    /// What says nothing of anybody: the icon of a site, a form that is sent.
    Other,
}

/// The page that led to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Referer {
    /// Nobody has written it down.
    #[default]
    Unknown,
    /// None was named.
    Absent,
    /// One of another site.
    External,
    /// One of this site.
    Internal,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseOutcome {
    /// Turned away, or not answered: whatever the client does next, it is not its habit.
    Refused,
    /// Answered with what was asked for.
    Served,
    /// Sent elsewhere, asked to say who it is, or told that it has it already.
    Redirected,
    /// There was nothing of the kind.
    NotFound,
}

/// Which headers a request had, and how it came: one bit each.
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
    /// `Upgrade-Insecure-Requests`: browsers send it where somebody turns to a page, not with what a page fetches itself.
    pub const UPGRADE: Self = Self(1 << 10);
    /// Headers were looked at: those that are not here were not there.
    pub const INSPECTED: Self = Self(1 << 7);
    /// The client spoke TLS, to the proxy before us: browsers keep some headers for that.
    pub const TLS: Self = Self(1 << 8);
    /// The client itself spoke HTTP/1.0, and not a proxy before us.
    pub const HTTP_10: Self = Self(1 << 9);

    const NAMES: [(Self, &str); 8] = [
        (Self::ACCEPT, "accept"),
        (Self::ENCODING, "accept-encoding"),
        (Self::LANGUAGE, "accept-language"),
        (Self::REFERER, "referer"),
        (Self::HINTS, "sec-ch-ua"),
        (Self::FETCH, "sec-fetch-mode"),
        (Self::UPGRADE, "upgrade-insecure-requests"),
        (Self::USER_AGENT, "user-agent"),
    ];

    /// These and `more`, where `there`.
    #[must_use]
    pub const fn with(self, more: Self, there: bool) -> Self {
        Self(self.0 | if there { more.0 } else { 0 })
    }

    /// True when all of `these` are among them.
    pub const fn contains(self, these: Self) -> bool {
        self.0 & these.0 == these.0
    }

    /// The names of the headers that were there.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(header, _)| self.contains(*header)).map(|(_, name)| name)
    }

    /// The header of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.into_iter().find(|(_, known)| *known == name).map(|(header, _)| header)
    }
}

impl RequestFeatures {
    /// True when there is something to learn from it, now that it is known what became of it.
    pub fn is_informative(&self, outcome: ResponseOutcome) -> bool {
        match self.aim {
            ResourceKind::Robots | ResourceKind::Honeypot => true,
            ResourceKind::Page(_) | ResourceKind::Asset => outcome != ResponseOutcome::Refused,
            ResourceKind::Other => false,
        }
    }

    /// True for what a page of this site seems to have fetched on its own account, as one does that keeps itself fresh.
    pub(super) fn is_background_fetch(&self) -> bool {
        self.referer == Referer::Internal
            && self.seen.contains(HeadersSeen::INSPECTED)
            && !self.seen.contains(HeadersSeen::UPGRADE)
    }
}

impl ResourceKind {
    /// What a request is after that asks for the normalised `path`, where `trap` is set.
    pub fn of(method: &http::Method, path: &str, query: Option<&str>, trap: Option<&str>) -> Self {
        if path == ROBOTS_TXT_PATH {
            return Self::Robots;
        }
        if trap.is_some_and(|trap| path.strip_prefix(trap).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
        {
            return Self::Honeypot;
        }
        let name = after_last(b'/', path).unwrap_or(path);
        let extension = after_last(b'.', name).unwrap_or_default();
        if method != http::Method::GET || ICONS.iter().any(|icon| name.starts_with(icon)) {
            return Self::Other;
        }
        match ASSETS.iter().any(|known| extension.eq_ignore_ascii_case(known)) {
            true => Self::Asset,
            false => Self::Page(short_hash(path, query)),
        }
    }
}

impl Referer {
    /// Where a request to `host` says it comes from. A log that names no host leaves open whose page it was: it counts
    /// as one of ours, as does that of a sibling below the same domain.
    pub fn of(referer: Option<&[u8]>, host: &str) -> Self {
        let Some(referer) = referer.filter(|referer| !referer.is_empty()) else { return Self::Absent };
        let Some(authority) = referer.splitn(4, |&byte| byte == b'/').nth(2) else { return Self::External };
        let named = authority.rsplit(|&byte| byte == b'@').next().unwrap_or_default();
        let named = named.split(|&byte| byte == b':').next().unwrap_or_default();
        match host.is_empty() || last_two_labels(named).eq_ignore_ascii_case(last_two_labels(host.as_bytes())) {
            true => Self::Internal,
            false => Self::External,
        }
    }
}

impl ResponseOutcome {
    /// What became of a request that was answered with `status` by the origin, or by a log's server.
    pub fn from_status(status: u16) -> Self {
        match status {
            200..300 => Self::Served,
            400 | 404 | 405 | 410 => Self::NotFound,
            429 | 500.. => Self::Refused,
            _ => Self::Redirected,
        }
    }
}

/// What stands behind the last `sign`, an ASCII one, where there is one. Byte by byte, as names are short.
fn after_last(sign: u8, text: &str) -> Option<&str> {
    let at = text.bytes().rposition(|byte| byte == sign)?;
    Some(&text[at + 1..])
}

/// The last two labels: enough to know a sibling by, and where it is not (`co.uk`), it errs for the client.
fn last_two_labels(host: &[u8]) -> &[u8] {
    let mut dots = host.iter().enumerate().rev().filter(|(_, byte)| **byte == b'.').map(|(at, _)| at);
    dots.nth(1).map_or(host, |at| &host[at + 1..])
}

/// Tells a client's last few pages apart, and nothing more.
fn short_hash(path: &str, query: Option<&str>) -> u16 {
    let bytes = path.bytes().chain([b'?']).chain(query.unwrap_or("").bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    // Never 0, which marks an empty place.
    (mix_hash(hash) >> 48).max(1) as u16
}

/// Spreads `hash` over all bits (the finaliser of MurmurHash3): FNV-1a leaves those of paths that differ in their last
/// digit close together, and who counts up would seem to ask for a few pages again and again.
fn mix_hash(mut hash: u64) -> u64 {
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ hash >> 33).wrapping_mul(factor);
    }
    hash ^ hash >> 33
}

/// Browsers ask for these on their own account, and often on another day than for the page.
const ICONS: [&str; 2] = ["favicon", "apple-touch-icon"];

/// What the names of styles, scripts, pictures, fonts and media end in.
const ASSETS: [&str; 25] = [
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
