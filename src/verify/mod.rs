//! Proof that a crawler is whose it claims to be.
//!
//! Published address ranges decide at once. What they leave open is asked of DNS, in the background: a request reads what
//! is known by now and never waits, and a crawler that is not known yet is what it says, unproven. Lists are refreshed
//! in the background, too, and so are the keys of agents that sign their requests.
//!
//! The table of operators is here, because it says what proves what. The product tokens in it are handed to `agents`
//! by whoever builds both; neither module knows the other.

mod copies;
pub mod fetch;
mod list;
mod names;
mod operators;
mod ranges;
mod refresh;
pub mod signature;
mod source;
mod table;

pub use list::{Unusable, read as read_list};
pub use names::{ByName, Dns, DnsError, Names};
pub use operators::{Mistake, Operators};
pub use refresh::{Refresh, trouble_with};
pub use source::Source;
pub use table::{Declared, Method};
