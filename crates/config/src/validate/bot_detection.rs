//! Validates `bot_detection`.

use super::diagnostics::Diagnostics;
use crate::raw;
use crate::raw::classes::Kind;
use crate::setting_path::SettingPath;
use std::time::Duration;
use tidegate_policy::bot_detection::BotDetection;

const DEFAULT_THRESHOLD: u16 = 100;
const DEFAULT_HALF_LIFE: Duration = Duration::from_secs(24 * 60 * 60);
const DEFAULT_MAX_CLIENTS: u32 = 200_000;

pub(super) fn bot_detection(raw: &raw::File, honeypot: Option<&str>, report: &mut Diagnostics) -> Option<BotDetection> {
    if raw.bot_detection.enabled == Some(false) {
        warn_unused_keys(raw, honeypot, report);
    }
    let (raw, path) = (&raw.bot_detection, SettingPath::ROOT.bot_detection());
    let half_life = raw.half_life.as_ref().map(|span| span.0);
    let detection = BotDetection {
        threshold: raw.threshold.as_ref().map_or(DEFAULT_THRESHOLD, |points| points.0),
        half_life: report.nonzero_duration(&path.half_life(), half_life, DEFAULT_HALF_LIFE),
        max_clients: report.nonzero_count(&path.max_clients(), raw.max_clients, DEFAULT_MAX_CLIENTS) as usize,
        honeypot: honeypot.map(|honeypot| honeypot.trim_end_matches('/').to_owned()),
    };
    raw.enabled.unwrap_or(true).then_some(detection)
}

fn warn_unused_keys(raw: &raw::File, honeypot: Option<&str>, report: &mut Diagnostics) {
    if honeypot.is_some() {
        let path = SettingPath::ROOT.robots().honeypot();
        report.warning(format!("{path}: has no effect, because bot_detection.enabled is false"));
    }
    if raw.user_agent_rules.iter().any(|agent| agent.kind == Some(Kind::SuspectedBot)) {
        return;
    }
    for (index, class) in raw.classes.iter().enumerate().filter(|(_, class)| class.when.kind.0 == [Kind::SuspectedBot])
    {
        let name = class.name.as_deref().unwrap_or_default();
        let path = SettingPath::of_class(index);
        report.warning(format!("{path} ({name}): matches no client, because bot_detection.enabled is false"));
    }
}
