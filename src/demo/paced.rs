//! The same day under learned pacing: a replay of the day before, from which it learns, and of this day.

use super::config::{self, QUOTA};
use super::traffic::{DAY_START, DemoRequest, UnitsByHour};
use super::{day, log};
use anyhow::{Result, anyhow};
use std::io::Cursor;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_policy::address_lists::AddressLists;
use tidegate_replay::log::{LogSource, MergedLog};
use tidegate_replay::{Assumptions, Policy, Replay};

/// Returns the units charged in each hour of `requests`, the day after another one with other requests of the same kind.
pub(super) fn units_by_hour(requests: &[DemoRequest], seed: u64, scale: f64) -> Result<UnitsByHour> {
    let yesterday = day::generate(seed + 1, scale);
    let lines: String = log::lines(0, &yesterday).chain(log::lines(1, requests)).collect();
    // The replay neither listens nor connects.
    let [listen, admin, origin] = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let yaml = config::yaml(listen, admin, origin, Path::new("state"))
        .replace("    limit:", "    pacing: learned\n    limit:");
    let operators = OperatorTable::builtin();
    let names: Vec<&str> = operators.names().collect();
    let settings =
        tidegate_config::load(Path::new("(demo)"), &yaml, &[], &[], &names).map_err(|errors| anyhow!("{errors}"))?;
    let policy = Policy::new("demo".into(), settings, OperatorTable::builtin(), AddressLists::default());
    let source = LogSource::new("demo".into(), Box::new(Cursor::new(lines.into_bytes())));
    let replay = Replay {
        files: vec!["demo".into()],
        lines: MergedLog::new(vec![source], REORDER_WINDOW),
        reorder_window: REORDER_WINDOW,
        assumptions: Assumptions::default(),
    };
    let report = replay.run(policy, None, None, &mut |_| {})?;
    let mut units_by_hour = [0; 24];
    for hour in report.policies.iter().flat_map(|policy| &policy.hours) {
        let Some(hours) = (hour.start.seconds() / 3600).checked_sub(DAY_START.seconds() / 3600 + 24) else { continue };
        if let Some(units) = units_by_hour.get_mut(hours as usize) {
            *units +=
                hour.classes.iter().filter_map(|class| class.units.get(QUOTA)).map(|units| units.ceil()).sum::<u64>();
        }
    }
    Ok(units_by_hour)
}

/// The lines are in order.
const REORDER_WINDOW: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learned_pacing_leaves_units_to_the_evening() {
        let requests = day::generate(1, 0.25);
        let hours = units_by_hour(&requests, 1, 0.25).expect("a replay");
        let [first, last] = [&hours[..12], &hours[12..]].map(|half| half.iter().sum::<u64>());
        assert!(first + last <= config::LIMIT && last * 2 > first, "{hours:?}");
    }
}
