//! Traits of the browser that a client claims to be.

/// Traits that the claimed browser always has. The default expects nothing, as for an unknown browser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrowserTraits {
    /// True if the browser displays images and styles, hence loads them.
    pub is_graphical: bool,
    /// True if the browser sends `Accept-Language`.
    pub sends_language: bool,
    /// True if the browser sends `Sec-Fetch-Mode` over TLS.
    pub sends_fetch: bool,
    /// Support for `Sec-CH-UA`.
    pub hints: ClientHints,
    /// Use of `Upgrade-Insecure-Requests`.
    pub upgrade: UpgradeRequests,
    /// True if the browser lists `zstd` in `Accept-Encoding` over TLS.
    pub sends_zstd: bool,
    /// Version of Chromium; 0 if the browser is another one.
    pub chromium_major: u16,
}

/// Use of `Upgrade-Insecure-Requests` in the requests of pages that are shown (Upgrade Insecure Requests, section 3.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpgradeRequests {
    /// Unknown use.
    #[default]
    Unknown,
    /// Sends it in each of them.
    Always,
    /// Sends it without TLS alone: WebKit leaves it out where nothing is to be upgraded.
    WithoutTls,
}

/// Brand in `Sec-CH-UA` (User-Agent Client Hints, section 3). Many browsers that are derived from Chromium send Chrome's user agent
/// with a brand of their own, so that only these are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HintsBrand {
    /// `Google Chrome`.
    Chrome,
    /// `Microsoft Edge`.
    Edge,
    /// `HeadlessChrome`: the automated browser, whatever its user agent was changed to.
    Headless,
}

impl HintsBrand {
    const ALL: [Self; 3] = [Self::Chrome, Self::Edge, Self::Headless];

    /// Returns the name of the brand in the header and in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chrome => "Google Chrome",
            Self::Edge => "Microsoft Edge",
            Self::Headless => "HeadlessChrome",
        }
    }

    /// Returns the brand of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|brand| brand.name() == name)
    }

    /// Returns the brand in a value of the header, the most telling one first: `"Google Chrome";v="142", "Chromium";v="142"`.
    pub fn from_value(brands: &[u8]) -> Option<Self> {
        let has = |brand: &Self| {
            let name = brand.name().as_bytes();
            let mut quoted = brands.windows(name.len() + 2);
            quoted.any(|part| part[0] == b'"' && part[name.len() + 1] == b'"' && part[1..=name.len()] == *name)
        };
        [Self::Headless, Self::Edge, Self::Chrome].into_iter().find(has)
    }
}

/// Support for client hints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientHints {
    /// Unknown support.
    #[default]
    Unknown,
    /// Sends client hints with each request over TLS, in the name of this brand.
    Always(HintsBrand),
    /// Sends no client hints.
    Never,
}
