//! The access log line: one JSON object per request.
//!
//! A worker fills in a [`Record`] when a request is over, or a [`RejectedRecord`] for an invalid one, and a [`LineWriter`] writes it, as
//! JSON or in the combined format. [`read`] parses it. [`fields`] documents every field.

mod combined;
mod evidence;
pub mod fields;
mod json;
mod line;
mod number_text;
pub mod read;
mod record;
mod redaction;
#[doc(hidden)]
pub mod sample;
mod timestamp;

pub use evidence::EvidenceWord;
pub use line::LineWriter;
pub use number_text::hexadecimal;
pub use record::{
    CLIENT_CLOSED_REQUEST, NameResolver, QuotaCharge, Record, RecordedClient, RecordedDecision, RecordedMore,
    RecordedOutcome, RecordedRequest, RecordedResponse, RecordedUnits, RejectedRecord, ResponseCut, UnexpectedCost,
    UpstreamCall,
};
pub use redaction::{redacted, redacted_url};
pub use timestamp::{rfc3339, rfc3339_exact};
