//! Scanner of a body that passes.

#[cfg(test)]
mod tests;

use crate::decoder::{BodyCoding, BodyDecoder, DecodeError};
use crate::events::EventScanner;
use crate::form::BodyForm;
use crate::found_cost::FoundCost;
use crate::json::JsonScanner;
use crate::lines::LineScanner;
use crate::path_set::CostPaths;

/// Most bytes of a coded body that are scanned, decoded: 64 MiB. A body that is not coded has no limit.
pub const MAX_DECODED: u64 = 64 << 20;
/// Most bytes to which a coded byte decodes on average, beyond [`MIN_LIMITED`]. JSON of models has half of that.
const MAX_RATIO: u64 = 64;
/// Decoded bytes up to which [`MAX_RATIO`] does not apply.
const MIN_LIMITED: u64 = 1 << 20;

/// Byte order mark, which may precede a document or a stream.
const BOM: &[u8; 3] = b"\xef\xbb\xbf";

/// Finds the cost that a body reports while the body passes.
///
/// Holds no part of the body but a key or number of at most 128 bytes. Occupies at most 64 KiB, apart from the window of a
/// decoder: 32 KiB for gzip and deflate, at most 8 MiB for Zstandard and 16 MiB for Brotli.
pub struct CostScanner {
    /// `None` if the body is not coded.
    decoder: Option<BodyDecoder>,
    body: DecodedBody,
    /// Bytes received of a coded body.
    coded_length: u64,
    /// Decoding failed, or the body is too long or is repetition alone.
    has_failed: bool,
}

/// Decoded body up to the last push.
struct DecodedBody {
    paths: CostPaths,
    documents: Documents,
    /// Length of a coded body.
    length: u64,
    /// Bytes of a [`BOM`] at the start; `None` behind it.
    bom_length: Option<usize>,
}

/// Scanner of the documents of a body, by its form.
enum Documents {
    Json(JsonScanner),
    Events(EventScanner),
    Lines(LineScanner),
}

impl CostScanner {
    /// Creates a scanner at the start of a body. `None` if `content_encoding` names an unknown coding or several.
    ///
    /// Empty and `identity` name no coding; the known ones are `gzip`, `x-gzip`, `deflate`, `br` and `zstd`.
    pub fn new(paths: CostPaths, form: BodyForm, content_encoding: &[u8]) -> Option<Self> {
        let decoder = BodyDecoder::new(BodyCoding::from_content_encoding(content_encoding)?).ok()?;
        let documents = match form {
            BodyForm::Json => Documents::Json(JsonScanner::new(&paths)),
            BodyForm::EventStream => Documents::Events(EventScanner::new(&paths)),
            BodyForm::Lines => Documents::Lines(LineScanner::new(&paths)),
        };
        let body = DecodedBody { paths, documents, length: 0, bom_length: Some(0) };
        Some(Self { decoder, body, coded_length: 0, has_failed: false })
    }

    /// Returns the paths whose numbers are the cost.
    pub fn paths(&self) -> &CostPaths {
        &self.body.paths
    }

    /// Scans the next bytes of the body, as they were received.
    pub fn push(&mut self, chunk: &[u8]) {
        if self.has_failed {
            return;
        }
        self.coded_length += chunk.len() as u64;
        let max_length = self.coded_length.saturating_mul(MAX_RATIO).clamp(MIN_LIMITED, MAX_DECODED);
        let result = match &mut self.decoder {
            Some(decoder) => decoder.push(chunk, |decoded| {
                self.body.length += decoded.len() as u64;
                match self.body.length > max_length {
                    true => Err(DecodeError),
                    false => {
                        self.body.push(decoded);
                        Ok(())
                    }
                }
            }),
            None => {
                self.body.push(chunk);
                Ok(())
            }
        };
        if result.is_err() {
            self.has_failed = true;
            self.decoder = None;
        }
    }

    /// Returns the bytes that the decoder occupies: its window, as far as the body has filled it.
    pub fn decoder_memory(&self) -> usize {
        self.decoder.as_ref().map_or(0, |decoder| decoder.memory(self.body.length))
    }

    /// Returns the cost that the bytes so far report, for a body that is abandoned.
    ///
    /// Only complete events and lines count. In a single document, each number counts once it is complete.
    pub fn found(&self) -> FoundCost {
        if self.has_failed { FoundCost::Malformed } else { self.body.found() }
    }

    /// Ends the body, and returns the cost that it reports.
    ///
    /// A document that is not complete is malformed. The last line needs no line end, but an event needs the empty line that
    /// ends it. Of a coded body that ends early, all that was decoded counts.
    pub fn finish(mut self) -> FoundCost {
        if self.has_failed { FoundCost::Malformed } else { self.body.finish() }
    }
}

impl DecodedBody {
    /// Scans the next bytes.
    fn push(&mut self, mut bytes: &[u8]) {
        while let (Some(length), [byte, rest @ ..]) = (self.bom_length, bytes) {
            if BOM[length] != *byte {
                self.bom_length = None;
                self.scan(&BOM[..length]);
                break;
            }
            self.bom_length = Some(length + 1).filter(|&length| length < BOM.len());
            bytes = rest;
        }
        self.scan(bytes);
    }

    fn scan(&mut self, bytes: &[u8]) {
        match &mut self.documents {
            Documents::Json(json) => json.push(&self.paths, bytes),
            Documents::Events(events) => events.push(&self.paths, bytes),
            Documents::Lines(lines) => lines.push(&self.paths, bytes),
        }
    }

    fn found(&self) -> FoundCost {
        let readings = match &self.documents {
            Documents::Json(json) if json.is_malformed() => return FoundCost::Malformed,
            Documents::Json(json) => json.readings(),
            Documents::Events(events) => events.readings(),
            Documents::Lines(lines) => lines.readings(),
        };
        readings.cost(&self.paths)
    }

    fn finish(&mut self) -> FoundCost {
        let is_truncated = match &mut self.documents {
            Documents::Json(json) => !json.is_blank() && !json.finish(&self.paths),
            Documents::Events(_) => false,
            Documents::Lines(lines) => {
                lines.end_line(&self.paths);
                false
            }
        };
        if is_truncated {
            return FoundCost::Malformed;
        }
        self.found()
    }
}
