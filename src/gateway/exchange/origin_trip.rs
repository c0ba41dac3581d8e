//! The origin's part in a request on its way: permission to send it, slots, times, and what it cost.

use super::late_cost::LateCost;
use crate::gateway::message::quota_sync::BodyScan;
use crate::gateway::unknown_paths::UnknownPath;
use http::StatusCode;
use smallvec::SmallVec;
use std::time::Duration;
use tidegate_crawlers::robots::FetchSlot;
use tidegate_engine::{Charged, ExemptGuard, Permit, Receipt, SlotGuard};
use tidegate_policy::{QuotaId, Timestamp, Units};

/// What the origin has to do with a request.
pub(in crate::gateway) struct OriginTrip {
    pub(in crate::gateway) stage: OriginStage,
    pub(in crate::gateway) units: RequestUnits,
    /// Present for an exempt request that the origin answers, until its response.
    pub(in crate::gateway) exempt: Option<ExemptGuard>,
    /// State until the response of the origin, if the cost of the path is unknown.
    pub(in crate::gateway) unknown_path: UnknownPath,
    /// Slots in the scopes, held until the response is complete.
    slots: Option<SlotGuard>,
    /// Slot of the fetch of robots.txt whose response is streamed to the client.
    pub(in crate::gateway) fetch_slot: Option<FetchSlot>,
    /// True from sending the request until the origin has sent the whole response.
    is_in_flight: bool,
    pub(in crate::gateway) decided_at: Timestamp,
    /// Time the request waited for slots.
    pub(in crate::gateway) scope_wait: Duration,
    /// Time at which the request was received and had its slots.
    ready_at: Timestamp,
    /// Scans of the response body for the exhaustion text of a quota.
    pub(in crate::gateway) body_scans: Vec<BodyScan>,
    /// Costs that the rest of the response reports; `None` if its head said all.
    pub(in crate::gateway) late_cost: Option<Box<LateCost>>,
}

/// Stage of a request on its way to the origin and back.
#[derive(Clone, Copy)]
pub(in crate::gateway) enum OriginStage {
    /// Not sent: refused, waiting for slots, or responded to without the origin.
    Unsent,
    /// Waiting for the response head of the origin.
    Sent,
    /// Admitted for another proxy, which forwards it.
    Delegated {
        /// Time from the first byte of the request to the answer.
        answered_after: Duration,
    },
    /// The origin responded or failed.
    Answered {
        /// Status of the response; `None` after a failure.
        status: Option<u16>,
        duration: Duration,
    },
}

/// Units of a request: reserved until it is settled, then charged.
pub(in crate::gateway) enum RequestUnits {
    /// The request may be sent.
    Reserved(Permit),
    /// The request was refused, answered without the origin, or its cost is known.
    Settled(Receipt),
}

impl RequestUnits {
    /// Settles what is reserved with the receipt that `settle` returns.
    fn settle(&mut self, settle: impl FnOnce(Permit) -> Receipt) {
        if let Self::Reserved(_) = self
            && let Self::Reserved(permit) = std::mem::replace(self, Self::Settled(Receipt::new()))
        {
            *self = Self::Settled(settle(permit));
        }
    }

    /// Returns what was charged: nothing before the request is settled.
    pub(in crate::gateway) fn charges(&self) -> &[Charged] {
        match self {
            Self::Reserved(_) => &[],
            Self::Settled(receipt) => receipt,
        }
    }
}

impl From<Option<Permit>> for RequestUnits {
    fn from(permit: Option<Permit>) -> Self {
        permit.map_or_else(|| Self::Settled(Receipt::new()), Self::Reserved)
    }
}

impl OriginTrip {
    /// Returns the trip of a request decided at `decided_at`.
    pub(in crate::gateway) fn new(
        permit: Option<Permit>,
        exempt: Option<ExemptGuard>,
        unknown_path: UnknownPath,
        decided_at: Timestamp,
    ) -> Self {
        Self {
            stage: OriginStage::Unsent,
            units: permit.into(),
            exempt,
            unknown_path,
            slots: None,
            fetch_slot: None,
            is_in_flight: false,
            decided_at,
            scope_wait: Duration::ZERO,
            ready_at: decided_at,
            body_scans: Vec::new(),
            late_cost: None,
        }
    }

