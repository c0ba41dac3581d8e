//! Checked settings of a quota: limit, window, and the tiers of each class.

use super::Timestamp;
use super::budget::{Budget, Payer};
use super::class::Class;
use super::ids::ClassId;
use super::key_usage::KeyWindows;
use super::pacing::Pacing;
use super::tier::TierSet;
use super::units::Units;
use super::window::{Span, Window};

/// A quota: units that may be used per window.
#[derive(Clone, Debug)]
pub struct Quota {
    /// Name in YAML, metrics, headers and logs.
    pub name: String,
    /// Limit per window, in units.
    pub limit: Units,
    /// Budgets of the keys that the limit holds for; `None` if it holds for all requests together.
    pub budget: Option<Budget>,
    /// Units of a window that one client may use, by [`Self::client_limit_of`]; `None` for no limit.
    pub client_limit: Option<Units>,
    /// Succession of windows.
    pub window: Window,
    /// False for shadow mode: refusals are counted and logged, not enforced, and the quota may be overspent.
    pub enforce: bool,
    /// Response header in which the origin reports the actual cost.
    pub cost_header: Option<http::HeaderName>,
    /// Paths in the body of a response at which the origin reports the actual cost; the numbers add up.
    pub cost_json: Vec<BodyCostPath>,
    /// Trailer in which the origin reports the actual cost.
    pub cost_trailer: Option<http::HeaderName>,
    /// True if a response from the origin's own cache costs nothing.
    pub free_when_cached: bool,
    /// Source of the origin's own count, if it reports one.
    pub sync_from: Option<SyncFrom>,
    /// Pacing of the remaining units, if enabled.
    pub pacing: Option<Pacing>,
    /// Tiers of each class, by [`ClassId`]. A class without tiers is refused only when no units are left.
    pub class_tiers: Vec<Option<ClassTiers>>,
}

/// Path of a number in the body of a response, and what it costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyCostPath {
    /// Path in JSON, such as `usage.total_tokens`.
    pub path: String,
    /// Units that the number 1 costs.
    pub weight: Units,
}

/// Response headers and content in which an origin reports its own count of a quota.
#[derive(Clone, Debug)]
pub struct SyncFrom {
    /// Response header with the units left.
    pub remaining_header: Option<http::HeaderName>,
    /// Response header with the reset time.
    pub reset_header: Option<http::HeaderName>,
    /// Responses that report the quota as exhausted.
    pub exhausted: Option<ExhaustedRule>,
}

/// Responses that report a quota as exhausted. Status and text must both match.
#[derive(Clone, Debug)]
pub struct ExhaustedRule {
    /// Matching status codes.
    pub statuses: Vec<u16>,
    /// Text of such a response, if required.
    pub text: Option<ExhaustedText>,
}

/// Text of a response that reports a quota as exhausted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExhaustedText {
    /// The text.
    pub text: String,
    /// Where in the response it counts.
    pub place: TextPlace,
}

impl ExhaustedText {
    /// Returns true if the place of the text is named, so that a response does not quote it elsewhere.
    pub fn has_place(&self) -> bool {
        self.place != TextPlace::Anywhere
    }
}

/// Part of a response in which a text counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextPlace {
    /// A header value, or near the beginning of the body.
    Anywhere,
    /// A value of this header.
    Header(http::HeaderName),
    /// The whole value at this JSON Pointer (RFC 6901) in the body.
    Json(String),
}

/// Tiers of one class in one quota.
#[derive(Clone, Debug)]
pub struct ClassTiers {
    /// Tiers, lowest first.
    pub tiers: TierSet,
    /// False for shadow mode: refusals are counted and logged, not enforced.
    pub enforce: bool,
}

/// Number of steps of the recorded usage of a client that its share has at least, in all windows or parts that are counted
/// together. A kill costs a client one of them, and a network as much for each of its clients: those of the 65,536 /64 networks of
/// an IPv6 network one share at most, of its [eight](super::key_usage::CLIENTS_OF_NETWORK).
const STEPS_OF_SHARE: u64 = 65_536;

