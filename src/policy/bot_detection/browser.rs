//! What follows from the browser that a client says it is.

/// What the browser that a user agent names always does. By default nothing: of an unknown browser nothing is expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrowserTraits {
    /// It shows pictures and styles, so it loads them.
    pub graphical: bool,
    /// It sends `Accept-Language`.
    pub sends_language: bool,
    /// It sends `Sec-Fetch-Mode` over TLS.
    pub sends_fetch: bool,
    /// What it does about `Sec-CH-UA`.
    pub hints: ClientHints,
}

/// What a browser does about client hints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientHints {
    /// Nobody knows.
    #[default]
    Unknown,
    /// It sends them with each request over TLS.
    Always,
    /// It has none.
    Never,
}
