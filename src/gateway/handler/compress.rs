//! Compression of responses for clients that accept it: the choice of the coding, and the fields that say so.

use super::request_handler::RequestHandler;
use crate::gateway::cache::{CopyBody, FormRecorder, MessageFields, StoredResponse, find_form};
use crate::gateway::compressor::{self, Compressor};
use crate::gateway::request_context::RequestContext;
use crate::gateway::response_body::CopyCompression;
use http::StatusCode;
use tidegate_http1::{Fields, Name, list};
use tidegate_policy::compression::{Coding, CompressionRules};

/// Largest stored body that is compressed at once, in bytes: one that takes about a millisecond.
const MAX_WHOLE_BODY: u64 = 64 * 1024;

/// Returns the coding of a response to the request, and prepares its fields. `length` is that of the body, if it is
/// known.
pub(super) fn encode_head(
    context: &RequestContext,
    status: StatusCode,
    fields: &mut Fields,
    length: Option<u64>,
) -> Option<Coding> {
    let rules = compression_rules(context)?;
    if !rules.includes(status.as_u16(), &MessageFields(fields), length) {
        return None;
    }
    add_vary(fields);
    let coding = chosen_coding(context, rules)?;
    fields.append(Name::ContentEncoding, coding.name().as_bytes());
    fields.remove(Name::ContentLength);
    // They may describe the bytes of the body: they are not sent.
    fields.remove(Name::Trailer);
    // Ranges are those of the body without a coding.
    fields.retain(|field| !field.text.eq_ignore_ascii_case(b"accept-ranges"));
    weaken_etag(fields);
    Some(coding)
}

/// Prepares the fields of a 304 for a client that has or would get `copy` compressed: they are those of the 200.
pub(super) fn encode_head_of_304(context: &RequestContext, copy: &StoredResponse, fields: &mut Fields) {
    let Some(rules) = compression_rules(context) else { return };
    let (status, length) = (copy.head.status.as_u16(), copy.body.len());
    if rules.includes(status, &MessageFields(&copy.head.fields()), Some(length)) {
        add_vary(fields);
        chosen_coding(context, rules).into_iter().for_each(|_| weaken_etag(fields));
    }
}

impl RequestHandler {
    /// Returns the body of `copy` in `coding`, or as it is, with its compression.
    pub(super) fn encode_copy(
        &self,
        context: &RequestContext,
        copy: &StoredResponse,
        coding: Coding,
    ) -> (CopyBody, Option<Box<CopyCompression>>) {
        let shared = &self.worker.shared;
        if let Some(form) = find_form(shared, copy, coding) {
            return (form, None);
        }
        let max_body = context.current().settings.rules.cache.as_ref().map_or(0, |rules| rules.max_object);
        let mut recorder = FormRecorder::new(shared, copy, coding, max_body);
        let length = copy.body.len();
        if length <= MAX_WHOLE_BODY
            && let Some(parts) = copy.body.parts()
            && let Ok(body) = compressor::compress(coding, parts)
        {
            if recorder.push(&body) {
                recorder.finish();
            }
            return (CopyBody::One(body), None);
        }
        let compression = CopyCompression { compressor: new_compressor(context, coding), recorder: Some(recorder) };
        (copy.body.range(0, length), Some(Box::new(compression)))
    }
}

/// Returns a compressor, whose memory the connection is charged for.
pub(super) fn new_compressor(context: &RequestContext, coding: Coding) -> Compressor {
    Compressor::new(coding, context.charge_memory(compressor::memory(coding)))
}

/// Returns the rules for the request; `None` if its response is not compressed.
fn compression_rules(context: &RequestContext) -> Option<&CompressionRules> {
    let rules = &context.current().settings.rules;
    rules.compression.as_ref().filter(|_| rules[context.evaluation().route].is_compressed)
}

/// Returns the coding for the client. A range is one of the body without a coding.
fn chosen_coding(context: &RequestContext, rules: &CompressionRules) -> Option<Coding> {
    let fields = context.client_fields();
    if fields.contains(Name::Range) { None } else { rules.choose(&MessageFields(fields)) }
}

/// Adds that the response is selected by `Accept-Encoding`.
fn add_vary(fields: &mut Fields) {
    let is_named = |name: &[u8]| name.eq_ignore_ascii_case(b"accept-encoding") || name == b"*";
    if !fields.all(Name::Vary).flat_map(list).any(is_named) {
        fields.append(Name::Vary, b"Accept-Encoding");
    }
}

/// Makes the validator weak: the body is the same in meaning, not in bytes (RFC 9110 section 8.8.1).
fn weaken_etag(fields: &mut Fields) {
    let strong = fields.get(Name::ETag).filter(|etag| !etag.starts_with(b"W/"));
    if let Some(weak) = strong.map(|etag| [b"W/", etag].concat()) {
        fields.insert(Name::ETag, &weak);
    }
}
