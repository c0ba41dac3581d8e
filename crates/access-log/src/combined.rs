//! Access log lines in the combined format, for programs that read the logs of Apache and nginx.

use super::number_text;
use super::record::RecordedRequest;
use std::io::Write as _;
use std::net::IpAddr;
use tidegate_policy::Timestamp;

/// Text of the time of a line. Caches that of the last second, because most lines share it.
#[derive(Clone, Debug, Default)]
pub(super) struct CombinedTime {
    second: Option<u64>,
    text: String,
}

impl CombinedTime {
    /// Returns a time as `21/Nov/2026:09:14:03 +0000`.
    pub(super) fn text(&mut self, at: Timestamp) -> &str {
        if self.second != Some(at.seconds()) {
            self.second = Some(at.seconds());
            let second = i64::try_from(at.seconds()).unwrap_or(i64::MAX);
            let time = jiff::Timestamp::from_second(second).unwrap_or(jiff::Timestamp::MAX);
            self.text = time.strftime("%d/%b/%Y:%H:%M:%S %z").to_string();
        }
        &self.text
    }
}

/// Appends a line: `client - - [time] "request" status bytes "referer" "user agent"`.
pub(super) fn write(
    out: &mut Vec<u8>,
    time: &str,
    client: IpAddr,
    request: &RecordedRequest<'_>,
    status: u16,
    bytes: u64,
) {
    match client {
        IpAddr::V4(v4) => number_text::ipv4(out, v4),
        IpAddr::V6(v6) => write!(out, "{v6}").expect("a buffer takes all bytes"),
    }
    out.extend_from_slice(b" - - [");
    out.extend_from_slice(time.as_bytes());
    out.extend_from_slice(b"] \"");
    escaped(out, request.method.as_str().as_bytes());
    out.push(b' ');
    escaped(out, request.path.as_bytes());
    if let Some(query) = request.query {
        out.push(b'?');
        escaped(out, query.as_bytes());
    }
    out.extend_from_slice(match request.version {
        http::Version::HTTP_10 => b" HTTP/1.0\" ",
        http::Version::HTTP_2 => b" HTTP/2.0\" ",
        http::Version::HTTP_3 => b" HTTP/3.0\" ",
        _ => b" HTTP/1.1\" ",
    });
    number_text::write_u64(out, status.into());
    out.push(b' ');
    number_text::write_u64(out, bytes);
    for text in [request.referer.unwrap_or_default(), request.user_agent] {
        out.extend_from_slice(b" \"");
        match text {
            b"" => out.push(b'-'),
            text => escaped(out, text),
        }
        out.push(b'"');
    }
    out.push(b'\n');
}

/// Appends a text with the escapes of nginx: `\xNN` for quotes, backslashes, and all but ASCII. A text beyond
/// [`MAX_TEXT`] bytes is cut.
fn escaped(out: &mut Vec<u8>, text: &[u8]) {
    for &byte in &text[..text.len().min(MAX_TEXT)] {
        match byte {
            b'"' | b'\\' | 0..=31 | 127.. => write!(out, "\\x{byte:02X}").expect("a buffer takes all bytes"),
            plain => out.push(plain),
        }
    }
}

/// Maximum length of a text in bytes, as in JSON. Clients choose most of them.
const MAX_TEXT: usize = 2048;

#[cfg(test)]
mod tests {
    use crate::LineWriter;
    use crate::sample::sample_with;
    use tidegate_policy::Timestamp;

    #[test]
    fn line_is_that_of_apache_and_nginx() {
        let mut writer = LineWriter::starting_at(Timestamp(0));
        let mut line = |set: &dyn Fn(&mut crate::Record<'_>)| {
            let mut out = Vec::new();
            writer.write_combined(&mut out, &sample_with(|it| set(it)));
            String::from_utf8(out).expect("ASCII")
        };
        let full = line(&|it| {
            it.admitted_at = Timestamp::from_seconds(1_717_718_409);
            it.client.address = [192, 0, 2, 1].into();
            it.request.path = "/a \"b\"";
            it.request.query = Some("q=\\");
            it.request.user_agent = "caf\u{e9} \n".as_bytes();
            it.request.referer = Some(b"https://a.example/");
            it.response.status = 404;
            it.response.bytes = 7;
        });
        let request = r#"GET /a \x22b\x22?q=\x5C HTTP/1.1"#;
        let agent = r#"caf\xC3\xA9 \x0A"#;
        let expected = format!(
            "192.0.2.1 - - [07/Jun/2024:00:00:09 +0000] \"{request}\" 404 7 \"https://a.example/\" \"{agent}\"\n"
        );
        assert_eq!(full, expected);
        let empty = line(&|it| {
            it.request.user_agent = b"";
            it.request.referer = None;
        });
        assert!(empty.ends_with(" \"-\" \"-\"\n"), "{empty}");
    }
}
