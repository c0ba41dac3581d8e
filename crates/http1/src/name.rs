//! Names of header fields. Names that the gateway uses have numbers, so that text is compared only once.

/// Declares the known names, each with its text in lower case.
macro_rules! names {
    ($($name:ident = $text:literal,)*) => {
        /// The name of a header field.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Name {
            $(#[doc = concat!("`", $text, "`")] $name,)*
            /// Any other name.
            Other,
        }

        const KNOWN: &[(Name, &str)] = &[$((Name::$name, concat!($text, ": ")),)*];
    };
}

names! {
    Accept = "accept",
    AcceptEncoding = "accept-encoding",
    AcceptLanguage = "accept-language",
    Age = "age",
    Allow = "allow",
    Authorization = "authorization",
    CacheControl = "cache-control",
    CacheStatus = "cache-status",
    CfConnectingIp = "cf-connecting-ip",
    Class = "x-tidegate-class",
    Connection = "connection",
    ContentEncoding = "content-encoding",
    ContentLength = "content-length",
    ContentRange = "content-range",
    ContentType = "content-type",
    Cookie = "cookie",
    Date = "date",
    Decision = "x-tidegate-decision",
    ETag = "etag",
    Expect = "expect",
    Forwarded = "forwarded",
    ForwardedFor = "x-forwarded-for",
    ForwardedHost = "x-forwarded-host",
    ForwardedPort = "x-forwarded-port",
    ForwardedProto = "x-forwarded-proto",
    Host = "host",
    IfModifiedSince = "if-modified-since",
    IfNoneMatch = "if-none-match",
    KeepAlive = "keep-alive",
    Operator = "x-tidegate-operator",
    Origin = "origin",
    Priority = "priority",
    ProxyAuthenticate = "proxy-authenticate",
    ProxyAuthorization = "proxy-authorization",
    ProxyConnection = "proxy-connection",
    Range = "range",
    RateLimit = "ratelimit",
    RateLimitLimit = "ratelimit-limit",
    RateLimitPartition = "ratelimit-partition",
    RateLimitPolicy = "ratelimit-policy",
    RateLimitRemaining = "ratelimit-remaining",
    RateLimitReset = "ratelimit-reset",
    RealIp = "x-real-ip",
    Referer = "referer",
    RetryAfter = "retry-after",
    SecChUa = "sec-ch-ua",
    SecChUaMobile = "sec-ch-ua-mobile",
    SecChUaPlatform = "sec-ch-ua-platform",
    SecFetchDest = "sec-fetch-dest",
    SecFetchMode = "sec-fetch-mode",
    SecFetchSite = "sec-fetch-site",
    SecFetchUser = "sec-fetch-user",
    Signature = "signature",
    SignatureAgent = "signature-agent",
    SignatureInput = "signature-input",
    Te = "te",
    Trailer = "trailer",
    TransferEncoding = "transfer-encoding",
    TrueClientIp = "true-client-ip",
    Upgrade = "upgrade",
    UpgradeInsecureRequests = "upgrade-insecure-requests",
    UserAgent = "user-agent",
    Vary = "vary",
    Via = "via",
    XRateLimitFillRate = "x-ratelimit-fillrate",
    XRateLimitIntervalSeconds = "x-ratelimit-interval-seconds",
    XRateLimitLimit = "x-ratelimit-limit",
    XRateLimitRemaining = "x-ratelimit-remaining",
    XRateLimitReset = "x-ratelimit-reset",
    XRateLimitResource = "x-ratelimit-resource",
    XRateLimitUsed = "x-ratelimit-used",
}

impl Name {
    /// Returns the name spelled `text`, in any case.
    pub fn from_bytes(text: &[u8]) -> Self {
        if text.is_empty() {
            return Self::Other;
        }
        let (name, opening) = match TABLE[slot(FACTOR, text)] {
            EMPTY_SLOT => return Self::Other,
            index => KNOWN[index as usize],
        };
        let spelling = &opening.as_bytes()[..opening.len() - SEPARATOR.len()];
        if is_spelled(text, spelling) { name } else { Self::Other }
    }

