use super::*;
use crate::LineWriter;
use crate::fields::LOG_FIELDS;
use crate::record::QuotaCharge;
use crate::sample::{sample_record, sample_with};
use serde_json::{Map, Value, json};
use tidegate_policy::Timestamp;

/// No field that is read has a list of lists as its value.
#[test]
fn every_documented_field_is_read_or_known_to_be_unused() {
    let line = full_line();
    let is_ignored = |name: &str| {
        let mut line = line.clone();
        line.insert(name.into(), json!([[]]));
        NativeLine::parse(&serde_json::to_vec(&line).expect("JSON")).is_ok()
    };
    let ignored: Vec<&str> = LOG_FIELDS.iter().map(|field| field.name).filter(|name| is_ignored(name)).collect();
    assert_eq!(ignored, UNUSED_FIELDS);
}

/// Returns a line with all fields.
fn full_line() -> Map<String, Value> {
    let charges = [QuotaCharge { retry_sequence: Some(6_050), ..sample_record().units.charges[0] }];
    let mut text = Vec::new();
    let record = sample_with(|it| it.units.charges = &charges);
    LineWriter::starting_at(Timestamp::default()).write_json(&mut text, &record);
    serde_json::from_slice(&text).expect("a JSON object")
}

/// Results that a replay computes again, or does not need.
const UNUSED_FIELDS: [&str; 11] = [
    "purpose",
    "trace_id",
    "operator",
    "route",
    "verdict",
    "guard_admitted",
    "bot_score",
    "bucket_seq",
    "origin",
    "total_ms",
    "cut",
];
