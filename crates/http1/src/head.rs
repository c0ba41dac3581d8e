//! Parses and writes the heads of messages.

use super::fields::{Field, FieldLines, Fields, LINES_ADDED, write_field};
use super::framing::{FramingInfo, Malformed};
use super::message::RequestHead;
use super::parser::{LineEnds, Parser, RequestLine, Stop};
use bytes::{Buf, BytesMut};
use http::uri::Uri;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};

/// Limits of a message head.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Maximum bytes, including the empty line.
    pub size: usize,
    /// Maximum number of fields.
    pub fields: usize,
}

/// Maximum target length of the `http` crate.
const MAX_TARGET_LEN: usize = u16::MAX as usize - 1;

/// Number of fields of a typical message.
const TYPICAL_FIELDS: usize = 16;

/// Maximum number of fields in a trailer section.
const MAX_TRAILERS: usize = 256;

/// A response head.
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    pub(super) version: Version,
    pub(super) fields: Fields,
    pub(super) framing: FramingInfo,
}

/// Reads heads from a buffer that is filled incrementally.
pub(super) struct HeadReader {
    limits: HeadLimits,
    /// Number of bytes already searched for the end of the head.
    searched_bytes: usize,
}

impl HeadReader {
    pub(super) fn new(limits: HeadLimits) -> Self {
        Self { limits, searched_bytes: 0 }
    }

    /// Removes a request head from `buffer` and returns it with its framing fields. Returns `None` while it is
    /// incomplete.
    pub(super) fn request(&mut self, buffer: &mut BytesMut) -> Result<Option<(RequestHead, FramingInfo)>, Malformed> {
        let fields = self.limits.fields;
        let parsed = self.parse(buffer, |parser| {
            let line = parser.request_line()?;
            let (lines, framing) = field_lines(parser, fields)?;
            match parser.line_ends() {
                LineEnds::Crlf => Ok((line, lines, framing)),
                LineEnds::Lf | LineEnds::Mixed => Err(Malformed::BareLf.into()),
            }
        })?;
        let Some((length, (RequestLine { method, target, version }, lines, framing))) = parsed else {
            return Ok(None);
        };
        if target.len() > MAX_TARGET_LEN {
            return Err(Malformed::TargetTooLong);
        }
        let head = buffer.split_to(length).freeze();
        let target = Uri::from_maybe_shared(head.slice(target)).map_err(|_| Malformed::Head)?;
        Ok(Some((RequestHead { method, target, version, fields: Fields::from_head(head, lines) }, framing)))
    }

    /// Removes a response head from `buffer`. Returns `None` while it is incomplete.
    ///
    /// RFC 9112 section 2.2 permits LF only as a line ending. Two readers that differ in this see different fields and
    /// different bodies, which permits request smuggling. A client's head must use CRLF on all lines. An origin's head may
    /// use LF throughout, as some old servers and scripts do: it has no other reader. If an origin mixes both, a line may
    /// come from a value of its application, and with it the length of the body. Such a response is read, but its
    /// connection is not reused, so that no other response is affected.
    pub(super) fn response(&mut self, buffer: &mut BytesMut) -> Result<Option<ResponseHead>, Malformed> {
        let fields = self.limits.fields;
        let parsed = self.parse(buffer, |parser| {
            let start = parser.status_line()?;
            let (lines, mut framing) = field_lines(parser, fields)?;
            if parser.line_ends() == LineEnds::Mixed {
                framing.forbid_reuse();
            }
            Ok((start, lines, framing))
        })?;
        let Some((length, ((version, status), lines, framing))) = parsed else { return Ok(None) };
        let fields = Fields::from_head(buffer.split_to(length).freeze(), lines);
        Ok(Some(ResponseHead { status, version, fields, framing }))
    }

