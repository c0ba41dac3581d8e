//! Content codings that clients accept, reduced to three cases, so that a page needs few copies.

use super::fields::FieldLines;

/// Content codings that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AcceptedCodings {
    /// None.
    Identity,
    /// gzip.
    Gzip,
    /// Brotli and gzip.
    Brotli,
}

impl AcceptedCodings {
    /// Reads `Accept-Encoding` (RFC 9110 section 12.5.3).
    pub fn read(fields: &impl FieldLines) -> Self {
        let accepts = |coding: &[u8]| {
            let weight = |wanted: &[u8]| {
                fields.members("accept-encoding").find_map(|member| {
                    let mut parts = member.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
                    let is_match = parts.next()?.eq_ignore_ascii_case(wanted);
                    is_match.then(|| !parts.any(is_zero_weight))
                })
            };
            weight(coding).or_else(|| weight(b"*")).unwrap_or(false)
        };
        match (accepts(b"gzip") || accepts(b"x-gzip"), accepts(b"br")) {
            (true, true) => Self::Brotli,
            (true, false) => Self::Gzip,
            (false, _) => Self::Identity,
        }
    }

    /// Returns the value of `Accept-Encoding` for the origin.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Brotli => "br, gzip",
        }
    }

    /// Returns true if the origin had the choice of all codings, so that a response without one is for all clients.
    pub fn is_widest(self) -> bool {
        self == Self::Brotli
    }
}

/// Returns true for the weight zero: `q=0`, `q=0.0`.
fn is_zero_weight(parameter: &[u8]) -> bool {
    let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="));
    value.is_some_and(|value| value.iter().all(|byte| matches!(byte, b'0' | b'.')))
}
