//! Decoder and encoder of the chunked coding (RFC 9112 section 7.1).

use super::fields::{Fields, list, write_field};
use super::framing::Malformed;
use super::head;
use super::name::Name;
use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, header};
use std::io::Write;

/// Limits of all chunk extensions of a body together, and of its trailers: known senders need few bytes.
const MAX_EXTENSION_BYTES: usize = 16 * 1024;
const MAX_TRAILER_BYTES: usize = 16 * 1024;
/// Maximum digits of a size, including leading zeros: those of 64 bits.
const MAX_SIZE_DIGITS: u8 = 16;

/// Decodes a chunked body.
#[derive(Debug)]
pub(super) struct ChunkReader {
    state: ChunkState,
    extensions_left: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    /// Before the first digit of a size.
    SizeStart,
    /// After some digits of a size: the value and their number.
    Size(u64, u8),
    /// In white space after a size. Only an extension may follow: `1 2` is not a size (RFC 9112 section 7.1.1).
    SizeSpace(u64),
    Extension(u64),
    /// After the CR of a size line.
    SizeEnd(u64),
    Data(u64),
    DataEnd,
    DataEndLine,
    Trailers,
    Done,
    /// After a malformed line. The state is final, because the end of the body is unknown.
    Malformed,
}

/// Next part of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyChunk {
    Data(Bytes),
    Trailers(HeaderMap),
    /// No data until more bytes are read.
    Pending,
    End,
}

impl ChunkReader {
    pub(super) fn new() -> Self {
        Self { state: ChunkState::SizeStart, extensions_left: MAX_EXTENSION_BYTES }
    }