    /// Records that the request body was received, and that the request need not wait for the cost of its path.
    pub(in crate::gateway) fn end_reception(&mut self, now: Timestamp) {
        self.ready_at = now;
    }

    /// Records the end of the queue wait.
    pub(in crate::gateway) fn end_queue_wait(&mut self, now: Timestamp) {
        self.scope_wait = now.saturating_duration_since(self.ready_at);
        self.ready_at = now;
    }

    /// Records that the request is sent, and holds its slots.
    pub(in crate::gateway) fn begin(&mut self, slots: Option<SlotGuard>) {
        self.stage = OriginStage::Sent;
        self.slots = slots;
        self.is_in_flight = true;
    }

    /// Records the time of the response or failure.
    pub(in crate::gateway) fn answer(&mut self, now: Timestamp, status: Option<StatusCode>) {
        let status = status.map(|status| status.as_u16());
        self.stage = OriginStage::Answered { status, duration: self.time_at_origin(now) };
    }

    /// Releases the slots. Returns true if the request was in flight until now.
    pub(in crate::gateway) fn end(&mut self) -> bool {
        self.slots = None;
        std::mem::take(&mut self.is_in_flight)
    }

    /// Returns the slots of a request that was answered.
    pub(in crate::gateway) fn answered_slots(&self) -> Option<&SlotGuard> {
        self.slots.as_ref().filter(|_| matches!(self.stage, OriginStage::Answered { .. }))
    }

    /// Takes the slots of a request that was answered.
    pub(in crate::gateway) fn take_answered_slots(&mut self) -> Option<SlotGuard> {
        self.slots.take_if(|_| matches!(self.stage, OriginStage::Answered { .. }))
    }

    /// Returns the time since the request was sent.
    pub(in crate::gateway) fn time_at_origin(&self, now: Timestamp) -> Duration {
        now.saturating_duration_since(self.ready_at)
    }

    /// Settles the permit with the cost that `actual` returns for each quota.
    pub(in crate::gateway) fn settle(&mut self, actual: impl FnMut(QuotaId, Units) -> Units) {
        self.units.settle(|permit| permit.settle(actual));
    }

    /// Takes the reservations in quotas for which `is_late` returns true; they are settled apart.
    pub(in crate::gateway) fn split_off(&mut self, is_late: impl FnMut(QuotaId) -> bool) -> Option<Permit> {
        match &mut self.units {
            RequestUnits::Reserved(permit) => permit.split_off(is_late),
            RequestUnits::Settled(_) => None,
        }
    }

    /// Settles without a known cost: releases the reservation if the request was not sent, charges the expected cost
    /// otherwise. Others for the path need not wait for the request any longer.
    pub(in crate::gateway) fn settle_unknown(&mut self) {
        self.unknown_path = UnknownPath::None;
        self.units.settle(Permit::settle_unknown);
    }

    /// Adds charges that were not reserved.
    pub(in crate::gateway) fn charge(&mut self, charges: impl IntoIterator<Item = Charged>) {
        let charges: SmallVec<[Charged; 2]> = charges.into_iter().collect();
        match &mut self.units {
            RequestUnits::Settled(receipt) => receipt.extend(charges),
            RequestUnits::Reserved(_) => debug_assert!(charges.is_empty(), "charged before it is settled"),
        }
    }

    /// Returns the charge in a quota.
    pub(in crate::gateway) fn charged(&self, quota: QuotaId) -> Option<&Charged> {
        self.units.charges().iter().find(|charged| charged.quota == quota)
    }

    /// Returns true if units were charged for the request.
    pub(in crate::gateway) fn has_charges(&self) -> bool {
        self.units.charges().iter().any(|charged| !charged.settled.is_zero())
    }
}
