//! Answers to a request, one file for each kind.

pub(in crate::gateway) mod acme_challenge;
pub(in crate::gateway) mod compress;
pub(in crate::gateway) mod copy;
pub(in crate::gateway) mod crawl_policy;
pub(in crate::gateway) mod delegate;
pub(in crate::gateway) mod document;
pub(in crate::gateway) mod fetch;
pub(in crate::gateway) mod head;
pub(in crate::gateway) mod origin;
pub(in crate::gateway) mod origin_cache;
pub(in crate::gateway) mod redirect;
pub(in crate::gateway) mod refusal;
pub(in crate::gateway) mod revalidation;
pub(in crate::gateway) mod robots;
pub(in crate::gateway) mod robots_fetch;
pub(in crate::gateway) mod tunnel;
pub(in crate::gateway) mod usage;