    pub(super) fn next(&mut self, buffer: &mut BytesMut) -> Result<BodyChunk, Malformed> {
        self.skip_lines(buffer)?;
        match self.state {
            ChunkState::Data(left) if !buffer.is_empty() => {
                let length = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
                let data = buffer.split_to(length).freeze();
                self.state = match left - length as u64 {
                    0 => ChunkState::DataEnd,
                    left => ChunkState::Data(left),
                };
                // The end is often buffered already. An error in it is returned by the next call.
                if self.skip_lines(buffer).is_ok() && self.state == ChunkState::Trailers && buffer.starts_with(b"\r\n")
                {
                    buffer.advance(2);
                    self.state = ChunkState::Done;
                }
                Ok(BodyChunk::Data(data))
            }
            ChunkState::Trailers if !buffer.is_empty() => {
                let trailers = head::trailers(buffer, MAX_TRAILER_BYTES);
                let trailers = trailers.inspect_err(|_| self.state = ChunkState::Malformed)?;
                let Some(trailers) = trailers else { return Ok(BodyChunk::Pending) };
                self.state = ChunkState::Done;
                Ok(if trailers.is_empty() { BodyChunk::End } else { BodyChunk::Trailers(trailers) })
            }
            ChunkState::Done => Ok(BodyChunk::End),
            ChunkState::Malformed => Err(Malformed::Chunk),
            _ => Ok(BodyChunk::Pending),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// Returns the number of missing bytes of the current chunk.
    pub(super) fn expected(&self) -> u64 {
        match self.state {
            ChunkState::Data(left) => left,
            _ => 0,
        }
    }

    /// Skips the lines between data. After a malformed line, this and all later calls return an error.
    fn skip_lines(&mut self, buffer: &mut BytesMut) -> Result<(), Malformed> {
        let mut skipped = 0;
        for &byte in buffer.iter() {
            if matches!(self.state, ChunkState::Data(_) | ChunkState::Trailers | ChunkState::Done) {
                break;
            }
            self.state = self.next_state(byte).inspect_err(|_| self.state = ChunkState::Malformed)?;
            skipped += 1;
        }
        buffer.advance(skipped);
        Ok(())
    }

    fn next_state(&mut self, byte: u8) -> Result<ChunkState, Malformed> {
        Ok(match (self.state, byte) {
            (ChunkState::SizeStart, _) => ChunkState::Size(digit(byte).ok_or(Malformed::Chunk)?, 1),
            (ChunkState::Size(size, _), b'\r') => ChunkState::SizeEnd(size),
            (ChunkState::Size(size, _) | ChunkState::SizeSpace(size), b';') => ChunkState::Extension(size),
            (ChunkState::Size(size, _) | ChunkState::SizeSpace(size), b' ' | b'\t') => {
                self.count_extension()?;
                ChunkState::SizeSpace(size)
            }
            (ChunkState::Size(size, digits), _) if digits < MAX_SIZE_DIGITS => {
                ChunkState::Size(size << 4 | digit(byte).ok_or(Malformed::Chunk)?, digits + 1)
            }
            (ChunkState::Extension(size), b'\r') => ChunkState::SizeEnd(size),
            (ChunkState::Extension(size), byte) if byte >= b' ' && byte != 0x7f || byte == b'\t' => {
                self.count_extension()?;
                ChunkState::Extension(size)
            }
            (ChunkState::SizeEnd(0), b'\n') => ChunkState::Trailers,
            (ChunkState::SizeEnd(size), b'\n') => ChunkState::Data(size),
            (ChunkState::DataEnd, b'\r') => ChunkState::DataEndLine,
            (ChunkState::DataEndLine, b'\n') => ChunkState::SizeStart,
            _ => return Err(Malformed::Chunk),
        })
    }

    /// Counts one byte of an extension, or of the white space before it.
    fn count_extension(&mut self) -> Result<(), Malformed> {
        self.extensions_left = self.extensions_left.checked_sub(1).ok_or(Malformed::Chunk)?;
        Ok(())
    }
}

fn digit(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}

/// Writes the line before a chunk of `size` bytes. The chunk must be followed by `\r\n`.
pub(super) fn write_size(out: &mut Vec<u8>, size: usize) {
    write!(out, "{size:x}\r\n").expect("writing to a Vec succeeds");
}

/// Writes the last chunk, and those of `trailers` that `announced` contains and that are allowed as trailers.
pub(super) fn write_end(out: &mut Vec<u8>, trailers: Option<&HeaderMap>, announced: &[HeaderName]) {
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers.into_iter().flatten() {
        if announced.contains(name) {
            write_field(out, name.as_str().as_bytes(), value.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Returns the trailers that `fields` announce, without those that would change the framing (RFC 9110 section 6.5.1).
pub(super) fn announced_trailers(fields: &Fields) -> Vec<HeaderName> {
    let names = fields.all(Name::Trailer).flat_map(list);
    names.filter_map(|name| HeaderName::from_bytes(name).ok()).filter(is_allowed_trailer).collect()
}

fn is_allowed_trailer(name: &HeaderName) -> bool {
    !matches!(
        *name,
        header::AUTHORIZATION
            | header::CACHE_CONTROL
            | header::CONNECTION
            | header::CONTENT_ENCODING
            | header::CONTENT_LENGTH
            | header::CONTENT_RANGE
            | header::CONTENT_TYPE
            | header::COOKIE
            | header::EXPECT
            | header::HOST
            | header::MAX_FORWARDS
            | header::PROXY_AUTHENTICATE
            | header::PROXY_AUTHORIZATION
            | header::SET_COOKIE
            | header::TE
            | header::TRAILER
            | header::TRANSFER_ENCODING
            | header::UPGRADE
            | header::VIA
    ) && !matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(body: &[u8]) -> Result<(Vec<u8>, bool), Malformed> {
        let (mut reader, mut buffer, mut data) = (ChunkReader::new(), BytesMut::from(body), Vec::new());
        loop {
            match reader.next(&mut buffer)? {
                BodyChunk::Data(more) => data.extend_from_slice(&more),
                BodyChunk::Trailers(_) => {}
                BodyChunk::Pending => return Ok((data, false)),
                BodyChunk::End => return Ok((data, true)),
            }
        }
    }

    #[test]
    fn chunked_coding_is_parsed_strictly() {
        let whole = |data: &str| Ok((data.as_bytes().to_vec(), true));
        type Case<'a> = (&'a str, Result<(Vec<u8>, bool), Malformed>);
        let table: &[Case<'_>] = &[
            ("0\r\n\r\n", whole("")),
            ("3\r\nabc\r\n0\r\n\r\n", whole("abc")),
            ("A\r\n0123456789\r\n00\r\n\r\n", whole("0123456789")),
            ("3;name=value\r\nabc\r\n0;x\r\n\r\n", whole("abc")),
            ("3 ; a\r\nabc\r\n0\r\nx-sum: 1\r\n\r\n", whole("abc")),
            ("3\r\nab", Ok((b"ab".to_vec(), false))),
            ("3\r\nabc\r\n0\r\n", Ok((b"abc".to_vec(), false))),
            ("\r\n0\r\n\r\n", Err(Malformed::Chunk)),
            ("x\r\n", Err(Malformed::Chunk)),
            ("0x3\r\nabc\r\n", Err(Malformed::Chunk)),
            ("-1\r\n", Err(Malformed::Chunk)),
            ("3\nabc\n0\n\n", Err(Malformed::Chunk)),
            ("3\r\nabcd\r\n", Err(Malformed::Chunk)),
            ("3\r\nabc0\r\n\r\n", Err(Malformed::Chunk)),
            ("3\r\nabc\r\n0x: y\r\n\r\n", Err(Malformed::Chunk)),
            ("3\r\nabc\r\n3x\r\nabc\r\n0\r\n\r\n", Err(Malformed::Chunk)),
            ("3;a\nb\r\nabc\r\n", Err(Malformed::Chunk)),
            ("3;a\rb\r\nabc\r\n", Err(Malformed::Chunk)),
            ("10000000000000000\r\n", Err(Malformed::Chunk)),
            ("00000000000000003\r\nabc\r\n0\r\n\r\n", Err(Malformed::Chunk)),
            ("0000000000000003\r\nabc\r\n0\r\n\r\n", whole("abc")),
            ("3 \t ;a\r\nabc\r\n0\r\n\r\n", whole("abc")),
            ("1 2\r\na\r\n0\r\n\r\n", Err(Malformed::Chunk)),
            ("3 abc\r\nabc\r\n0\r\n\r\n", Err(Malformed::Chunk)),
            ("3 \r\nabc\r\n0\r\n\r\n", Err(Malformed::Chunk)),
            ("3;a\nabc\r\n0\r\n\r\n", Err(Malformed::Chunk)),
            ("3\r\nabc\n0\r\n\r\n", Err(Malformed::Chunk)),
            ("0\r\nx-sum: 1\n\r\n", Err(Malformed::Trailers)),
            ("0\r\nx-sum: 1\r\n\n", Err(Malformed::Trailers)),
            ("0\r\n\n", Err(Malformed::Trailers)),
            ("0\r\nx-sum 1\r\n\r\n", Err(Malformed::Trailers)),
            ("0\r\n folded\r\n\r\n", Err(Malformed::Trailers)),
        ];
        for (body, expected) in table {
            assert_eq!(decode(body.as_bytes()), *expected, "{body:?}");
        }
    }

    #[test]
    fn extensions_and_trailers_are_bounded() {
        let endless = |start: &str, more: &str| [start, &more.repeat(40 * 1024)].concat();
        assert_eq!(decode(endless("1;", "x").as_bytes()), Err(Malformed::Chunk));
        assert_eq!(decode(endless("1", " ").as_bytes()), Err(Malformed::Chunk));
        assert_eq!(decode(endless("", "0").as_bytes()), Err(Malformed::Chunk));
        assert_eq!(
            decode(endless("", "1;x\r\na\r\n").as_bytes()),
            Err(Malformed::Chunk),
            "limit of all chunks together"
        );
        assert_eq!(decode(endless("0\r\nx: ", "x").as_bytes()), Err(Malformed::Trailers));
        assert_eq!(decode(endless("0\r\n", "a: b\r\n").as_bytes()), Err(Malformed::Trailers));
    }

    #[test]
    fn only_announced_and_allowed_trailers_are_written() {
        let fields = Fields::from_iter([("Trailer", "x-sum, content-length")]);
        let mut trailers = HeaderMap::new();
        for name in ["x-sum", "content-length", "x-other"] {
            trailers.insert(name, "1".parse().expect("valid value"));
        }
        let mut out = Vec::new();
        write_end(&mut out, Some(&trailers), &announced_trailers(&fields));
        assert_eq!(out, b"0\r\nx-sum: 1\r\n\r\n");
    }
}
