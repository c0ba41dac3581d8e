use super::Timestamp;
use super::accepted_codings::AcceptedCodings;
use super::range::{RequestedRange, requested_range};
use super::request_fields::{FetchField, fetch_field};
use super::status::HitDetail;
use super::storage::{StorageRequest, Unstorable, terms};
use super::validation;
use super::vary::{SelectingFields, normalized_value};
use super::{CacheStatus, ForwardReason, RequestDirectives, ResponseDirectives, Reuse, ReuseTerms};
use proptest::prelude::*;
use std::time::Duration;

mod exchange;
mod oracle_tests;
mod storage_tests;
mod wire_tests;

/// Time at which responses are received: 2026-11-24T12:00:00Z.
const RECEIVED: Timestamp = Timestamp::from_seconds(1_795_521_600);
const DATE: &str = "Tue, 24 Nov 2026 12:00:00 GMT";

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Returns the terms of a 200 with these fields.
fn terms_of(fields: &[(&str, &str)]) -> Result<ReuseTerms, Unstorable> {
    terms_with(fields, |_| {})
}

fn terms_with(fields: &[(&str, &str)], change: impl FnOnce(&mut StorageRequest)) -> Result<ReuseTerms, Unstorable> {
    let mut request = StorageRequest {
        is_no_store: false,
        has_authorization: false,
        has_cookies: false,
        requested_at: RECEIVED,
        received_at: RECEIVED,
        status: 200,
        default_lifetime: None,
        useful_stale: Duration::ZERO,
    };
    change(&mut request);
    terms(&request, &fields)
}
