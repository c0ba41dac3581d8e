//! The trace context of a request (W3C Trace Context, level 1 of 23 November 2021, section 3.2).

use std::fmt;
use tidegate_policy::hash::mix;

/// What `traceparent` of a request says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Id of the trace; never zero.
    pub trace_id: u128,
    /// Id of the span that the request belongs to; never zero.
    pub span_id: u64,
    /// True if the sender records the trace.
    pub is_sampled: bool,
}

/// Trace context of a request at the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Id of the trace; never zero.
    pub trace_id: u128,
    /// Id of the gateway's span; never zero.
    pub span_id: u64,
    /// Id of the sender's span; `None` if the trace begins here.
    pub parent_span_id: Option<u64>,
    /// True if the request is exported whatever becomes of it.
    pub is_sampled: bool,
}

/// Flag of a sampled trace.
const SAMPLED: u8 = 1;

impl Parent {
    /// Parses the values of `traceparent`. Returns `None` without exactly one that is valid. A later version is read as far as
    /// version 00 goes.
    pub fn parse<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let (Some(value), None) = (values.next(), values.next()) else { return None };
        let mut parts = std::str::from_utf8(value).ok()?.split('-');
        let version = hexadecimal(parts.next()?, 2).filter(|version| *version != 0xff)?;
        let trace_id = hexadecimal(parts.next()?, 32).filter(|id| *id != 0)?;
        let span_id = hexadecimal(parts.next()?, 16).filter(|id| *id != 0)?;
        let flags = hexadecimal(parts.next()?, 2)?;
        let has_end = parts.next().is_none();
        let is_sampled = flags as u8 & SAMPLED != 0;
        (has_end || version > 0).then_some(Self { trace_id, span_id: span_id as u64, is_sampled })
    }
}

/// Parses exactly `length` hexadecimal digits in lower case.
fn hexadecimal(text: &str, length: usize) -> Option<u128> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (text.len() == length && text.bytes().all(is_digit)).then(|| u128::from_str_radix(text, 16).ok())?
}

impl TraceContext {
    /// Returns the context of a request with this parent, if it has one. `random` is three numbers that no other request has.
    pub fn new(parent: Option<Parent>, random: [u64; 3], is_sampled: bool) -> Self {
        let [high, low, span_id] = random.map(|number| number.max(1));
        let trace_id = parent.map_or(u128::from(high) << 64 | u128::from(low), |parent| parent.trace_id);
        Self { trace_id, span_id, parent_span_id: parent.map(|parent| parent.span_id), is_sampled }
    }

    /// Returns the id of the span of the request to the origin.
    pub fn origin_span_id(&self) -> u64 {
        mix(self.span_id).max(1)
    }

    /// Writes `traceparent` for the origin.
    pub fn write_traceparent(&self, out: &mut impl fmt::Write) -> fmt::Result {
        let flags = if self.is_sampled { SAMPLED } else { 0 };
        write!(out, "00-{:032x}-{:016x}-{flags:02x}", self.trace_id, self.origin_span_id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(values: &[&str]) -> Option<Parent> {
        Parent::parse(values.iter().map(|value| value.as_bytes()))
    }

    /// The example of section 3.2.
    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn parent_is_read_to_the_letter() {
        let trace_id = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
        let parent = Parent { trace_id, span_id: 0x00f0_67aa_0ba9_02b7, is_sampled: true };
        assert_eq!(parse(&[EXAMPLE]), Some(parent));
        let unsampled = EXAMPLE.replace("-01", "-00");
        assert_eq!(parse(&[&unsampled]), Some(Parent { is_sampled: false, ..parent }));
        let later = EXAMPLE.replacen("00-", "01-", 1) + "-what-will-come";
        assert_eq!(parse(&[&later]), Some(parent), "a later version");
        let invalid = [
            "".to_owned(),
            EXAMPLE.to_uppercase(),
            EXAMPLE.replacen("00-", "ff-", 1),
            format!("{EXAMPLE}-00"),
            format!(" {EXAMPLE}"),
            EXAMPLE.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            EXAMPLE.replace("00f067aa0ba902b7", &"0".repeat(16)),
            EXAMPLE.replace("4bf9", "+bf9"),
            EXAMPLE.replace("-01", "-1"),
            EXAMPLE[..53].to_owned(),
        ];
        for value in invalid {
            assert_eq!(parse(&[&value]), None, "{value:?}");
        }
        assert_eq!(parse(&[EXAMPLE, EXAMPLE]), None, "two fields");
        assert_eq!(parse(&[]), None);
    }

    proptest! {
        #[test]
        fn origin_reads_what_the_gateway_writes(
            parent in proptest::option::of((1..=u128::MAX, 1..=u64::MAX, any::<bool>())),
            random: [u64; 3],
            is_sampled: bool,
        ) {
            let parent = parent.map(|(trace_id, span_id, is_sampled)| Parent { trace_id, span_id, is_sampled });
            let context = TraceContext::new(parent, random, is_sampled);
            let mut text = String::new();
            context.write_traceparent(&mut text).expect("writes to a string");
            let read = parse(&[&text]).expect("a valid parent");
            prop_assert_eq!(read, Parent { trace_id: context.trace_id, span_id: context.origin_span_id(), is_sampled });
            prop_assert_eq!(parent.map(|parent| parent.trace_id).unwrap_or(read.trace_id), read.trace_id);
            prop_assert_ne!(context.origin_span_id(), context.span_id);
        }

        #[test]
        fn no_bytes_make_the_parser_fail(bytes: Vec<u8>) {
            let _ = Parent::parse([bytes.as_slice()].into_iter());
        }
    }
}
