//! Traces of requests: their context, the choice of those that are exported, and the export.
//!
//! A request costs a few numbers until it has ended. Then [`Choice`] decides, with all that is known, whether it becomes
//! [`Spans`]; the gateway keeps these in bounded queues, from which [`Exporter`] sends them to a collector.

mod choice;
mod context;
#[cfg(feature = "otlp")]
mod otlp;
mod spans;

pub use choice::{Choice, QUEUE_LENGTH, SpanQueue};
pub use context::{Parent, TraceContext};
pub use spans::{OriginSpan, Spans};

#[cfg(feature = "otlp")]
pub use otlp::Exporter;
#[cfg(not(feature = "otlp"))]
pub use without_otlp::MissingExporter as Exporter;

/// Reason why spans were not exported.
#[derive(Debug, thiserror::Error)]
#[error("{url}: {cause}")]
pub struct ExportError {
    url: String,
    cause: String,
}

/// The exporter of a build without the feature `otlp`.
#[cfg(not(feature = "otlp"))]
mod without_otlp {
    use super::{ExportError, Spans};
    use tidegate_config::settings::Traces;

    /// Exporter of no spans.
    #[derive(Debug)]
    pub enum MissingExporter {}

    impl MissingExporter {
        /// Returns an error: the program has no exporter.
        pub fn new(traces: &Traces) -> Result<Self, ExportError> {
            let cause = "this program was built without the feature otlp; build it with --features otlp".to_owned();
            Err(ExportError { url: traces.endpoint.to_string(), cause })
        }

        /// Exports nothing.
        pub async fn export(&self, _: Vec<Spans>) -> Result<(), ExportError> {
            match *self {}
        }
    }
}
