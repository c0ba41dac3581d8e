//! Export of the spans that the workers queue.

use super::ServiceState;
use crate::telemetry::metrics::TRACED_REQUESTS;
use metrics::counter;
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_config::settings::Traces;
use tidegate_traces::{ExportError, Exporter};
use tracing::{info, warn};

/// Interval at which spans are exported.
const EXPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Exports between two lines of the log about failures, at most one in a minute.
const FAILURES_PER_LINE: u64 = 60;

/// Returns an error if `traces` of the settings cannot work.
pub fn check(settings: &Settings) -> Result<(), ExportError> {
    settings.traces.as_ref().map_or(Ok(()), |traces| Exporter::new(traces).map(drop))
}

/// The exporter, and the settings that it is of.
#[derive(Default)]
pub(super) struct TraceExport {
    exporter: Option<(Traces, Exporter)>,
    /// Exports that failed since the last that succeeded.
    failures: u64,
}

impl TraceExport {
    /// Returns the exporter of these settings.
    fn exporter(&mut self, traces: Option<Traces>) -> Option<&Exporter> {
        if self.exporter.as_ref().map(|(traces, _)| traces) != traces.as_ref() {
            self.failures = 0;
            // What cannot be built was reported when the settings were loaded.
            self.exporter = traces.and_then(|traces| Some((traces.clone(), Exporter::new(&traces).ok()?)));
        }
        self.exporter.as_ref().map(|(_, exporter)| exporter)
    }
}

impl ServiceState {
    /// Exports spans every second, until dropped.
    pub(super) async fn run_trace_export(&self) {
        let mut ticks = tokio::time::interval(EXPORT_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.export_spans().await;
        }
    }

    /// Exports what waits. Spans that the collector does not accept are lost, and counted.
    pub(super) async fn export_spans(&self) {
        let export = &mut *self.trace_export.lock().await;
        let traces = self.handle.with_settings(|settings| settings.traces.clone());
        let (spans, mut dropped) = self.telemetry.take_spans();
        let Some(exporter) = export.exporter(traces) else { return };
        let (count, mut exported) = (spans.len() as u64, 0);
        if count > 0 {
            match exporter.export(spans).await {
                Ok(()) => {
                    exported = count;
                    if std::mem::take(&mut export.failures) > 0 {
                        info!("Traces are exported again");
                    }
                }
                Err(error) => {
                    dropped += count;
                    if export.failures.is_multiple_of(FAILURES_PER_LINE) {
                        warn!("Traces are lost: {error}");
                    }
                    export.failures += 1;
                }
            }
        }
        self.telemetry.record(|| {
            counter!(TRACED_REQUESTS, "result" => "exported").increment(exported);
            counter!(TRACED_REQUESTS, "result" => "dropped").increment(dropped);
        });
    }
}
