//! Messages of HTTP: targets, fields and bodies of requests and responses, and the documents that the gateway makes itself.

pub(in crate::gateway) mod compressor;
pub(in crate::gateway) mod cost;
pub(in crate::gateway) mod crawl_delay;
pub(in crate::gateway) mod crawl_policy;
pub(in crate::gateway) mod error_pages;
pub(in crate::gateway) mod forward_auth;
pub(in crate::gateway) mod header_rules;
pub(in crate::gateway) mod headers;
pub(in crate::gateway) mod html;
pub(in crate::gateway) mod json;
pub(in crate::gateway) mod page_url;
pub(in crate::gateway) mod problem;
pub(in crate::gateway) mod quota_sync;
pub(in crate::gateway) mod relay;
pub(in crate::gateway) mod response_body;
pub(in crate::gateway) mod scratch;
pub(in crate::gateway) mod site;
pub(in crate::gateway) mod target;
pub(in crate::gateway) mod tunnel;
