//! Sections whose keys are declared once, as values with their defaults, and their conversion to rules.

pub(super) mod api_keys;
pub(super) mod crawl_policy;
pub(super) mod headers;
pub(super) mod limits;
pub(super) mod quotas;
pub(super) mod sessions;
