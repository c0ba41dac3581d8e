//! Splits header lists at separators outside quoted strings.

/// Splits `text` at each `separator` outside quoted strings (RFC 9110 section 5.6.4).
pub fn split(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |&byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => return byte == separator && !quoted,
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn backslash_escapes_a_quote_only_inside_a_quoted_string() {
        for (text, parts) in [
            (r#""a\",b",c"#, &[r#""a\",b""#, "c"][..]),
            (r#""a\\",b"#, &[r#""a\\""#, "b"]),
            (r#"a\"b,c""#, &[r#"a\"b,c""#]),
        ] {
            let expected: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
            assert_eq!(split(text.as_bytes(), b',').collect::<Vec<_>>(), expected, "{text}");
        }
    }
}
