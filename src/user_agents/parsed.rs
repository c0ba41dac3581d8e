//! One user agent while it is looked at.

use std::cell::OnceCell;
use std::ops::{Deref, Range};

use super::browser_markers;

/// The bytes of a user agent, and what several hints ask about the whole of it. Each question is answered once, or a
/// user agent made of nothing but hints would cost a thousand looks.
pub(super) struct ParsedUserAgent<'a> {
    bytes: &'a [u8],
    of_people: OnceCell<bool>,
    links_of_people: OnceCell<bool>,
    model: OnceCell<Range<usize>>,
}

impl<'a> ParsedUserAgent<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> ParsedUserAgent<'a> {
        let (of_people, links_of_people, model) = Default::default();
        ParsedUserAgent { bytes, of_people, links_of_people, model }
    }

    /// Returns whether a browser or an app speaks.
    pub(super) fn is_browser(&self) -> bool {
        *self.of_people.get_or_init(|| browser_markers::names_a_platform(self.bytes))
    }

    /// Returns whether a link in it may be there for nobody to read.
    pub(super) fn has_browser_link(&self) -> bool {
        *self.links_of_people.get_or_init(|| browser_markers::has_browser_link(self.bytes))
    }

    /// Returns where a telephone gives its model; nowhere, if this is no telephone.
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
