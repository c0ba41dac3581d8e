//! Summary of compression.

use crate::scalars::Size;
use tidegate_policy::compression::{CompressionRules, MediaTypePattern};

/// Describes the compression of responses.
pub(super) fn compression(rules: Option<&CompressionRules>) -> String {
    let Some(CompressionRules { codings, min_size, types }) = rules else { return "off".to_owned() };
    let codings: Vec<&str> = codings.iter().map(|coding| coding.name()).collect();
    let types: Vec<String> = types.iter().map(MediaTypePattern::text).collect();
    format!("{} for bodies of {} and more: {}", codings.join(", "), Size(*min_size), types.join(", "))
}
