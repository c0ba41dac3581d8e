//! Serializes times, amounts and shares of reports.

use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::time::Duration;
use tidegate_access_log as access_log;
use tidegate_policy::tier::Share;
use tidegate_policy::{Timestamp, Units};

pub(crate) fn rfc3339<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&access_log::rfc3339(*time))
}

pub(super) fn optional_rfc3339<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(access_log::rfc3339).serialize(serializer)
}

pub(super) fn units<S: Serializer>(units: &Units, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(units.as_f64())
}

pub(super) fn units_by_name<S: Serializer>(units: &BTreeMap<String, Units>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(units.iter().map(|(name, units)| (name, units.as_f64())))
}

pub(super) fn share<S: Serializer>(share: &Share, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(share.ratio())
}

pub(super) fn optional_seconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs()).serialize(serializer)
}

pub(super) fn milliseconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64() * 1000.0)
}