    /// Returns the name spelled `text` for an origin that treats `_` as `-`, as CGI and WSGI do, or any character other than
    /// letters and digits, as lighttpd does.
    pub fn from_cgi_bytes(text: &[u8]) -> Self {
        let mut dashed = [0; MAX_NAME_LEN];
        let Some(dashed) = dashed.get_mut(..text.len()) else { return Self::Other };
        dashed.copy_from_slice(text);
        dashed.iter_mut().filter(|byte| !byte.is_ascii_alphanumeric()).for_each(|byte| *byte = b'-');
        Self::from_bytes(dashed)
    }

    /// Returns the text of the name; empty for [`Name::Other`].
    pub fn text(self) -> &'static str {
        self.line_prefix().strip_suffix(SEPARATOR).unwrap_or_default()
    }

    /// Returns the beginning of a line with this name.
    pub(super) fn line_prefix(self) -> &'static str {
        KNOWN.get(self as usize).map_or("", |(_, opening)| opening)
    }
}

/// A set of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameSet([u64; 2]);

const _: () = assert!((Name::Other as usize) < 128, "a set has a bit for each name");

impl NameSet {
    /// Returns the set of `names`.
    pub const fn of(names: &[Name]) -> Self {
        let (mut set, mut index) = (Self([0; 2]), 0);
        while index < names.len() {
            set = set.with(names[index]);
            index += 1;
        }
        set
    }

    /// Returns the set with one more name.
    #[must_use]
    pub const fn with(mut self, name: Name) -> Self {
        self.0[name as usize / 64] |= 1 << (name as usize % 64);
        self
    }

    /// Returns the names that either set has.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self([self.0[0] | other.0[0], self.0[1] | other.0[1]])
    }

    /// Returns the names that the set does not have.
    #[must_use]
    pub const fn complement(self) -> Self {
        Self([!self.0[0], !self.0[1]])
    }

    /// Returns the names that the set has and `other` does not.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self([self.0[0] & !other.0[0], self.0[1] & !other.0[1]])
    }

    /// Returns true if the set has the name.
    pub const fn contains(self, name: Name) -> bool {
        self.0[name as usize / 64] >> (name as usize % 64) & 1 == 1
    }

    /// Returns true if the sets have a name in common.
    pub const fn intersects(self, other: Self) -> bool {
        self.0[0] & other.0[0] | self.0[1] & other.0[1] != 0
    }
}

impl FromIterator<Name> for NameSet {
    fn from_iter<I: IntoIterator<Item = Name>>(names: I) -> Self {
        names.into_iter().fold(Self::default(), Self::with)
    }
}

/// Separator between name and value.
pub(super) const SEPARATOR: &str = ": ";

/// Length of the longest known name.
const MAX_NAME_LEN: usize = max_name_len();

const SLOTS: usize = 512;
const EMPTY_SLOT: u8 = u8::MAX;

/// Factor for which no two known names share a slot, computed at compile time.
const FACTOR: usize = factor();

/// Index in [`KNOWN`] of each known name, by its slot.
const TABLE: [u8; SLOTS] = match table(FACTOR) {
    Some(table) => table,
    None => panic!("FACTOR has a table"),
};

/// Returns the slot of a name: a hash of its length and of its first, last and fourth last letter, case-insensitive.
const fn slot(factor: usize, text: &[u8]) -> usize {
    let length = text.len();
    let fourth_last = text[length.saturating_sub(4)];
    let mut key = length << 24;
    key |=
        ((text[0] | 0x20) as usize) << 16 | ((text[length - 1] | 0x20) as usize) << 8 | (fourth_last | 0x20) as usize;
    (key.wrapping_mul(factor) >> 20) % SLOTS
}

/// Returns true if `text` is `spelling` in any case. Compares eight bytes at once, because each name of each message passes.
fn is_spelled(text: &[u8], spelling: &[u8]) -> bool {
    if text.len() != spelling.len() {
        return false;
    }
    let (Some(rest), Some(spelling_rest)) = (text.last_chunk(), spelling.last_chunk()) else {
        return match (four_to_eight(text), four_to_eight(spelling)) {
            (Some(text), Some(spelling)) => is_word_spelled(text, spelling),
            _ => text.eq_ignore_ascii_case(spelling),
        };
    };
    let words = text.as_chunks().0.iter().zip(spelling.as_chunks().0);
    words.chain([(rest, spelling_rest)]).all(|(text, spelling)| is_word_spelled(*text, *spelling))
}

