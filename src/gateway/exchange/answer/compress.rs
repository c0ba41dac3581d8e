//! Compression of responses for clients that accept it: the choice of the coding, and the fields that say so.

use crate::gateway::cache::{CopyBody, MessageFields, StoredResponse, compressed_form};
use crate::gateway::exchange::journal::Journal;
use crate::gateway::message::compressor::Compressor;
use http::{StatusCode, Version};
use tidegate_http_cache::FieldLines;
use tidegate_http_cache::coding::Coding;
use tidegate_http1::{Fields, Name, list};
use tidegate_policy::Rules;
use tidegate_policy::compression::CompressionRules;

/// Returns the compressor of a response that passes, and prepares its fields.
pub(in crate::gateway) fn encode_response(
    journal: &Journal,
    status: StatusCode,
    fields: &mut Fields,
) -> Option<Box<Compressor>> {
    let rules = compression_rules(journal)?;
    if status == StatusCode::NOT_MODIFIED {
        encode_not_modified(journal, fields);
        return None;
    }
    let length = fields.get(Name::ContentLength).and_then(|length| std::str::from_utf8(length).ok()?.parse().ok());
    let coding = coding_for(journal, rules, status, fields, length)?;
    let max_memory = journal.worker().compressor_memory(&journal.known.config.settings.limits);
    let compressor = Compressor::try_new(coding, max_memory, |bytes| journal.client.charge_memory(bytes))?;
    set_coding(fields, coding);
    Some(Box::new(compressor))
}

/// Gives a condition on a compressed form the validator of the origin from which the gateway made it: a weak one never matches
/// (RFC 9110 section 13.1.1).
pub(in crate::gateway) fn restore_validators(rules: &Rules, fields: &mut Fields) {
    const IF_MATCH: &str = "if-match";
    if rules.compression.is_none() || fields.get_all_by_text(IF_MATCH).next().is_none() {
        return;
    }
    let lines = MessageFields(fields);
    let members = lines.members(IF_MATCH).map(|etag| etag.strip_prefix(b"W/").unwrap_or(etag));
    let restored = members.collect::<Vec<_>>().join(&b", "[..]);
    fields.retain(|field| !field.text.eq_ignore_ascii_case(IF_MATCH.as_bytes()));
    fields.append_text(IF_MATCH, &restored);
}

/// Gives a 304 the validator that the client has of the compressed form (RFC 9110 section 15.4.5).
pub(in crate::gateway) fn encode_not_modified(journal: &Journal, fields: &mut Fields) {
    if compression_rules(journal).is_none() {
        return;
    }
    let Some(etag) = fields.get(Name::ETag) else { return };
    let is_of_form = |member: &[u8]| member.strip_prefix(b"W/") == Some(etag);
    if MessageFields(journal.cache.client_fields(&journal.known.request)).members("if-none-match").any(is_of_form) {
        add_vary(fields);
        weaken_etag(fields);
    }
}

/// Returns the compressed body of `copy`, and prepares its fields; `None` if it is sent as it is.
pub(in crate::gateway) fn encode_copy(
    journal: &Journal,
    copy: &StoredResponse,
    fields: &mut Fields,
) -> Option<CopyBody> {
    let rules = compression_rules(journal)?;
    let coding = coding_for(journal, rules, copy.head.status, fields, Some(copy.body.len()))?;
    let body = compressed_form(&journal.worker().shared.cache, copy, coding)?;
    set_coding(fields, coding);
    Some(body)
}

/// Returns the coding for the client of a response that may be compressed. `length` is that of the body, if it is known. A
/// range is one of the body without a coding.
fn coding_for(
    journal: &Journal,
    rules: &CompressionRules,
    status: StatusCode,
    fields: &mut Fields,
    length: Option<u64>,
) -> Option<Coding> {
    if !rules.includes(status.as_u16(), &MessageFields(fields), length) {
        return None;
    }
    add_vary(fields);
    let client = journal.cache.client_fields(&journal.known.request);
    if client.contains(Name::Range) { None } else { rules.choose(&MessageFields(client)) }
}

/// Returns the rules for the request; `None` if its response is not compressed. Over HTTP/1.0, the end of a body of unknown
/// length is that of the connection, and a client could not see that it broke off.
fn compression_rules(journal: &Journal) -> Option<&CompressionRules> {
    let rules = journal.known.rules();
    let is_allowed = |_: &_| {
        rules[journal.known.classified.route].is_compressed && journal.known.request.head.version != Version::HTTP_10
    };
    rules.compression.as_ref().filter(is_allowed)
}

fn set_coding(fields: &mut Fields, coding: Coding) {
    fields.append(Name::ContentEncoding, coding.name().as_bytes());
    fields.remove(Name::ContentLength);
    // They may describe the bytes of the body: they are not sent.
    fields.remove(Name::Trailer);
    // Ranges are those of the body without a coding.
    fields.retain(|field| !field.text.eq_ignore_ascii_case(b"accept-ranges"));
    weaken_etag(fields);
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
