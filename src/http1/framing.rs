//! How long a message's body is and whether its connection lives on (RFC 9112 sections 6.3 and 9.3).
//!
//! Stricter than the RFC where leniency is how requests are smuggled: whatever two readers could frame differently is
//! refused.

use super::fields::list;
use super::name::Name;
use http::{Method, StatusCode, Version};

/// Why a message cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The head breaks the grammar.
    #[error("the head is not HTTP/1.1")]
    Head,
    /// A line of the head ends with LF alone.
    #[error("a line of the head ends with LF alone; end it with CR LF")]
    BareLf,
    /// The head is larger, or has more fields, than allowed.
    #[error("the head is too large")]
    HeadTooLarge,
    /// The target is longer than any URI may be.
    #[error("the request target is too long")]
    TargetTooLong,
    /// Content-Length is not one number.
    #[error("Content-Length is not one number")]
    ContentLength,
    /// Transfer-Encoding is not exactly `chunked`, or comes from HTTP/1.0.
    #[error("Transfer-Encoding is not chunked")]
    TransferEncoding,
    /// Both Content-Length and Transfer-Encoding.
    #[error("both Content-Length and Transfer-Encoding")]
    BothLengths,
    /// A protocol nobody asked for.
    #[error("the origin switched protocols unasked")]
    Switched,
    /// A chunk breaks the grammar, or has extensions without end.
    #[error("a chunk is malformed")]
    Chunk,
    /// The trailers break the grammar, or are too large.
    #[error("the trailers are malformed")]
    Trailers,
}

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyLength {
    /// After so many bytes; none at all for 0.
    Exact(u64),
    /// After the last chunk.
    Chunked,
    /// When the connection is closed.
    UntilClose,
}

/// What a head's fields say about its framing, noted as they are read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FramingInfo {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    /// The sender waits for leave to send its body.
    pub(super) expects_continue: bool,
    /// The sender understands trailers.
    pub(super) accepts_trailers: bool,
}

impl FramingInfo {
    /// Notes one field. False if it repeats what is known and need not be kept.
    pub(super) fn record(&mut self, name: Name, value: &[u8]) -> Result<bool, Malformed> {
        match name {
            Name::ContentLength => {
                let length = decimal(value).ok_or(Malformed::ContentLength)?;
                match self.length.replace(length) {
                    None => return Ok(true),
                    Some(same) if same == length => return Ok(false),
                    Some(_) => return Err(Malformed::ContentLength),
                }
            }
            Name::TransferEncoding => {
                if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Malformed::TransferEncoding);
                }
                self.chunked = true;
            }
            Name::Connection => {
                for option in list(value) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            Name::Expect => self.expects_continue |= value.eq_ignore_ascii_case(b"100-continue"),
            Name::Te => self.accepts_trailers |= list(value).any(|coding| coding.eq_ignore_ascii_case(b"trailers")),
            _ => {}
        }
        Ok(true)
    }

    /// The connection is not used again after this message.
    pub(super) fn leave_connection(&mut self) {
        self.close = true;
    }

    /// How long a request's body is.
    pub(super) fn request_length(&self, version: Version) -> Result<BodyLength, Malformed> {
        Ok(self.declared_length(version)?.unwrap_or(BodyLength::Exact(0)))
    }

    /// How long the body of an answer to `method` is.
    pub(super) fn response_length(
        &self,
        method: &Method,
        status: StatusCode,
        version: Version,
    ) -> Result<BodyLength, Malformed> {
        let given = self.declared_length(version)?;
        Ok(match has_no_body(method, status) {
            true => BodyLength::Exact(0),
            false => given.unwrap_or(BodyLength::UntilClose),
        })
    }

    /// True if the sender keeps the connection after this message.
    pub(super) fn keeps_alive(&self, version: Version) -> bool {
        !self.close && (version == Version::HTTP_11 || self.keep_alive)
    }

    fn declared_length(&self, version: Version) -> Result<Option<BodyLength>, Malformed> {
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(Malformed::BothLengths),
            (true, None) if version != Version::HTTP_11 => Err(Malformed::TransferEncoding),
            (true, None) => Ok(Some(BodyLength::Chunked)),
            (false, length) => Ok(length.map(BodyLength::Exact)),
        }
    }
}

