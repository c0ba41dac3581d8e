//! Common parts of the gateway's HTML pages: small, readable on phones and in dark mode, without external resources.

use std::fmt::{self, Write};

/// Escapes untrusted text for HTML.
pub(in crate::gateway) struct Escaped<'a>(pub(in crate::gateway) &'a str);

/// Writes everything before the first heading. The title is not escaped.
pub(in crate::gateway) fn write_page_head(out: &mut impl Write, title: impl fmt::Display) -> fmt::Result {
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"robots\" content=\"noindex\">\n\
         <title>{title}</title>\n\
         <style>:root{{color-scheme:light dark}}body{{font:1.1rem/1.5 system-ui,sans-serif;max-width:36rem;\
         margin:min(15vh,6rem) auto;padding:0 1rem;overflow-wrap:anywhere}}small{{opacity:.7}}time{{white-space:nowrap}}</style>\n"
    )
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| match letter {
            '&' => out.write_str("&amp;"),
            '<' => out.write_str("&lt;"),
            '>' => out.write_str("&gt;"),
            '"' => out.write_str("&quot;"),
            '\'' => out.write_str("&#39;"),
            letter => out.write_char(letter),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_special_characters_are_escaped() {
        let escaped = Escaped("<a href='x'>\"&\u{e9}").to_string();
        assert_eq!(escaped, "&lt;a href=&#39;x&#39;&gt;&quot;&amp;\u{e9}");
    }
}
