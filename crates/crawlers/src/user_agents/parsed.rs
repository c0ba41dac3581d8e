//! A user agent during classification.

use std::cell::OnceCell;
use std::ops::{Deref, Range};

use super::{browser_markers, people_words};

/// Bytes of a user agent, and properties that several patterns need. Each property is computed once; otherwise a user
/// agent full of patterns would be scanned a thousand times.
pub(super) struct ParsedUserAgent<'a> {
    bytes: &'a [u8],
    is_browser: OnceCell<bool>,
    is_app_browser: OnceCell<bool>,
    has_browser_link: OnceCell<bool>,
    model: OnceCell<Range<usize>>,
}

impl<'a> ParsedUserAgent<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> ParsedUserAgent<'a> {
        let (is_browser, is_app_browser, has_browser_link, model) = Default::default();
        ParsedUserAgent { bytes, is_browser, is_app_browser, has_browser_link, model }
    }

    /// Returns whether the user agent names a platform of browsers or apps.
    pub(super) fn is_browser(&self) -> bool {
        *self.is_browser.get_or_init(|| people_words::names_platform(self.bytes))
    }

    /// Returns whether this is a complete user agent of a browser on a phone or inside an app.
    pub(super) fn is_app_browser(&self) -> bool {
        *self.is_app_browser.get_or_init(|| browser_markers::is_app_browser(self.bytes))
    }

    /// Returns whether a link in the user agent may come from a browser, a toolbar or an app.
    pub(super) fn has_browser_link(&self) -> bool {
        *self.has_browser_link.get_or_init(|| browser_markers::has_browser_link(self.bytes))
    }

    /// Returns the range of a phone's device model; empty if there is none.
    pub(super) fn model(&self) -> Range<usize> {
        self.model.get_or_init(|| browser_markers::device_model(self.bytes)).clone()
    }
}

impl Deref for ParsedUserAgent<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}