impl Quota {
    /// Returns an enforced quota of which only the limit refuses requests.
    pub fn new(name: &str, limit: Units, window: Window) -> Self {
        Self {
            name: name.to_owned(),
            limit,
            budget: None,
            client_limit: None,
            window,
            enforce: true,
            cost_header: None,
            cost_json: Vec::new(),
            cost_trailer: None,
            free_when_cached: false,
            sync_from: None,
            pacing: None,
            class_tiers: Vec::new(),
        }
    }

    /// Returns the windows in which the usage of each key is counted: those of the quota, unless each budget has its own, or usage
    /// slides.
    pub fn key_windows(&self) -> KeyWindows {
        match self.window {
            Window::Sliding { length, .. } => KeyWindows::sliding(length),
            Window::FirstUse { length } if self.budget.is_some() => KeyWindows::FirstUse { length },
            _ => KeyWindows::OfQuota,
        }
    }

    /// Returns the units of which the recorded usage of a key is a multiple, so that most requests of a client change no record: a
    /// power of two, so that each is a multiple of smaller ones. Budgets and small shares of clients are recorded exactly.
    pub fn record_step(&self) -> Units {
        let limit = self.client_limit.filter(|_| self.budget.is_none()).unwrap_or_default();
        let step = limit.floor() / (STEPS_OF_SHARE * self.key_windows().tables() as u64);
        step.checked_ilog2().filter(|log| *log > 0).map_or(Units::from_milli(1), |log| Units::from_whole(1 << log))
    }

    /// Returns a span of time that contains `time`, after which windows of keys have ended that had not before it: a window of the
    /// quota, a part of a sliding one, or as much of a window that keys open.
    pub fn history_span(&self, time: Timestamp) -> Span {
        let parts = match self.key_windows() {
            KeyWindows::FirstUse { length } => KeyWindows::sliding(length),
            windows => windows,
        };
        parts.span(time.0).unwrap_or_else(|| self.window.span(time))
    }

    /// Returns true if the origin reports what responses cost.
    pub fn has_reported_costs(&self) -> bool {
        self.cost_header.is_some() || self.has_costs_after_head()
    }

    /// Returns true if the origin reports what a response cost after its head: in its body or its trailers.
    pub fn has_costs_after_head(&self) -> bool {
        !self.cost_json.is_empty() || self.cost_trailer.is_some()
    }

    /// Returns the limit per window of a request of `class` that `payer` pays for.
    pub fn limit_of(&self, class: ClassId, payer: Payer) -> Units {
        self.budget.as_ref().map_or(self.limit, |it| it.limit(class, it.key(class, payer), self.limit))
    }

    /// Returns the highest cost that a request of `class` may state: what the one who pays, or one client, may use of a window. It
    /// can only be served if no more is reserved.
    pub fn highest_stated(&self, class: ClassId, payer: Payer) -> Units {
        let limit = self.limit_of(class, payer);
        self.client_limit.map_or(limit, |client_limit| client_limit.min(limit))
    }

    /// Returns the units of a window that one client of the class may use, if they are limited.
    pub fn client_limit_of(&self, class: &Class) -> Option<Units> {
        self.client_limit.filter(|_| class.has_client_limits)
    }

    /// Returns the tiers of `class`, if any.
    pub fn tiers_for(&self, class: ClassId) -> Option<&TierSet> {
        self.class_tiers(class).map(|tiers| &tiers.tiers)
    }

    /// Returns true if refusals by tier are enforced for `class`.
    pub fn enforced_for(&self, class: ClassId) -> bool {
        self.enforce && self.class_tiers(class).is_none_or(|tiers| tiers.enforce)
    }

    /// Returns the pacing, if enforced.
    pub fn enforced_pacing(&self) -> Option<&Pacing> {
        self.pacing.as_ref().filter(|pacing| self.enforce && pacing.enforce)
    }

    /// Returns the usage that tiers count: zero while usage is not ahead of the pacing plan, so that only tiers from
    /// the first unit on apply; otherwise `taken`.
    pub fn used_for_tiers(&self, taken: Units, is_ahead: Option<bool>) -> Units {
        match (self.enforced_pacing(), is_ahead) {
            (Some(_), Some(false)) => Units::ZERO,
            _ => taken,
        }
    }

