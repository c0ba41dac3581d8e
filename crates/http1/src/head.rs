//! Parses and writes the heads of messages.

use super::fields::{FieldLine, Fields, LINES_ADDED, offset, write_field};
use super::framing::{FramingInfo, Malformed};
use super::message::RequestHead;
use bytes::{Buf, BytesMut};
use http::uri::Uri;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use httparse::{EMPTY_HEADER, Header, ParserConfig};
use std::mem::MaybeUninit;

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

/// Number of fields up to which parsing needs no allocation.
const MAX_STACK_FIELDS: usize = 256;

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

type HeaderSlots<'b> = [MaybeUninit<Header<'b>>];

/// A parsed head that is still in the buffer.
struct ParsedHead<S> {
    start: S,
    version: Version,
    length: usize,
    lines: Vec<FieldLine>,
    framing: FramingInfo,
}

impl HeadReader {
    pub(super) fn new(limits: HeadLimits) -> Self {
        Self { limits, searched_bytes: 0 }
    }

    /// Removes a request head from `buffer` and returns it with its framing fields. Returns `None` while it is
    /// incomplete.
    pub(super) fn request(&mut self, buffer: &mut BytesMut) -> Result<Option<(RequestHead, FramingInfo)>, Malformed> {
        let parsed = self.parse(buffer, |bytes, slots| {
            let mut request = httparse::Request::new(&mut []);
            let config = ParserConfig::default();
            let length = match config.parse_request_with_uninit_headers(&mut request, bytes, slots)? {
                httparse::Status::Partial => return Ok(None),
                httparse::Status::Complete(length) => length,
            };
            let method = Method::from_bytes(request.method.unwrap_or_default().as_bytes());
            let target = request.path.unwrap_or_default();
            let from = offset(bytes, target.as_bytes());
            let start = (method.map_err(|_| Malformed::Head)?, from, from + target.len());
            let (lines, framing, ends) = lines(&bytes[..length], request.headers)?;
            if ends != LineEnds::Crlf {
                return Err(Malformed::BareLf);
            }
            Ok(Some(ParsedHead { start, version: version(request.version), length, lines, framing }))
        })?;
        let Some(ParsedHead { start: (method, from, to), version, length, lines, framing }) = parsed else {
            return Ok(None);
        };
        if to - from > MAX_TARGET_LEN {
            return Err(Malformed::TargetTooLong);
        }
        let head = buffer.split_to(length).freeze();
        let target = Uri::from_maybe_shared(head.slice(from..to)).map_err(|_| Malformed::Head)?;
        Ok(Some((RequestHead { method, target, version, fields: Fields::from_head(head, lines) }, framing)))
    }

    /// Removes a response head from `buffer`. Returns `None` while it is incomplete.
    pub(super) fn response(&mut self, buffer: &mut BytesMut) -> Result<Option<ResponseHead>, Malformed> {
        let parsed = self.parse(buffer, |bytes, slots| {
            let mut response = httparse::Response::new(&mut []);
            let config = ParserConfig::default();
            let length = match config.parse_response_with_uninit_headers(&mut response, bytes, slots)? {
                httparse::Status::Partial => return Ok(None),
                httparse::Status::Complete(length) => length,
            };
            let start = StatusCode::from_u16(response.code.unwrap_or_default()).map_err(|_| Malformed::Head)?;
            let (lines, mut framing, ends) = lines(&bytes[..length], response.headers)?;
            if ends == LineEnds::Mixed {
                framing.forbid_reuse();
            }
            Ok(Some(ParsedHead { start, version: version(response.version), length, lines, framing }))
        })?;
        let Some(ParsedHead { start: status, version, length, lines, framing }) = parsed else { return Ok(None) };
        let fields = Fields::from_head(buffer.split_to(length).freeze(), lines);
        Ok(Some(ResponseHead { status, version, fields, framing }))
    }

    fn parse<S>(
        &mut self,
        buffer: &BytesMut,
        parse: impl for<'b> FnOnce(&'b [u8], &mut HeaderSlots<'b>) -> Result<Option<ParsedHead<S>>, Malformed>,
    ) -> Result<Option<ParsedHead<S>>, Malformed> {
        // Parsed at the first bytes, so that malformed input is rejected at once, and again when the end has arrived: a
        // head that arrives byte by byte is not parsed for every byte.
        if buffer.is_empty() || (self.searched_bytes > 0 && !contains_head_end(buffer, self.searched_bytes)) {
            return self.parse_more(buffer);
        }
        let parsed = if self.limits.fields <= MAX_STACK_FIELDS {
            parse(buffer, &mut [const { MaybeUninit::uninit() }; MAX_STACK_FIELDS][..self.limits.fields])
        } else {
            parse(buffer, &mut vec![MaybeUninit::new(EMPTY_HEADER); self.limits.fields])
        };
        match parsed? {
            None => self.parse_more(buffer),
            Some(parsed) if parsed.length > self.limits.size => Err(Malformed::HeadTooLarge),
            Some(parsed) => {
                self.searched_bytes = 0;
                Ok(Some(parsed))
            }
        }
    }

