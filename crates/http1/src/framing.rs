//! Body length and connection persistence of a message (RFC 9112 sections 6.3 and 9.3).
//!
//! Stricter than the RFC where leniency permits request smuggling: messages that two readers could frame differently
//! are rejected.

use super::fields::{Field, list};
use super::name::{Name, NameSet};
use http::{Method, StatusCode, Version};

/// Error of a malformed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The head violates the grammar.
    #[error("head is not HTTP/1.1")]
    Head,
    /// A line of the head ends with LF only.
    #[error("head line ends with LF only; end it with CR LF")]
    BareLf,
    /// The head exceeds the size limit or the field limit.
    #[error("head too large")]
    HeadTooLarge,
    /// The target exceeds the maximum length of a URI.
    #[error("request target too long")]
    TargetTooLong,
    /// Content-Length is not one number.
    #[error("Content-Length is not one number")]
    ContentLength,
    /// Transfer-Encoding is not exactly `chunked`, or the version is HTTP/1.0.
    #[error("Transfer-Encoding is not chunked")]
    TransferEncoding,
    /// Both Content-Length and Transfer-Encoding.
    #[error("both Content-Length and Transfer-Encoding")]
    BothLengths,
    /// Endless interim responses before a response.
    #[error("too many interim responses")]
    InterimResponses,
    /// A response 101 without an upgrade request.
    #[error("unexpected protocol switch by the origin")]
    SwitchingProtocols,
    /// A chunk violates the grammar, or its extensions exceed the limit.
    #[error("malformed chunk")]
    Chunk,
    /// The trailers violate the grammar, or exceed the size limit.
    #[error("malformed trailers")]
    Trailers,
}

/// Length of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyLength {
    /// Number of bytes; 0 if there is no body.
    Exact(u64),
    /// Until the last chunk.
    Chunked,
    /// Until the connection is closed.
    UntilClose,
}

/// Framing fields of a head, recorded while it is read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FramingInfo {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    /// True if the sender waits for a 100 response before it sends the body.
    pub(super) expects_continue: bool,
    /// True if the sender accepts trailers.
    pub(super) accepts_trailers: bool,
}

impl FramingInfo {
    /// Names of fields that are recorded.
    pub(super) const NAMES: NameSet =
        NameSet::of(&[Name::ContentLength, Name::TransferEncoding, Name::Connection, Name::Expect, Name::Te]);

    /// Records one field. Returns false for a duplicate that need not be kept.
    pub(super) fn record(&mut self, Field { name, value, .. }: Field<'_>) -> Result<bool, Malformed> {
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
            Name::Expect => {
                self.expects_continue |= list(value).any(|item| item.eq_ignore_ascii_case(b"100-continue"));
            }
            Name::Te => self.accepts_trailers |= list(value).any(|coding| coding.eq_ignore_ascii_case(b"trailers")),
            _ => {}
        }
        Ok(true)
    }

    /// Marks the connection as not reusable after this message.
    pub(super) fn forbid_reuse(&mut self) {
        self.close = true;
    }

    /// Returns the length of a request body.
    pub(super) fn request_length(&self, version: Version) -> Result<BodyLength, Malformed> {
        Ok(self.declared_length(version)?.unwrap_or(BodyLength::Exact(0)))
    }

    /// Returns the length of the body of a response to `method`.
    pub(super) fn response_length(
        &self,
        method: &Method,
        status: StatusCode,
        version: Version,
    ) -> Result<BodyLength, Malformed> {
        let declared = self.declared_length(version)?;
        Ok(match has_no_body(method, status) {
            true => BodyLength::Exact(0),
            false => declared.unwrap_or(BodyLength::UntilClose),
        })
    }

    /// Returns true if the sender keeps the connection open after this message.
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

/// Returns true if a response has no body whatever its head declares.
pub(super) fn has_no_body(method: &Method, status: StatusCode) -> bool {
    method == Method::HEAD || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Parses digits only: `str::parse` would accept a sign.
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

    fn framing_info(fields: &[(&'static str, &'static str)]) -> Result<FramingInfo, Malformed> {
        let mut framing = FramingInfo::default();
        for (name, value) in fields {
            let (text, value) = (name.as_bytes(), value.as_bytes());
            framing.record(Field { name: Name::from_bytes(text), text, value })?;
        }
        Ok(framing)
    }

    #[test]
    fn ambiguous_request_framing_is_rejected() {
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
            let framed = framing_info(fields).and_then(|framing| framing.request_length(*version));
            assert_eq!(framed, *expected, "{fields:?} {version:?}");
        }
    }

    #[test]
    fn response_framing_follows_method_and_status() {
        let length = [("content-length", "5")];
        let length_of = |fields: &[_], method, status| {
            framing_info(fields).and_then(|framing| framing.response_length(&method, status, Version::HTTP_11))
        };
        assert_eq!(length_of(&length, Method::GET, StatusCode::OK), Ok(BodyLength::Exact(5)));
        assert_eq!(length_of(&length, Method::HEAD, StatusCode::OK), Ok(BodyLength::Exact(0)));
        assert_eq!(length_of(&length, Method::GET, StatusCode::NOT_MODIFIED), Ok(BodyLength::Exact(0)));
        assert_eq!(length_of(&length, Method::GET, StatusCode::NO_CONTENT), Ok(BodyLength::Exact(0)));
        assert_eq!(length_of(&[], Method::GET, StatusCode::OK), Ok(BodyLength::UntilClose));
        assert_eq!(
            length_of(&[("transfer-encoding", "chunked")], Method::GET, StatusCode::OK),
            Ok(BodyLength::Chunked)
        );
        assert_eq!(
            length_of(&[("transfer-encoding", "gzip")], Method::HEAD, StatusCode::OK),
            Err(Malformed::TransferEncoding)
        );
    }

    #[test]
    fn keep_alive_follows_version_and_connection_field() {
        let keeps_alive =
            |value, version| framing_info(&[("connection", value)]).map(|framing| framing.keeps_alive(version));
        assert_eq!(keeps_alive("x-hop", Version::HTTP_11), Ok(true));
        assert_eq!(keeps_alive("x-hop, Close", Version::HTTP_11), Ok(false));
        assert_eq!(keeps_alive("x-hop", Version::HTTP_10), Ok(false));
        assert_eq!(keeps_alive("Keep-Alive", Version::HTTP_10), Ok(true));
        assert_eq!(keeps_alive("keep-alive, close", Version::HTTP_10), Ok(false));
    }
}