    /// Returns the usage from which on every request of `class` is refused: its shutoff tier, at most the limit. A
    /// paced class has only the limit, since the plan suspends tiers above the first unit.
    pub fn shutoff_level(&self, class: ClassId) -> Units {
        let paced = self.enforced_pacing().is_some_and(|pacing| pacing.is_paced(class));
        let enforced = self.class_tiers(class).filter(|_| self.enforced_for(class) && !paced);
        enforced.and_then(|tiers| tiers.tiers.shutoff_at()).map_or(self.limit, |level| level.min(self.limit))
    }

    fn class_tiers(&self, class: ClassId) -> Option<&ClassTiers> {
        self.class_tiers.get(class.index()).and_then(Option::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use crate::pacing::PacingRole;
    use std::num::NonZeroU32;
    use std::time::Duration;

    const CLASS: ClassId = ClassId(0);

    fn quota(shutoff: u64, enforce_tiers: bool, pacing: Option<Pacing>) -> Quota {
        let quota = fixtures::quota("api", 1000);
        let tiers = fixtures::class_tiers(quota.limit, &[(10, 50), (shutoff, 100)]);
        Quota { class_tiers: vec![Some(ClassTiers { enforce: enforce_tiers, ..tiers })], pacing, ..quota }
    }

    #[test]
    fn pacing_is_enforced_only_if_quota_and_pacing_are() {
        for (quota_enforces, pacing_enforces) in [(true, true), (true, false), (false, true), (false, false)] {
            let pacing = Pacing { enforce: pacing_enforces, ..fixtures::pacing(&[]) };
            let quota = Quota { enforce: quota_enforces, ..quota(900, true, Some(pacing)) };
            let is_enforced = quota_enforces && pacing_enforces;
            assert_eq!(quota.enforced_pacing().is_some(), is_enforced);
            let used = |is_ahead| quota.used_for_tiers(Units::from_whole(7), is_ahead).floor();
            assert_eq!([Some(false), Some(true), None].map(used), [if is_enforced { 0 } else { 7 }, 7, 7]);
        }
    }

    #[test]
    fn large_shares_of_clients_are_recorded_in_steps_of_a_small_part() {
        let step = |quota: &Quota, share: u64| {
            Quota { client_limit: Some(Units::from_whole(share)), ..quota.clone() }.record_step()
        };
        let exact = Units::from_milli(1);
        let quota = fixtures::quota("api", 1000);
        let length = Duration::from_secs(60);
        let sliding = Quota { window: Window::Sliding { length, sub_windows: 60 }, ..quota.clone() };
        assert_eq!(quota.record_step(), exact);
        for (quota, largest_exact) in [(&quota, (4 << 16) - 1), (&sliding, (28 << 16) - 1)] {
            assert_eq!([0, 100, largest_exact].map(|share| step(quota, share)), [exact; 3]);
            for share in (largest_exact + 1..=1 << 50).step_by(77_777_777_777_777).chain([1 << 50]) {
                let tables = quota.key_windows().tables() as u64;
                let of_all_tables = step(quota, share).floor() * tables;
                assert!(of_all_tables <= share >> 16 && of_all_tables > share >> 18, "{share}");
            }
        }
    }

    #[test]
    fn shutoff_level_is_the_enforced_shutoff_tier_of_an_unpaced_class() {
        let level = |quota: &Quota| quota.shutoff_level(CLASS).floor();
        assert_eq!(level(&quota(900, true, None)), 900);
        assert_eq!(level(&quota(2000, true, None)), 1000, "at most the limit");
        assert_eq!(level(&quota(900, false, None)), 1000, "tiers in shadow mode");
        assert_eq!(level(&Quota { enforce: false, ..quota(900, true, None) }), 1000, "quota in shadow mode");
        assert_eq!(level(&Quota { class_tiers: Vec::new(), ..quota(900, true, None) }), 1000);
        for (role, expected) in
            [(PacingRole::Paced(NonZeroU32::MIN), 1000), (PacingRole::Unpaced, 900), (PacingRole::Excluded, 900)]
        {
            assert_eq!(level(&quota(900, true, Some(fixtures::pacing(&[role])))), expected, "{role:?}");
        }
    }
}