/// True if an answer has no body whatever its head says.
pub(super) fn has_no_body(method: &Method, status: StatusCode) -> bool {
    method == Method::HEAD || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Digits and nothing else: `str::parse` would take a sign.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, digit| match digit {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(fields: &[(&'static str, &'static str)]) -> Result<FramingInfo, Malformed> {
        let mut noted = FramingInfo::default();
        for (name, value) in fields {
            noted.record(Name::of(name.as_bytes()), value.as_bytes())?;
        }
        Ok(noted)
    }

    #[test]
    fn a_request_is_framed_one_way_or_refused() {
        use BodyLength::{Chunked, Exact};
        let cl = |value| ("content-length", value);
        let te = |value| ("transfer-encoding", value);
        type Case<'a> = (&'a [(&'static str, &'static str)], Version, Result<BodyLength, Malformed>);
        let table: &[Case<'_>] = &[
            (&[], Version::HTTP_11, Ok(Exact(0))),
            (&[cl("5")], Version::HTTP_11, Ok(Exact(5))),
            (&[cl("5")], Version::HTTP_10, Ok(Exact(5))),
            (&[cl("5"), cl("5")], Version::HTTP_11, Ok(Exact(5))),
            (&[cl("5"), cl("6")], Version::HTTP_11, Err(Malformed::ContentLength)),
            (&[cl("5, 5")], Version::HTTP_11, Err(Malformed::ContentLength)),
            (&[cl("+5")], Version::HTTP_11, Err(Malformed::ContentLength)),
            (&[cl("-1")], Version::HTTP_11, Err(Malformed::ContentLength)),
            (&[cl("0x5")], Version::HTTP_11, Err(Malformed::ContentLength)),
            (&[cl("")], Version::HTTP_11, Err(Malformed::ContentLength)),
            (&[cl("5 ")], Version::HTTP_11, Err(Malformed::ContentLength)),
            (&[cl("18446744073709551616")], Version::HTTP_11, Err(Malformed::ContentLength)),
            (&[te("chunked")], Version::HTTP_11, Ok(Chunked)),
            (&[te("Chunked")], Version::HTTP_11, Ok(Chunked)),
            (&[te("chunked")], Version::HTTP_10, Err(Malformed::TransferEncoding)),
            (&[te("gzip, chunked")], Version::HTTP_11, Err(Malformed::TransferEncoding)),
            (&[te("chunked, gzip")], Version::HTTP_11, Err(Malformed::TransferEncoding)),
            (&[te("chunked, chunked")], Version::HTTP_11, Err(Malformed::TransferEncoding)),
            (&[te("chunked"), te("chunked")], Version::HTTP_11, Err(Malformed::TransferEncoding)),
            (&[te("chunked"), te("identity")], Version::HTTP_11, Err(Malformed::TransferEncoding)),
            (&[te("xchunked")], Version::HTTP_11, Err(Malformed::TransferEncoding)),
            (&[te("\"chunked\"")], Version::HTTP_11, Err(Malformed::TransferEncoding)),
            (&[te("")], Version::HTTP_11, Err(Malformed::TransferEncoding)),
            (&[cl("5"), te("chunked")], Version::HTTP_11, Err(Malformed::BothLengths)),
            (&[te("chunked"), cl("5")], Version::HTTP_11, Err(Malformed::BothLengths)),
        ];
        for (fields, version, expected) in table {
            let framed = noted(fields).and_then(|noted| noted.request_length(*version));
            assert_eq!(framed, *expected, "{fields:?} {version:?}");
        }
    }

    #[test]
    fn an_answer_ends_where_its_request_and_status_say() {
        let length = [("content-length", "5")];
        let answer = |fields: &[_], method, status| {
            noted(fields).and_then(|noted| noted.response_length(&method, status, Version::HTTP_11))
        };
        assert_eq!(answer(&length, Method::GET, StatusCode::OK), Ok(BodyLength::Exact(5)));
        assert_eq!(answer(&length, Method::HEAD, StatusCode::OK), Ok(BodyLength::Exact(0)));
        assert_eq!(answer(&length, Method::GET, StatusCode::NOT_MODIFIED), Ok(BodyLength::Exact(0)));
        assert_eq!(answer(&length, Method::GET, StatusCode::NO_CONTENT), Ok(BodyLength::Exact(0)));
        assert_eq!(answer(&[], Method::GET, StatusCode::OK), Ok(BodyLength::UntilClose));
        assert_eq!(answer(&[("transfer-encoding", "chunked")], Method::GET, StatusCode::OK), Ok(BodyLength::Chunked));
        assert_eq!(
            answer(&[("transfer-encoding", "gzip")], Method::HEAD, StatusCode::OK),
            Err(Malformed::TransferEncoding)
        );
    }

    #[test]
    fn a_connection_lives_on_by_version_and_word() {
        let lives = |value, version| noted(&[("connection", value)]).map(|noted| noted.keeps_alive(version));
        assert_eq!(lives("x-hop", Version::HTTP_11), Ok(true));
        assert_eq!(lives("x-hop, Close", Version::HTTP_11), Ok(false));
        assert_eq!(lives("x-hop", Version::HTTP_10), Ok(false));
        assert_eq!(lives("Keep-Alive", Version::HTTP_10), Ok(true));
        assert_eq!(lives("keep-alive, close", Version::HTTP_10), Ok(false));
    }
}
