//! Times at which far more units were asked for than usual.

use super::html::Html;
use super::time::TimeAxis;
use crate::report::SpikeReport;
use crate::spike_text;

/// Writes a sentence for each spike.
pub(super) fn write(out: &mut Html, spikes: &[SpikeReport], axis: TimeAxis<'_>) {
    if spikes.is_empty() {
        out.raw("<p>At no time was more than three times the usual demand.</p>\n");
        return;
    }
    out.raw("<ul>\n");
    for spike in spikes {
        out.raw("<li>").text(spike_text::describe(spike, |time| axis.format_time(time))).raw(".</li>\n");
    }
    out.raw("</ul>\n");
}
