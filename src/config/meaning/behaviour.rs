//! How bots are found that say they are browsers.

use super::report::Report;
use crate::config::raw::behaviour as raw;
use crate::policy::behaviour::Behaviour;
use std::time::Duration;

const THRESHOLD: u16 = 100;
const HALF_LIFE: Duration = Duration::from_secs(24 * 60 * 60);
const MAX_CLIENTS: u32 = 200_000;

pub(super) fn behaviour(raw: &raw::Behaviour, trap: Option<&str>, report: &mut Report) -> Option<Behaviour> {
    let threshold = raw.threshold.unwrap_or(THRESHOLD);
    if !(50..=1000).contains(&threshold) {
        report.mistake(
            "behaviour.threshold",
            format!("found {threshold}, needs 50 to 1000"),
            "write 100, or `enabled: false` to suspect nobody",
        );
    }
    let half_life = raw.half_life.as_ref().map(|span| span.0);
    let behaviour = Behaviour {
        threshold,
        half_life: report.lasting("behaviour.half_life", half_life, HALF_LIFE),
        max_clients: report.count("behaviour.max_clients", raw.max_clients, MAX_CLIENTS) as usize,
        trap: trap.map(|trap| trap.trim_end_matches('/').to_owned()),
    };
    if raw.enabled == Some(false) && trap.is_some() {
        report.note("robots.trap: nobody looks who falls into it, as behaviour.enabled is false");
    }
    raw.enabled.unwrap_or(true).then_some(behaviour)
}
