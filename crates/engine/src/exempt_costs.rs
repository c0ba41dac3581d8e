//! Costs of exempt requests, by route. One that costs units, because the origin answers it with a page, makes those of its
//! route ordinary requests for a while: what is free must not be a way past a quota.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tidegate_policy::exempt::Exemption;
use tidegate_policy::{RouteId, Timestamp};

/// Time for which the exempt requests of a route are ordinary ones after one of them has cost units.
const ORDINARY_FOR: Duration = Duration::from_secs(3600);

/// Most exempt requests that wait for a response on a route where none has been answered. Each may turn out to cost units.
const MAX_IN_FLIGHT: usize = 32;

/// Costs of the requests of each exemption on each route.
pub(super) struct ExemptCosts(Vec<[Arc<ExemptRoute>; Exemption::ALL.len()]>);

#[derive(Default)]
struct ExemptRoute {
    in_flight: AtomicUsize,
    /// True if the origin has answered one without a cost, and none has cost units since.
    is_answered: AtomicBool,
    /// Time until which they are ordinary requests, in nanoseconds.
    ordinary_until: AtomicU64,
}

/// An exempt request that waits for its response, until dropped.
pub struct ExemptGuard(Arc<ExemptRoute>);

impl ExemptCosts {
    /// Returns those of `routes` routes, of which none has cost units.
    pub(super) fn new(routes: usize) -> Self {
        Self((0..routes).map(|_| Exemption::ALL.map(|_| Arc::default())).collect())
    }

    /// Returns true if such a request of `route` has cost units lately.
    pub(super) fn are_ordinary(&self, exemption: Exemption, route: RouteId, now: Timestamp) -> bool {
        now.0 < self.of(exemption, route).ordinary_until.load(Ordering::Relaxed)
    }

    /// Begins an exempt request of `route`; `None` if too many wait for a response, and the origin has answered none.
    pub(super) fn begin(&self, exemption: Exemption, route: RouteId) -> Option<ExemptGuard> {
        let exempt = self.of(exemption, route);
        let guard = ExemptGuard(Arc::clone(exempt));
        let others = exempt.in_flight.fetch_add(1, Ordering::Relaxed);
        (others < MAX_IN_FLIGHT || exempt.is_answered.load(Ordering::Relaxed)).then_some(guard)
    }

    /// Records that the origin has answered such a request of `route`, and that it cost nothing.
    pub(super) fn record_answer(&self, exemption: Exemption, route: RouteId) {
        self.of(exemption, route).is_answered.store(true, Ordering::Relaxed);
    }

    /// Records that such a request of `route` has cost units. Returns true for the first since they were free.
    pub(super) fn record_cost(&self, exemption: Exemption, route: RouteId, now: Timestamp) -> bool {
        let (exempt, until) = (self.of(exemption, route), (now + ORDINARY_FOR).0);
        exempt.is_answered.store(false, Ordering::Relaxed);
        exempt.ordinary_until.fetch_max(until, Ordering::Relaxed) <= now.0
    }

    fn of(&self, exemption: Exemption, route: RouteId) -> &Arc<ExemptRoute> {
        &self.0[route.index()][exemption as usize]
    }
}

impl Drop for ExemptGuard {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_policy::exempt::Exemption::{AcmeChallenge, Preflight};

    const ROUTE: RouteId = RouteId(1);

    #[test]
    fn requests_of_a_route_are_exempt_again_an_hour_after_one_cost_units() {
        let costs = ExemptCosts::new(2);
        let at = Timestamp::from_seconds;
        let are_ordinary = |seconds| costs.are_ordinary(Preflight, ROUTE, at(seconds));
        assert!(!are_ordinary(10));
        assert!(costs.record_cost(Preflight, ROUTE, at(10)));
        assert!(!costs.record_cost(Preflight, ROUTE, at(20)), "known");
        assert!(are_ordinary(3619) && !are_ordinary(3620));
        assert!(!costs.are_ordinary(Preflight, RouteId(0), at(20)), "another route");
        assert!(!costs.are_ordinary(AcmeChallenge, ROUTE, at(20)), "another exemption");
        assert!(costs.record_cost(Preflight, ROUTE, at(3620)));
    }

    #[test]
    fn few_exempt_requests_of_a_route_wait_for_its_first_answer() {
        let costs = ExemptCosts::new(2);
        let guards: Vec<_> = std::iter::from_fn(|| costs.begin(Preflight, ROUTE)).collect();
        assert_eq!(guards.len(), MAX_IN_FLIGHT);
        assert!(costs.begin(Preflight, RouteId(0)).is_some() && costs.begin(AcmeChallenge, ROUTE).is_some());
        drop(guards);
        assert!(costs.begin(Preflight, ROUTE).is_some());
        costs.record_answer(Preflight, ROUTE);
        let answered: Vec<_> = (0..2 * MAX_IN_FLIGHT).map_while(|_| costs.begin(Preflight, ROUTE)).collect();
        assert_eq!(answered.len(), 2 * MAX_IN_FLIGHT, "those of many users at once");
        costs.record_cost(Preflight, ROUTE, Timestamp(0));
        assert!(costs.begin(Preflight, ROUTE).is_none());
    }
}
