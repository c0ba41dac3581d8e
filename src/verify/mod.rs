//! Proof that a crawler is whose it claims to be.
//!
//! Published address ranges decide at once. What they leave open is asked of DNS, in the background: a request reads what
//! is known by now and never waits, and a crawler that is not known yet is what it says, unproven. Lists are refreshed
//! in the background, too, and so are the keys of agents that sign their requests.
//!
//! The table of operators is here, because it says what proves what. The product tokens in it are handed to `agents`
//! by whoever builds both; neither module knows the other.

mod range_cache;
pub mod fetch;
mod range_list;
mod dns;
mod operator_table;
mod ranges;
mod range_refresher;
pub mod signature;
mod range_source;
mod operator_config;

pub use range_list::{RangeListError, parse as read_list};
pub use dns::{DnsResult, Resolver, ResolverError, DnsVerifier};
pub use operator_table::{OperatorTableError, OperatorTable};
pub use range_refresher::{RangeRefresher, validate_file};
pub use range_source::RangeSource;
pub use operator_config::{OperatorOverride, OperatorProofMethod};
