//! Certificates from an ACME server (RFC 8555).
//!
//! [`AcmeOrder`] orders one certificate: it opens the [`account`](account::open), answers the challenges through
//! [`PendingChallenges`](tidegate_tls::PendingChallenges) or DNS records ([`DnsHook`]), and returns key and chain. [`RenewalSchedule`] says when the next
//! attempt is due. The time of a schedule is a parameter, and so is its jitter; the network is behind [`AcmeClient`].

mod account;
mod challenge;
mod client;
mod error;
mod hook;
mod order;
mod schedule;

pub use challenge::{Challenge, ChallengeKind};
pub use client::AcmeClient;
pub use error::{FailedStage, OrderError};
pub use hook::{DnsHook, HookTurn};
pub use order::{AcmeOrder, IssuedCertificate, Publish};
pub use schedule::RenewalSchedule;
