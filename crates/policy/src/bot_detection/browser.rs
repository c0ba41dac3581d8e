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

/// Support for client hints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientHints {
    /// Unknown support.
    #[default]
    Unknown,
    /// Sends client hints with each request over TLS.
    Always,
    /// Sends no client hints.
    Never,
}
