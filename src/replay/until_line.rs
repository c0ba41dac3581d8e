//! One line of a log: all that came before it is replayed, then somebody looks at what it finds.

use super::decision::Decided;
use super::observer::{Asking, Listener};
use super::log::{Line, Place};
use super::policy::Policy;
use super::request::Request;
use super::run::{Failed, Replay, WATCH_EVERY, Watcher};
use super::simulator::Trial;

impl Replay {
    /// Replays all that comes before the line at `place`, and lets `look` see its request; nothing where nobody decides about
    /// it.
    pub fn up_to<T>(
        mut self,
        place: Place,
        policy: Policy,
        look: impl FnOnce(&Asking<'_, '_>) -> T,
        watch: &mut Watcher<'_>,
    ) -> Result<Option<T>, Failed> {
        let mut sought = Sought { place, look: Some(look), seen: None };
        let (mut waiting, mut trial) = (Some(policy), None);
        loop {
            if self.lines.counts.lines.is_multiple_of(WATCH_EVERY) {
                watch(&self.lines.counts);
            }
            let Some(next) = self.lines.next_line()? else { return Ok(None) };
            let Ok(Some(line)) = Line::read(next.text) else { continue };
            let Some(request) = Request::of(&line) else { continue };
            if let Some(policy) = waiting.take() {
                trial = Some(Trial::new(policy, &self.assumptions, next.at));
            }
            trial.iter_mut().for_each(|trial| trial.take_heard(next, &line, &request, &mut sought));
            if sought.seen.is_some() {
                return Ok(sought.seen);
            }
        }
    }
}

/// Waits for one line.
struct Sought<L, T> {
    place: Place,
    look: Option<L>,
    seen: Option<T>,
}

impl<T, L: FnOnce(&Asking<'_, '_>) -> T> Listener for Sought<L, T> {
    fn asked(&mut self, asking: &Asking<'_, '_>) {
        if asking.place == self.place
            && let Some(look) = self.look.take()
        {
            self.seen = Some(look(asking));
        }
    }

    fn decided(&mut self, _trial: &Trial, _decided: &Decided) {}
}
