//! Raw section `compression`.

use crate::scalars::Size;
use crate::section::{FromWritten, any, section};
use crate::serde_forms::{OneOrMany, word_or_keys};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_http_cache::coding::Coding;
use tidegate_policy::compression::MediaTypePattern;

const DEFAULT_TYPES: [&str; 8] = [
    "text/*",
    "application/javascript",
    "application/json",
    "application/xml",
    "application/*+json",
    "application/*+xml",
    "application/wasm",
    "image/svg+xml",
];
/// Most media types.
const MAX_TYPES: usize = 64;

/// Compression of responses: on, or keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compression(pub CompressionKeys);

section! {
    /// Compression of responses.
    pub(crate) struct CompressionKeys {
        /// Content codings: one, or a list with the preferred one first. A client gets the one to which it gives the
        /// greatest weight, and of several such the first.
        codings: Vec<Coding> = vec![Coding::Zstd, Coding::Brotli, Coding::Gzip] => OneOrMany<ContentCoding>, distinct_codings;
        /// Smallest body that is compressed.
        min_size: u64 = 1024 => Size, any;
        /// Media types that are compressed: one, or a list; a star is any text. Event streams are compressed if they are
        /// named in full.
        types: Vec<MediaTypePattern> = parse_types(&DEFAULT_TYPES) => OneOrMany<String>, media_types;
    }
}

#[derive(Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ContentCoding {
    Br,
    Gzip,
    Zstd,
}

fn distinct_codings(
    OneOrMany(codings): &OneOrMany<ContentCoding>,
    _: Option<&OneOrMany<ContentCoding>>,
) -> Option<String> {
    if codings.is_empty() {
        return Some("empty; write [zstd, br, gzip], or leave the section out".to_owned());
    }
    let repeated = codings.iter().enumerate().find(|(index, coding)| codings[..*index].contains(coding));
    repeated.map(|(_, coding)| format!("{} twice; write each coding once", Coding::from(*coding).name()))
}

fn media_types(OneOrMany(types): &OneOrMany<String>, _: Option<&OneOrMany<String>>) -> Option<String> {
    let count = types.len();
    if count > MAX_TYPES {
        return Some(format!(
            "{count} types; at most {MAX_TYPES} are allowed; write fewer, with stars, such as text/*"
        ));
    }
    let invalid = types.iter().find(|text| MediaTypePattern::parse(text).is_none());
    invalid.map(|text| format!("{text:?} is no media type; write one such as text/html or text/*"))
}

fn parse_types<T: AsRef<str>>(types: &[T]) -> Vec<MediaTypePattern> {
    types.iter().filter_map(|text| MediaTypePattern::parse(text.as_ref())).collect()
}

impl From<ContentCoding> for Coding {
    fn from(coding: ContentCoding) -> Self {
        match coding {
            ContentCoding::Br => Self::Brotli,
            ContentCoding::Gzip => Self::Gzip,
            ContentCoding::Zstd => Self::Zstd,
        }
    }
}

impl FromWritten<OneOrMany<ContentCoding>> for Vec<Coding> {
    fn from_written(OneOrMany(codings): OneOrMany<ContentCoding>) -> Self {
        codings.into_iter().map(Coding::from).collect()
    }

    fn to_written(&self) -> Option<OneOrMany<ContentCoding>> {
        let all = [ContentCoding::Br, ContentCoding::Gzip, ContentCoding::Zstd];
        let written = |coding: &Coding| all.into_iter().find(|written| Coding::from(*written) == *coding);
        Some(OneOrMany(self.iter().filter_map(written).collect()))
    }
}

impl FromWritten<OneOrMany<String>> for Vec<MediaTypePattern> {
    fn from_written(OneOrMany(types): OneOrMany<String>) -> Self {
        parse_types(&types)
    }

    fn to_written(&self) -> Option<OneOrMany<String>> {
        Some(OneOrMany(self.iter().map(MediaTypePattern::text).collect()))
    }
}

word_or_keys! {
    Compression, "on or keys; use on or { codings: [br, gzip] }":
    "on" => Self::default(),
    CompressionKeys => Self
}
