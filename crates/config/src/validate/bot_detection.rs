//! Validates `bot_detection`.

use super::diagnostics::Diagnostics;
use crate::raw;
use crate::raw::classes::Kind;
use crate::setting_path::SettingPath;
use tidegate_policy::bot_detection::BotDetection;

pub(super) fn bot_detection(raw: &raw::File, honeypot: Option<&str>, report: &mut Diagnostics) -> Option<BotDetection> {
    let keys = &raw.bot_detection;
    if !keys.enabled {
        warn_unused_keys(raw, honeypot, report);
        return None;
    }
    Some(BotDetection {
        threshold: keys.threshold.try_into().unwrap_or(u16::MAX),
        half_life: keys.half_life,
        max_clients: keys.max_clients,
        honeypot: honeypot.map(|honeypot| honeypot.trim_end_matches('/').to_owned()),
    })
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
