//! HTML builder that escapes all text.

use std::fmt::{self, Display, Write};
use tidegate_policy::display::alters_display;

/// A piece of HTML.
#[derive(Clone, Debug, Default)]
pub(super) struct Html(String);

impl Html {
    /// Adds markup, which must be a literal.
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Adds text, escaped for elements and quoted attributes.
    pub(super) fn text(&mut self, text: impl Display) -> &mut Self {
        let _ = write!(EscapingWriter(&mut self.0), "{text}");
        self
    }

    /// Adds another piece.
    pub(super) fn add(&mut self, other: &Self) -> &mut Self {
        self.0.push_str(&other.0);
        self
    }

    /// Creates a piece from text.
    pub(super) fn from_text(text: impl Display) -> Self {
        let mut piece = Self::default();
        piece.text(text);
        piece
    }

    /// Creates a piece from text that may wrap after a slash.
    pub(super) fn breakable(text: &str) -> Self {
        let mut piece = Self::default();
        for part in text.split_inclusive('/') {
            piece.text(part).raw(if part.ends_with('/') { "<wbr>" } else { "" });
        }
        piece
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

struct EscapingWriter<'a>(&'a mut String);

impl Write for EscapingWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            match letter {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                // Control characters and those that change the text direction become visible.
                letter if alters_display(letter) => self.0.push('\u{fffd}'),
                letter => self.0.push(letter),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_special_characters_are_escaped() {
        let hostile = "<script>alert('&\"')</script>\u{202e}\u{7}";
        let escaped = Html::from_text(hostile).finish();
        assert_eq!(escaped, "&lt;script&gt;alert(&#39;&amp;&quot;&#39;)&lt;/script&gt;\u{fffd}\u{fffd}");
    }
}
