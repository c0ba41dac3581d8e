//! What only some may know.

use std::fmt;

/// Text that is compared, or shown to its addressee, and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret `text`.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The secret itself, for the one whom it is to be shown to.
    pub fn expose_secret(&self) -> &str {
        &self.0
    }

    /// The `Authorization` field of whoever knows it; `None` when it holds what no field may.
    pub fn authorization(&self) -> Option<http::HeaderValue> {
        let mut field = http::HeaderValue::try_from(format!("Bearer {}", self.0)).ok()?;
        field.set_sensitive(true);
        Some(field)
    }

    /// True when `offered` is the secret. Takes as long for a wrong guess as for a right one of that length.
    pub fn matches(&self, offered: &[u8]) -> bool {
        let differing = self.0.bytes().zip(offered).fold(0, |differing, (ours, theirs)| differing | (ours ^ theirs));
        self.0.len() == offered.len() && std::hint::black_box(differing) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret")
    }
}
