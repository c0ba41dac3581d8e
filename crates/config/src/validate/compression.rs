//! Validates `compression`.

use super::diagnostics::Diagnostics;
use crate::raw::compression as raw;
use crate::setting_path::SettingPath;
use tidegate_http_cache::coding::Coding;
use tidegate_policy::compression::{CompressionRules, MediaTypePattern};

const DEFAULT_MIN_SIZE: u64 = 1024;
const DEFAULT_CODINGS: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];
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

/// Returns the rules; `None` without the section.
pub(super) fn compression(raw: Option<&raw::Compression>, report: &mut Diagnostics) -> Option<CompressionRules> {
    let raw::Compression(raw) = raw?;
    let path = SettingPath::ROOT.compression();
    let codings = match &raw.codings {
        None => DEFAULT_CODINGS.to_vec(),
        Some(codings) => codings.0.iter().map(coding).collect(),
    };
    if codings.is_empty() && !report.has_error_at(&path.codings()) {
        report.error(&path.codings(), "empty", "write [zstd, br, gzip], or leave the section out");
    }
    for (index, coding) in codings.iter().enumerate() {
        if codings[..index].contains(coding) {
            report.error(&path.codings(), format!("{} twice", coding.name()), "write each coding once");
        }
    }
    let types = match &raw.types {
        None => DEFAULT_TYPES.iter().filter_map(|text| MediaTypePattern::parse(text)).collect(),
        Some(types) => {
            if types.0.len() > MAX_TYPES {
                let needs = format!("{} types; at most {MAX_TYPES} are allowed", types.0.len());
                report.error(&path.types(), needs, "write fewer, with stars, such as text/*");
            }
            let types = types.0.iter().take(MAX_TYPES);
            types.filter_map(|text| media_type(text, &path.types(), report)).collect()
        }
    };
    let min_size = raw.min_size.as_ref().map_or(DEFAULT_MIN_SIZE, |size| size.0);
    Some(CompressionRules { codings, min_size, types })
}

fn coding(raw: &raw::ContentCoding) -> Coding {
    match raw {
        raw::ContentCoding::Br => Coding::Brotli,
        raw::ContentCoding::Gzip => Coding::Gzip,
        raw::ContentCoding::Zstd => Coding::Zstd,
    }
}

fn media_type(text: &str, path: &SettingPath, report: &mut Diagnostics) -> Option<MediaTypePattern> {
    let pattern = MediaTypePattern::parse(text);
    if pattern.is_none() {
        report.error(path, format!("{text:?} is no media type"), "write one such as text/html or text/*");
    }
    pattern
}
