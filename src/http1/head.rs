//! Heads of messages: parsed into what the rest of the gate reads, written out again field by field.

use super::fields::{FieldLine, Fields, LINES_ADDED, offset, write_field};
use super::framing::{FramingInfo, Malformed};
use super::message::RequestHead;
use bytes::{Buf, BytesMut};
use http::uri::Uri;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use httparse::{EMPTY_HEADER, Header, ParserConfig};
use std::mem::MaybeUninit;

/// How large the head of a message may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes from the first to the empty line.
    pub size: usize,
    /// Fields.
    pub fields: usize,
}

/// What the `http` crate can hold of a target.
const MAX_TARGET_LEN: usize = u16::MAX as usize - 1;

/// Fields up to which parsing needs no allocation.
const ON_STACK: usize = 100;

/// An answer without its body.
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    pub(super) version: Version,
    pub(super) fields: Fields,
    pub(super) noted: FramingInfo,
}

/// Reads heads from a buffer that fills bit by bit.
pub(super) struct HeadReader {
    limits: Limits,
    /// How much of the buffer is known not to hold the end of the head.
    seen: usize,
}

type Slots<'b> = [MaybeUninit<Header<'b>>];

/// A head, as far as it can be told without taking the buffer apart.
struct Parsed<S> {
    start: S,
    version: Version,
    length: usize,
    lines: Vec<FieldLine>,
    noted: FramingInfo,
}

impl HeadReader {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, seen: 0 }
    }

    /// Takes a request's head off `buffer`, with what its fields say of its framing; `None` until it is all there.
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
            let (lines, noted, ends) = lines(&bytes[..length], request.headers)?;
            if ends != LineEnds::Crlf {
                return Err(Malformed::BareLf);
            }
            Ok(Some(Parsed { start, version: version(request.version), length, lines, noted }))
        })?;
        let Some(Parsed { start: (method, from, to), version, length, lines, noted }) = parsed else { return Ok(None) };
        if to - from > MAX_TARGET_LEN {
            return Err(Malformed::TargetTooLong);
        }
        let head = buffer.split_to(length).freeze();
        let target = Uri::from_maybe_shared(head.slice(from..to)).map_err(|_| Malformed::Head)?;
        Ok(Some((RequestHead { method, target, version, fields: Fields::read(head, lines) }, noted)))
    }

    /// Takes an answer's head off `buffer`; `None` until it is all there.
    pub(super) fn response(&mut self, buffer: &mut BytesMut) -> Result<Option<ResponseHead>, Malformed> {
        let parsed = self.parse(buffer, |bytes, slots| {
            let mut response = httparse::Response::new(&mut []);
            let config = ParserConfig::default();
            let length = match config.parse_response_with_uninit_headers(&mut response, bytes, slots)? {
                httparse::Status::Partial => return Ok(None),
                httparse::Status::Complete(length) => length,
            };
            let start = StatusCode::from_u16(response.code.unwrap_or_default()).map_err(|_| Malformed::Head)?;
            let (lines, mut noted, ends) = lines(&bytes[..length], response.headers)?;
            if ends == LineEnds::Mixed {
                noted.leave_connection();
            }
            Ok(Some(Parsed { start, version: version(response.version), length, lines, noted }))
        })?;
        let Some(Parsed { start: status, version, length, lines, noted }) = parsed else { return Ok(None) };
        let fields = Fields::read(buffer.split_to(length).freeze(), lines);
        Ok(Some(ResponseHead { status, version, fields, noted }))
    }

    fn parse<S>(
        &mut self,
        buffer: &BytesMut,
        parse: impl for<'b> FnOnce(&'b [u8], &mut Slots<'b>) -> Result<Option<Parsed<S>>, Malformed>,
    ) -> Result<Option<Parsed<S>>, Malformed> {
        // Parsed once when it begins, so that nonsense is answered at once, and once when its end is there: a head
        // that arrives byte by byte is not parsed byte by byte.
        if buffer.is_empty() || (self.seen > 0 && !contains_head_end(buffer, self.seen)) {
            return self.parse_more(buffer);
        }
        let parsed = if self.limits.fields <= ON_STACK {
            parse(buffer, &mut [const { MaybeUninit::uninit() }; ON_STACK][..self.limits.fields])
        } else {
            parse(buffer, &mut vec![MaybeUninit::new(EMPTY_HEADER); self.limits.fields])
        };
        match parsed? {
            None => self.parse_more(buffer),
            Some(parsed) if parsed.length > self.limits.size => Err(Malformed::HeadTooLarge),
            Some(parsed) => {
                self.seen = 0;
                Ok(Some(parsed))
            }
        }
    }

    fn parse_more<S>(&mut self, buffer: &BytesMut) -> Result<Option<Parsed<S>>, Malformed> {
        self.seen = buffer.len();
        match buffer.len() > self.limits.size {
            true => Err(Malformed::HeadTooLarge),
            false => Ok(None),
        }
    }
}

