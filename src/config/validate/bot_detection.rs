//! How bots are found that say they are browsers.

use super::diagnostics::Diagnostics;
use crate::config::raw;
use crate::config::raw::classes::Kind;
use crate::policy::bot_detection::BotDetection;
use std::time::Duration;

const THRESHOLD: u16 = 100;
const HALF_LIFE: Duration = Duration::from_secs(24 * 60 * 60);
const MAX_CLIENTS: u32 = 200_000;

pub(super) fn bot_detection(raw: &raw::File, trap: Option<&str>, report: &mut Diagnostics) -> Option<BotDetection> {
    if raw.behaviour.enabled == Some(false) {
        warn_unused_keys(raw, trap, report);
    }
    let raw = &raw.behaviour;
    let half_life = raw.half_life.as_ref().map(|span| span.0);
    let behaviour = BotDetection {
        threshold: raw.threshold.as_ref().map_or(THRESHOLD, |points| points.0),
        half_life: report.nonzero_duration("behaviour.half_life", half_life, HALF_LIFE),
        max_clients: report.nonzero_count("behaviour.max_clients", raw.max_clients, MAX_CLIENTS) as usize,
        honeypot: trap.map(|trap| trap.trim_end_matches('/').to_owned()),
    };
    raw.enabled.unwrap_or(true).then_some(behaviour)
}

fn warn_unused_keys(raw: &raw::File, trap: Option<&str>, report: &mut Diagnostics) {
    if trap.is_some() {
        report.warning("robots.trap: nobody looks who falls into it, as behaviour.enabled is false");
    }
    if raw.agents.iter().any(|agent| agent.kind == Some(Kind::SuspectedBot)) {
        return;
    }
    for (place, class) in raw.classes.iter().enumerate().filter(|(_, class)| class.when.kind.0 == [Kind::SuspectedBot])
    {
        let name = class.name.as_deref().unwrap_or_default();
        report.warning(format!("classes[{place}] ({name}): nobody is suspected, as behaviour.enabled is false"));
    }
}
