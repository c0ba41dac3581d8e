//! Verification of crawlers: proof that a client belongs to the operator that it claims.
//!
//! Published address ranges decide at once. For other addresses, DNS is looked up in the background: a request reads
//! the cached result and never waits, and an unverified crawler counts as declared. Range lists and the keys of signing
//! agents are also refreshed in the background.
//!
//! The table of operators is here, because it defines the proofs. The caller passes its product tokens to
//! `user_agents`; neither module depends on the other.

pub mod api_key;
mod dns;
pub mod fetch;
mod operator_config;
mod operator_table;
mod range_cache;
mod range_list;
mod range_refresher;
mod range_source;
mod ranges;

pub mod signature;
pub use dns::{DnsResult, DnsVerifier, Resolver, ResolverError};
pub use operator_config::{OperatorOverride, OperatorTableError};
pub use operator_table::OperatorTable;
pub use range_list::{RangeListError, parse as read_list};
pub use range_refresher::{RangeRefresher, validate_file};
pub use range_source::RangeSource;