    /// Parses a head at the beginning of `buffer`. Returns its length and the result of `parse`; `None` while it is
    /// incomplete.
    fn parse<T>(
        &mut self,
        buffer: &BytesMut,
        parse: impl FnOnce(&mut Parser<'_>) -> Result<T, Stop>,
    ) -> Result<Option<(usize, T)>, Malformed> {
        // Parsed at the first bytes, so that malformed input is rejected at once, and again when the end has arrived: a
        // head that arrives byte by byte is not parsed for every byte.
        if self.searched_bytes == 0 || contains_head_end(buffer, self.searched_bytes) {
            let mut parser = Parser::new(buffer);
            match parse(&mut parser) {
                Ok(_) if parser.position() > self.limits.size => return Err(Malformed::HeadTooLarge),
                Ok(head) => {
                    self.searched_bytes = 0;
                    return Ok(Some((parser.position(), head)));
                }
                Err(Stop::Malformed(error)) => return Err(error),
                Err(Stop::Incomplete) => {}
            }
        }
        self.searched_bytes = buffer.len();
        match buffer.len() > self.limits.size {
            true => Err(Malformed::HeadTooLarge),
            false => Ok(None),
        }
    }
}

/// Parses the fields of a head, at most `max`. A field that only repeats another one is omitted.
fn field_lines(parser: &mut Parser<'_>, max: usize) -> Result<(FieldLines, FramingInfo), Stop> {
    let mut lines = FieldLines::with_capacity(TYPICAL_FIELDS + LINES_ADDED);
    let mut framing = FramingInfo::default();
    let mut count = 0;
    while let Some(line) = parser.field_line()? {
        count += 1;
        if count > max {
            return Err(Malformed::HeadTooLarge.into());
        }
        if !FramingInfo::NAMES.contains(line.name()) || framing.record(line.field(parser.bytes()))? {
            lines.push(line);
        }
    }
    Ok((lines, framing))
}

/// Writes the first line of a response.
pub(super) fn write_status(out: &mut Vec<u8>, is_http10: bool, status: StatusCode) {
    out.extend_from_slice(if is_http10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Returns true if the bytes from `searched_bytes` on complete an empty line.
fn contains_head_end(bytes: &[u8], searched_bytes: usize) -> bool {
    let tail = &bytes[searched_bytes.saturating_sub(3)..];
    tail.windows(2).any(|pair| pair == b"\n\n") || tail.windows(3).any(|three| three == b"\n\r\n")
}

/// Reads a trailer section, which ends like a head. Returns `None` while it is incomplete.
pub(super) fn trailers(buffer: &mut BytesMut, max_bytes: usize) -> Result<Option<HeaderMap>, Malformed> {
    let mut parser = Parser::new(buffer);
    let fields = match trailer_fields(&mut parser) {
        // Strict in both directions: the next message begins where the trailers end.
        Ok(fields) if parser.position() <= max_bytes && parser.line_ends() == LineEnds::Crlf => fields,
        Err(Stop::Incomplete) if buffer.len() <= max_bytes => return Ok(None),
        _ => return Err(Malformed::Trailers),
    };
    let length = parser.position();
    buffer.advance(length);
    Ok(Some(fields))
}

fn trailer_fields(parser: &mut Parser<'_>) -> Result<HeaderMap, Stop> {
    // Nothing is allocated for a section that is not complete, because it is parsed again when more has arrived.
    let mut section = Parser::new(parser.bytes());
    let mut count = 0;
    while section.field_line()?.is_some() {
        count += 1;
        if count > MAX_TRAILERS {
            return Err(Malformed::Trailers.into());
        }
    }
    let mut fields = HeaderMap::with_capacity(count);
    while let Some(line) = parser.field_line()? {
        let Field { text, value, .. } = line.field(parser.bytes());
        let name = HeaderName::from_bytes(text).map_err(|_| Malformed::Trailers)?;
        fields.append(name, HeaderValue::from_bytes(value).map_err(|_| Malformed::Trailers)?);
    }
    Ok(fields)
}

/// Writes a Content-Length field.
pub(super) fn write_content_length(out: &mut Vec<u8>, length: u64) {
    write_field(out, b"content-length", itoa::Buffer::new().format(length).as_bytes());
}

/// Writes the Transfer-Encoding field of a chunked body.
pub(super) fn write_chunked(out: &mut Vec<u8>) {
    out.extend_from_slice(b"transfer-encoding: chunked\r\n");
}
