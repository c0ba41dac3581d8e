//! Heads of messages: parsed into what the rest of the gate reads, written out again field by field.

use super::framing::{Malformed, Noted};
use bytes::{Bytes, BytesMut};
use http::uri::Uri;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use httparse::{EMPTY_HEADER, Header, ParserConfig};
use smallvec::SmallVec;
use std::mem::MaybeUninit;

/// How large the head of a message may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes from the first to the empty line.
    pub size: usize,
    /// Fields.
    pub fields: usize,
}

/// Fields a gate usually adds on the way, for which the map need not grow.
const ADDED: usize = 8;

/// What the `http` crate can hold of a target.
const LONGEST_TARGET: usize = u16::MAX as usize - 1;

/// Fields up to which parsing needs no allocation.
const ON_STACK: usize = 100;

/// A request without its body.
pub(super) struct RequestHead {
    pub(super) method: Method,
    pub(super) target: Uri,
    pub(super) version: Version,
    pub(super) fields: HeaderMap,
    pub(super) noted: Noted,
}

/// An answer without its body.
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    pub(super) version: Version,
    pub(super) fields: HeaderMap,
    pub(super) noted: Noted,
}

/// Reads heads from a buffer that fills bit by bit.
pub(super) struct HeadReader {
    limits: Limits,
    /// How much of the buffer is known not to hold the end of the head.
    seen: usize,
}

/// Where in the head a field stands.
#[derive(Clone, Copy)]
struct Place {
    name: (usize, usize),
    value: (usize, usize),
}

type Places = SmallVec<[Place; 32]>;
type Slots<'b> = [MaybeUninit<Header<'b>>];

/// A start line and the places of fields, as far as they can be told without taking the buffer apart.
struct Parsed<S> {
    start: S,
    version: Version,
    length: usize,
    places: Places,
}

impl HeadReader {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, seen: 0 }
    }

    /// Takes a request's head off `buffer`; `None` until it is all there.
    pub(super) fn request(&mut self, buffer: &mut BytesMut) -> Result<Option<RequestHead>, Malformed> {
        let parsed = self.parse(buffer, |bytes, slots| {
            let mut request = httparse::Request::new(&mut []);
            let config = ParserConfig::default();
            let length = match config.parse_request_with_uninit_headers(&mut request, bytes, slots)? {
                httparse::Status::Partial => return Ok(None),
                httparse::Status::Complete(length) => length,
            };
            let method = Method::from_bytes(request.method.unwrap_or_default().as_bytes());
            let target = place(bytes, request.path.unwrap_or_default().as_bytes());
            let places = places(bytes, request.headers);
            Ok(Some(Parsed { start: (method, target), version: version(request.version), length, places }))
        })?;
        let Some(Parsed { start: (method, (from, to)), version, length, places }) = parsed else { return Ok(None) };
        if to - from > LONGEST_TARGET {
            return Err(Malformed::TargetTooLong);
        }
        let head = buffer.split_to(length).freeze();
        let target = Uri::from_maybe_shared(head.slice(from..to)).map_err(|_| Malformed::Head)?;
        let (fields, noted) = fields(&head, &places)?;
        Ok(Some(RequestHead { method: method.map_err(|_| Malformed::Head)?, target, version, fields, noted }))
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
            let places = places(bytes, response.headers);
            let start = response.code.unwrap_or_default();
            Ok(Some(Parsed { start, version: version(response.version), length, places }))
        })?;
        let Some(Parsed { start, version, length, places }) = parsed else { return Ok(None) };
        let status = StatusCode::from_u16(start).map_err(|_| Malformed::Head)?;
        let head = buffer.split_to(length).freeze();
        let (fields, noted) = fields(&head, &places)?;
        Ok(Some(ResponseHead { status, version, fields, noted }))
    }

    fn parse<S>(
        &mut self,
        buffer: &BytesMut,
        parse: impl for<'b> FnOnce(&'b [u8], &mut Slots<'b>) -> Result<Option<Parsed<S>>, httparse::Error>,
    ) -> Result<Option<Parsed<S>>, Malformed> {
        // Parsed once when it begins, so that nonsense is answered at once, and once when its end is there: a head
        // that arrives byte by byte is not parsed byte by byte.
        if buffer.is_empty() || (self.seen > 0 && !ends(buffer, self.seen)) {
            return self.more(buffer);
        }
        let parsed = if self.limits.fields <= ON_STACK {
            parse(buffer, &mut [const { MaybeUninit::uninit() }; ON_STACK][..self.limits.fields])
        } else {
            parse(buffer, &mut vec![MaybeUninit::new(EMPTY_HEADER); self.limits.fields])
        };
        match parsed {
            Ok(None) => self.more(buffer),
            Ok(Some(parsed)) if parsed.length > self.limits.size => Err(Malformed::HeadTooLarge),
            Ok(Some(parsed)) => {
                self.seen = 0;
                Ok(Some(parsed))
            }
            Err(httparse::Error::TooManyHeaders) => Err(Malformed::HeadTooLarge),
            Err(_) => Err(Malformed::Head),
        }
    }

    fn more<S>(&mut self, buffer: &BytesMut) -> Result<Option<Parsed<S>>, Malformed> {
        self.seen = buffer.len();
        match buffer.len() > self.limits.size {
            true => Err(Malformed::HeadTooLarge),
            false => Ok(None),
        }
    }
}

