//! Spikes of demand as sentences.

use super::format::amount;
use super::report::{SpenderReport, SpikeReport};
use super::terminal::ellipsize;
use tidegate_policy::Timestamp;

/// Returns a spike as text: how much was asked for, by whom, and for what.
pub(super) fn describe(spike: &SpikeReport, format_time: impl Fn(Timestamp) -> String) -> String {
    let SpikeReport { start, end, units_asked, peak, usual, clients, paths } = spike;
    let [start, end] = [start, end].map(|time| format_time(*time));
    let (units, usual_units) = (amount(*units_asked), amount(*usual));
    let ratio = peak.as_f64() / usual.as_f64().max(0.001);
    let mut text = format!(
        "{start} to {end}: {units} units asked for, up to {ratio:.0} times the usual {usual_units} of a quarter of an hour"
    );
    for (heading, spenders) in [("by", clients), ("for", paths)] {
        if !spenders.is_empty() {
            let names: Vec<String> = spenders.iter().map(name).collect();
            text.push_str(&format!("; {heading} {}", names.join(", ")));
        }
    }
    text
}

/// Returns a spender and its units, like `192.0.2.7 (human, 3,100)`.
fn name(spender: &SpenderReport) -> String {
    let kind = spender.kind.map_or(String::new(), |kind| format!("{}, ", kind.replace('_', " ")));
    format!("{} ({kind}{})", ellipsize(&spender.name, MAX_NAME), amount(spender.units_asked))
}

/// Maximum length of a path, in characters.
const MAX_NAME: usize = 60;