    fn parse_more<S>(&mut self, buffer: &BytesMut) -> Result<Option<ParsedHead<S>>, Malformed> {
        self.searched_bytes = buffer.len();
        match buffer.len() > self.limits.size {
            true => Err(Malformed::HeadTooLarge),
            false => Ok(None),
        }
    }
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

/// Bytes compared at once.
const BLOCK: usize = 64;

/// Line endings of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnds {
    /// CRLF on all lines.
    Crlf,
    /// LF only on all lines.
    Lf,
    /// CRLF on some lines, LF only on others.
    Mixed,
}

/// Returns the line endings of `head`.
///
/// RFC 9112 section 2.2 permits LF only as a line ending, and httparse accepts it. Two readers that differ in this see
/// different fields and different bodies, which permits request smuggling. A client's head must use CRLF on all lines.
/// An origin's head may use LF throughout, as some old servers and scripts do: it has no other reader. If an origin
/// mixes both, a line may come from a value of its application, and with it the length of the body. Such a response is
/// read, but its connection is not reused, so that no other response is affected.
fn line_ends(head: &[u8]) -> LineEnds {
    if !has_bare_lf(head) {
        return LineEnds::Crlf;
    }
    match memchr::memmem::find(head, b"\r\n") {
        Some(_) => LineEnds::Mixed,
        None => LineEnds::Lf,
    }
}

/// Returns true if any LF in `head` does not follow a CR. Compares whole blocks without a branch, which the compiler
/// vectorizes; the lines are too short to search each.
fn has_bare_lf(head: &[u8]) -> bool {
    let Some(after_first) = head.get(1..) else { return false };
    let is_bare = |(previous, current): (&u8, &u8)| (*current == b'\n') & (*previous != b'\r');
    let any_bare =
        |(ones, twos): (&[u8], &[u8])| ones.iter().zip(twos).fold(false, |found, pair| found | is_bare(pair));
    head[0] == b'\n' || head.chunks(BLOCK).zip(after_first.chunks(BLOCK)).any(any_bare)
}

fn version(minor: Option<u8>) -> Version {
    match minor {
        Some(0) => Version::HTTP_10,
        _ => Version::HTTP_11,
    }
}

impl From<httparse::Error> for Malformed {
    fn from(error: httparse::Error) -> Self {
        match error {
            httparse::Error::TooManyHeaders => Self::HeadTooLarge,
            _ => Self::Head,
        }
    }
}

/// Returns the fields of `head`, its framing, and its line endings. A field that only repeats another one is omitted.
fn lines(head: &[u8], headers: &[Header<'_>]) -> Result<(Vec<FieldLine>, FramingInfo, LineEnds), Malformed> {
    let mut lines = Vec::with_capacity(headers.len() + LINES_ADDED);
    let mut framing = FramingInfo::default();
    let mut all_canonical = true;
    for header in headers {
        let line = FieldLine::from_head(head, header.name.as_bytes(), header.value);
        all_canonical &= line.is_canonical();
        if framing.record(line.name(), header.value)? {
            lines.push(line);
        }
    }
    let first = headers.first().map_or(head.len(), |header| offset(head, header.name.as_bytes()));
    // A typical head is known to use CRLF without a search.
    let ends = match all_canonical && frames_with_crlf(head, first) {
        true => LineEnds::Crlf,
        false => line_ends(head),
    };
    Ok((lines, framing, ends))
}

/// Returns true if the start line of `head` begins at once and ends with CRLF before its `first` field, and the head
/// ends with an empty CRLF line.
fn frames_with_crlf(head: &[u8], first: usize) -> bool {
    !head.starts_with(b"\r")
        && !head.starts_with(b"\n")
        && head[..first].ends_with(b"\r\n")
        && head.ends_with(b"\r\n\r\n")
}

/// Reads a trailer section, which ends like a head. Returns `None` while it is incomplete.
pub(super) fn trailers(buffer: &mut BytesMut, max_bytes: usize) -> Result<Option<HeaderMap>, Malformed> {
    let mut slots = [EMPTY_HEADER; MAX_STACK_FIELDS];
    let (length, headers) = match httparse::parse_headers(buffer, &mut slots) {
        Ok(httparse::Status::Complete((length, headers))) if length <= max_bytes => (length, headers),
        Ok(httparse::Status::Partial) if buffer.len() <= max_bytes => return Ok(None),
        _ => return Err(Malformed::Trailers),
    };
    // Strict in both directions: the next message begins where the trailers end.
    if line_ends(&buffer[..length]) != LineEnds::Crlf {
        return Err(Malformed::Trailers);
    }
    let mut fields = HeaderMap::with_capacity(headers.len());
    for header in headers {
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| Malformed::Trailers)?;
        fields.append(name, HeaderValue::from_bytes(header.value).map_err(|_| Malformed::Trailers)?);
    }
    buffer.advance(length);
    Ok(Some(fields))
}

/// Writes a Content-Length field.
pub(super) fn write_content_length(out: &mut Vec<u8>, length: u64) {
    write_field(out, b"content-length", itoa::Buffer::new().format(length).as_bytes());
}

/// Writes the Transfer-Encoding field of a chunked body.
pub(super) fn write_chunked(out: &mut Vec<u8>) {
    out.extend_from_slice(b"transfer-encoding: chunked\r\n");
}
