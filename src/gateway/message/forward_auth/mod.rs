//! Requests of other proxies, which ask whether they may forward a request of their client (forward auth, external
//! authorization). [`endpoint`] names what a request on the listener is for, [`asked_head`] returns the head of the request
//! that it asks about, and [`PendingDecisions`] keeps admitted requests until [`Settlement`] reports their cost.
//!
//! The handler decides on the request asked about by the same functions as on a request that it forwards.

mod asked_request;
mod endpoint;
mod peer;
mod pending_decisions;
mod settlement;
mod web_page;

pub(in crate::gateway) use asked_request::{AskedRequestError, Naming, asked_head};
pub(in crate::gateway) use endpoint::{ProxyEndpoint, RefusalForm, endpoint};
pub(in crate::gateway) use peer::may_ask;
pub(in crate::gateway) use pending_decisions::{PendingDecisions, ReportedCosts, SettledCosts};
pub(in crate::gateway) use settlement::{MAX_SETTLEMENT_SIZE, Settlement, SettlementError};
pub(in crate::gateway) use web_page::{WebPageError, check_no_web_page};
