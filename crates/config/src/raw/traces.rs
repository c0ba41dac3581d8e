//! Raw section `traces`.

use crate::scalars::{Percent, Span};
use crate::section::{any, section};
use std::time::Duration;
use tidegate_policy::tier::Share;

section! {
    /// Export of traces.
    pub(crate) struct TracesKeys {
        /// URL of the collector, which takes OTLP over HTTP, such as http://127.0.0.1:4318; without a path, /v1/traces is added.
        /// The environment variable OTEL_EXPORTER_OTLP_HEADERS has fields to send it, such as a key. Required.
        endpoint: Option<String>;
        /// Share of requests that are exported. A sender in clients.trusted_proxies that says in `traceparent` whether it
        /// records the trace decides instead. Refusals, responses from 500 on and slow requests are exported in any case, as far
        /// as the collector keeps up; a metric counts those that are not.
        sample: Share = Share::from_millionths(10_000) => Percent, any;
        /// Time in the queue and at the origin, until the head of its response, from which a request is slow.
        slow: Duration = Duration::from_secs(1) => Span, any;
    }
}
