//! Replays a log up to one line and examines its request before the decision.

use super::log::{LinePosition, ProgressCallback};
use super::observer::{Observer, PendingRequest};
use super::policy::Policy;
use super::request::ReplayRequest;
use super::run::{Replay, ReplayError};
use super::simulator::Simulator;
use std::ops::ControlFlow;

impl Replay {
    /// Replays all lines before the one at `position` and passes its request to `examine`. Returns `None` if the log
    /// ends first, or if the line contains no request to decide.
    pub fn run_until<T>(
        self,
        position: LinePosition,
        policy: Policy,
        examine: impl FnOnce(&PendingRequest<'_, '_>) -> T,
        watch: &mut ProgressCallback<'_>,
    ) -> Result<Option<T>, ReplayError> {
        let mut observer = LineObserver { position, examine: Some(examine), result: None };
        let (mut pending_policy, mut simulator) = (Some(policy), None);
        let assumptions = &self.assumptions;
        let found = self.lines.try_for_each(watch, |next, line| {
            let Some(request) = ReplayRequest::from_line(line) else { return ControlFlow::Continue(()) };
            if let Some(policy) = pending_policy.take() {
                simulator = Some(Simulator::new(policy, assumptions, next.at));
            }
            simulator.iter_mut().for_each(|simulator| simulator.process_observed(next, line, &request, &mut observer));
            observer.result.take().map_or(ControlFlow::Continue(()), ControlFlow::Break)
        })?;
        Ok(found.break_value())
    }
}

/// Observer that waits for one line.
struct LineObserver<L, T> {
    position: LinePosition,
    examine: Option<L>,
    result: Option<T>,
}

impl<T, L: FnOnce(&PendingRequest<'_, '_>) -> T> Observer for LineObserver<L, T> {
    fn before_decision(&mut self, request: &PendingRequest<'_, '_>) {
        if request.position == self.position
            && let Some(examine) = self.examine.take()
        {
            self.result = Some(examine(request));
        }
    }
}
