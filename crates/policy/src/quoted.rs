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