/// Compares eight bytes. In a spelling, which has letters of lower case and dashes, letters alone have the bit above that of
/// their case.
fn is_word_spelled(text: [u8; 8], spelling: [u8; 8]) -> bool {
    const LETTER: u64 = u64::from_ne_bytes([0x40; 8]);
    let (text, spelling) = (u64::from_ne_bytes(text), u64::from_ne_bytes(spelling));
    text | (spelling & LETTER) >> 1 == spelling
}

/// Returns the first and the last four bytes; `None` if there are fewer than four.
fn four_to_eight(text: &[u8]) -> Option<[u8; 8]> {
    let (&[a, b, c, d], &[e, f, g, h]) = (text.first_chunk()?, text.last_chunk()?);
    Some([a, b, c, d, e, f, g, h])
}

const fn max_name_len() -> usize {
    let (mut longest, mut index) = (0, 0);
    while index < KNOWN.len() {
        let length = KNOWN[index].1.len() - SEPARATOR.len();
        longest = if length > longest { length } else { longest };
        index += 1;
    }
    longest
}

const fn factor() -> usize {
    let mut factor = 1_000_003;
    while table(factor).is_none() {
        factor += 2;
    }
    factor
}

const fn table(factor: usize) -> Option<[u8; SLOTS]> {
    let mut table = [EMPTY_SLOT; SLOTS];
    let mut index = 0;
    while index < KNOWN.len() {
        let (text, _) = KNOWN[index].1.as_bytes().split_at(KNOWN[index].1.len() - SEPARATOR.len());
        let slot = slot(factor, text);
        if table[slot] != EMPTY_SLOT {
            return None;
        }
        table[slot] = index as u8;
        index += 1;
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_is_found_in_any_case() {
        for (index, (name, opening)) in KNOWN.iter().enumerate() {
            let text = opening.trim_end_matches(": ");
            assert_eq!(*name as usize, index);
            assert_eq!(Name::from_bytes(text.as_bytes()), *name);
            assert_eq!(Name::from_bytes(text.to_ascii_uppercase().as_bytes()), *name);
            assert_eq!(name.text(), text);
        }
    }

    #[test]
    fn set_has_the_names_it_is_made_of() {
        let all = || KNOWN.iter().map(|(name, _)| *name).chain([Name::Other]);
        for name in all() {
            let one = NameSet::of(&[name]);
            assert!(all().all(|other| one.contains(other) == (other == name)), "{name:?}");
            let others: NameSet = all().filter(|other| *other != name).collect();
            assert!(!others.contains(name) && !others.intersects(one), "{name:?}");
            assert_eq!(others.union(one), all().collect(), "{name:?}");
            assert!(others.with(name).intersects(one), "{name:?}");
        }
    }

    #[test]
    fn a_name_that_differs_in_one_byte_is_another() {
        for (_, opening) in KNOWN {
            let spelling = opening.trim_end_matches(SEPARATOR).as_bytes();
            assert!(spelling.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'-'), "{opening}");
            for position in 0..spelling.len() {
                let mut text = spelling.to_ascii_uppercase();
                for byte in 0..=u8::MAX {
                    text[position] = byte;
                    assert_eq!(is_spelled(&text, spelling), text.eq_ignore_ascii_case(spelling), "{byte} in {opening}");
                }
            }
            assert!(!is_spelled(&spelling[1..], spelling));
        }
    }

    #[test]
    fn other_characters_count_as_dashes_to_cgi() {
        for text in ["X_Tidegate-Operator", "X.Tidegate.Operator", "x-tidegate!operator", "x~Tidegate_operator"] {
            assert_eq!(Name::from_cgi_bytes(text.as_bytes()), Name::Operator, "{text}");
        }
        assert_eq!(Name::from_cgi_bytes(b"x_ratelimit_interval_seconds"), Name::XRateLimitIntervalSeconds);
        for text in ["", "_", "x_tidegate_operator_", "x_ratelimit_interval_seconds_and_more"] {
            assert_eq!(Name::from_cgi_bytes(text.as_bytes()), Name::Other, "{text}");
        }
    }

    #[test]
    fn similar_names_are_not_known_names() {
        for text in ["", "h", "hast", "hostt", "xhost", "user_agent", "x-tidegate-clazs", "\u{e4}", "-"] {
            assert_eq!(Name::from_bytes(text.as_bytes()), Name::Other, "{text}");
        }
        assert_eq!(Name::Other.text(), "");
    }
}