/// True if the bytes from `seen` on complete an empty line.
fn contains_head_end(bytes: &[u8], seen: usize) -> bool {
    let tail = &bytes[seen.saturating_sub(3)..];
    tail.windows(2).any(|pair| pair == b"\n\n") || tail.windows(3).any(|three| three == b"\n\r\n")
}

/// Bytes that are compared at once.
const BLOCK: usize = 64;

/// How the lines of a head end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnds {
    /// All with CR and LF.
    Crlf,
    /// All with LF alone.
    Lf,
    /// Some with CR and LF, some with LF alone.
    Mixed,
}

/// Returns how the lines of `head` end.
///
/// RFC 9112 section 2.2 lets a reader take LF alone for the end of a line, and httparse does. Two readers that differ in it
/// see different fields, and so different bodies: that is how requests are smuggled. A client's head must end its lines with
/// CRLF. An origin's head may use LF throughout, as some old servers and scripts do: nothing else reads it, and all of its
/// lines mean the same. Where an origin mixes both, a line may be what its application put into a value, and the length of
/// the body with it: the response is read, but its connection is not used again, so that no other response is affected.
fn line_ends(head: &[u8]) -> LineEnds {
    if !has_bare_lf(head) {
        return LineEnds::Crlf;
    }
    match memchr::memmem::find(head, b"\r\n") {
        Some(_) => LineEnds::Mixed,
        None => LineEnds::Lf,
    }
}

/// True if some LF in `head` does not follow a CR. Whole blocks are compared without a branch, which the compiler does in
/// vectors: lines are too short for a search of each.
fn has_bare_lf(head: &[u8]) -> bool {
    let Some(behind_first) = head.get(1..) else { return false };
    let is_bare = |(one, two): (&u8, &u8)| (*two == b'\n') & (*one != b'\r');
    let any_bare =
        |(ones, twos): (&[u8], &[u8])| ones.iter().zip(twos).fold(false, |found, pair| found | is_bare(pair));
    head[0] == b'\n' || head.chunks(BLOCK).zip(behind_first.chunks(BLOCK)).any(any_bare)
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

/// Where the fields of `head` stand, what they say of its framing, and how its lines end. A field that only repeats another
/// is left out.
fn lines(head: &[u8], headers: &[Header<'_>]) -> Result<(Vec<FieldLine>, FramingInfo, LineEnds), Malformed> {
    let mut lines = Vec::with_capacity(headers.len() + LINES_ADDED);
    let mut noted = FramingInfo::default();
    let mut all_neat = true;
    for header in headers {
        let line = FieldLine::read(head, header.name.as_bytes(), header.value);
        all_neat &= line.is_neat();
        if noted.record(line.name(), header.value)? {
            lines.push(line);
        }
    }
    let first = headers.first().map_or(head.len(), |header| offset(head, header.name.as_bytes()));
    // Each line of a usual head is known to end with CRLF. Any other head is searched.
    let ends = match all_neat && frames_with_crlf(head, first) {
        true => LineEnds::Crlf,
        false => line_ends(head),
    };
    Ok((lines, noted, ends))
}

/// True if `head` begins with its start line, which ends with CRLF where its `first` field begins, and ends with an empty
/// line of CRLF.
fn frames_with_crlf(head: &[u8], first: usize) -> bool {
    !head.starts_with(b"\r")
        && !head.starts_with(b"\n")
        && head[..first].ends_with(b"\r\n")
        && head.ends_with(b"\r\n\r\n")
}

/// Reads a trailer section, which ends like a head; `None` until it is all there.
pub(super) fn trailers(buffer: &mut BytesMut, most: usize) -> Result<Option<HeaderMap>, Malformed> {
    let mut slots = [EMPTY_HEADER; ON_STACK];
    let (length, headers) = match httparse::parse_headers(buffer, &mut slots) {
        Ok(httparse::Status::Complete((length, headers))) if length <= most => (length, headers),
        Ok(httparse::Status::Partial) if buffer.len() <= most => return Ok(None),
        _ => return Err(Malformed::Trailers),
    };
    // Strict in both directions: where trailers end, the next message begins.
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

/// Writes a Content-Length.
pub(super) fn write_content_length(out: &mut Vec<u8>, length: u64) {
    write_field(out, b"content-length", itoa::Buffer::new().format(length).as_bytes());
}

/// Writes that the body comes in chunks.
pub(super) fn write_chunked(out: &mut Vec<u8>) {
    out.extend_from_slice(b"transfer-encoding: chunked\r\n");
}
