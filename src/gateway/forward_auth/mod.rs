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

pub(super) use asked_request::{AskedRequestError, Naming, asked_head};
pub(super) use endpoint::{ProxyEndpoint, RefusalForm, endpoint};
pub(super) use peer::may_ask;
pub(super) use pending_decisions::{PendingDecisions, ReportedCosts, SettledCosts};
pub(super) use settlement::{MAX_SETTLEMENT_SIZE, Settlement, SettlementError};
pub(super) use web_page::{WebPageError, check_no_web_page};
