//! Policy: facts in, verdict out. Pure: no I/O, no clock, no locks; random numbers only from a given seed.
//!
//! A request passes these modules: [`identity`] finds the client behind proxies; [`class`] classifies it by claim,
//! proof and [`bot_detection`]; [`route`] selects the route and its [`cost`]; [`decide`] evaluates the rules in order;
//! [`quota_state`] counts the units taken; [`throttle`] limits the load on the origin. The leaves ([`bucket`],
//! [`tier`], [`window`], [`quota`]) take values and return values.

pub mod address_lists;
pub mod admin_session;
pub mod api_keys;
pub mod bot_detection;
pub mod bucket;
pub mod budget;
pub mod cache;
pub mod class;
pub mod compression;
pub mod cost;
pub mod crawl_delay;
pub mod crawler_guard;
pub mod decide;
pub mod display;
pub mod dns_pattern;
pub mod exempt;
pub mod facts;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
mod free_shapes;
pub mod hash;
pub mod identity;
mod ids;
pub mod key_lease;
pub mod key_usage;
pub mod lease;
pub mod name_pattern;
pub mod network;
pub mod network_origin;
pub mod network_table;
pub mod own_hosts;
pub mod pacing;
pub mod path;
pub mod path_costs;
pub mod path_shape;
pub mod promise;
pub mod purpose;
pub mod query;
pub mod quota;
pub mod quota_state;
pub mod quota_sync;
pub mod reason;
mod refused_quotas;
mod replaced_windows;
pub mod request_body;
pub mod request_fields;
pub mod rng;
pub mod route;
mod rules;
pub mod secret;
pub mod session;
pub mod switches;
pub mod terms;
pub mod throttle;
pub mod tier;
pub mod time;
pub mod units;
pub mod web_page;
pub mod window;
pub mod words;

pub use class::{Classification, ClientKind};
pub use decide::{Refusal, Verdict};
pub use facts::{Claim, ClientEvidence, ClientFacts, Facts, Proof, ProofMethod, RequestFacts, Signature};
pub use ids::{BotId, ClassId, ListId, OperatorId, OriginId, QuotaId, RouteId, ScopeId, StableClassId};
pub use reason::Reason;
pub use refused_quotas::RefusedQuotas;
pub use rules::Rules;
pub use tidegate_http_cache::Timestamp;
pub use units::Units;