/// True if the bytes from `seen` on complete an empty line.
fn ends(bytes: &[u8], seen: usize) -> bool {
    let tail = &bytes[seen.saturating_sub(3)..];
    tail.windows(2).any(|pair| pair == b"\n\n") || tail.windows(3).any(|three| three == b"\n\r\n")
}

fn version(minor: Option<u8>) -> Version {
    match minor {
        Some(0) => Version::HTTP_10,
        _ => Version::HTTP_11,
    }
}

/// Where `part` stands within `whole`.
fn place(whole: &[u8], part: &[u8]) -> (usize, usize) {
    let from = part.as_ptr() as usize - whole.as_ptr() as usize;
    (from, from + part.len())
}

fn places(bytes: &[u8], headers: &[Header<'_>]) -> Places {
    let field =
        |header: &Header<'_>| Place { name: place(bytes, header.name.as_bytes()), value: place(bytes, header.value) };
    headers.iter().map(field).collect()
}

fn fields(head: &Bytes, places: &[Place]) -> Result<(HeaderMap, Noted), Malformed> {
    let mut fields = HeaderMap::with_capacity(places.len() + ADDED);
    let mut noted = Noted::default();
    for Place { name, value } in places {
        let name = HeaderName::from_bytes(&head[name.0..name.1]).map_err(|_| Malformed::Head)?;
        let value = HeaderValue::from_maybe_shared(head.slice(value.0..value.1)).map_err(|_| Malformed::Head)?;
        if noted.note(&name, &value)? {
            fields.append(name, value);
        }
    }
    Ok((fields, noted))
}

/// Reads a trailer section, which ends like a head; `None` until it is all there.
pub(super) fn trailers(buffer: &mut BytesMut, most: usize) -> Result<Option<HeaderMap>, Malformed> {
    let mut slots = [EMPTY_HEADER; ON_STACK];
    let (length, places) = match httparse::parse_headers(buffer, &mut slots) {
        Ok(httparse::Status::Complete((length, headers))) => (length, places(buffer, headers)),
        Ok(httparse::Status::Partial) if buffer.len() <= most => return Ok(None),
        _ => return Err(Malformed::Trailers),
    };
    if length > most {
        return Err(Malformed::Trailers);
    }
    let section = buffer.split_to(length).freeze();
    let (fields, _) = fields(&section, &places).map_err(|_| Malformed::Trailers)?;
    Ok(Some(fields))
}

/// Writes one field.
pub(super) fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes a Content-Length.
pub(super) fn write_content_length(out: &mut Vec<u8>, length: u64) {
    write_field(out, b"content-length", itoa::Buffer::new().format(length).as_bytes());
}

/// Writes that the body comes in chunks.
pub(super) fn write_chunked(out: &mut Vec<u8>) {
    out.extend_from_slice(b"transfer-encoding: chunked\r\n");
}
