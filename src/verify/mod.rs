//! Proof that a crawler is whose it claims to be.
//!
//! Published address ranges decide at once. What they leave open is asked of DNS, in the background: a request reads what
//! is known by now and never waits, and a crawler that is not known yet is what it says, unproven. Lists are refreshed
//! in the background, too, and so are the keys of agents that sign their requests.
//!
//! The table of operators is here, because it says what proves what. The product tokens in it are handed to `agents`
//! by whoever builds both; neither module knows the other.

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
pub use operator_config::{OperatorOverride, OperatorProofMethod};
pub use operator_table::{OperatorTable, OperatorTableError};
pub use range_list::{RangeListError, parse as read_list};
pub use range_refresher::{RangeRefresher, validate_file};
pub use range_source::RangeSource;
