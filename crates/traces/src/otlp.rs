//! Export over OTLP/HTTP in Protobuf (OpenTelemetry protocol 1.10). Attributes are those of the semantic conventions for HTTP
//! spans 1.43, and `tidegate.*`.

use super::spans::{OriginSpan, Spans};
use super::{ExportError, TraceContext};
use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::{Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tidegate_config::settings::{ReceiverUrl, Traces};
use tidegate_policy::Timestamp;
use tidegate_tls::{ServerTrust, client_config};

/// Time limit of one request to the collector.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Path of a collector where the URL has none.
const DEFAULT_PATH: &str = "/v1/traces";

/// Exporter to one collector.
#[derive(Debug)]
pub struct Exporter {
    url: ReceiverUrl,
    exporter: SpanExporter,
    /// Why the latest request has failed.
    failure: Arc<Mutex<Option<String>>>,
    scope: InstrumentationScope,
}

impl Exporter {
    /// Creates an exporter. The environment may have further header fields, such as a key (`OTEL_EXPORTER_OTLP_HEADERS`);
    /// returns an error if they are not valid.
    pub fn new(traces: &Traces) -> Result<Self, ExportError> {
        let url = traces.endpoint.clone();
        for name in ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"] {
            let fields = std::env::var_os(name).unwrap_or_default();
            check_fields(&fields.to_string_lossy())
                .map_err(|problem| ExportError { url: name.to_owned(), cause: problem })?;
        }
        let path = url.target.expose_secret();
        let endpoint = format!("{url}{}", if path == "/" { DEFAULT_PATH } else { path });
        let connector: HttpsConnector<HttpConnector> = HttpsConnectorBuilder::new()
            .with_tls_config(client_config(ServerTrust::public()))
            .https_or_http()
            .enable_http1()
            .build();
        let failure = Arc::<Mutex<Option<String>>>::default();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Collector {
                client: HyperClient::new(connector, TIMEOUT, None),
                failure: failure.clone(),
            })
            .with_endpoint(endpoint)
            .with_timeout(TIMEOUT)
            .build();
        let mut exporter = exporter.map_err(|error| error_of(&url, &error))?;
        let version = env!("CARGO_PKG_VERSION");
        exporter.set_resource(
            &Resource::builder()
                .with_service_name("tidegate")
                .with_attribute(KeyValue::new("service.version", version))
                .build(),
        );
        Ok(Self {
            url,
            exporter,
            failure,
            scope: InstrumentationScope::builder("tidegate").with_version(version).build(),
        })
    }

    /// Sends the spans to the collector. Returns an error if it does not accept them in time; they are lost then.
    pub async fn export(&self, requests: Vec<Spans>) -> Result<(), ExportError> {
        let batch = requests.into_iter().flat_map(|spans| self.data(spans)).collect();
        let result = self.exporter.export(batch).await;
        let failure = self.failure.lock().take();
        result.map_err(|error| match failure {
            Some(cause) => ExportError { url: self.url.to_string(), cause },
            None => error_of(&self.url, &error),
        })
    }

    fn data(&self, spans: Spans) -> impl Iterator<Item = SpanData> + use<> {
        let context = spans.context;
        let origin = spans.origin.clone().map(|origin| self.origin_span(&context, &spans.method, origin));
        [self.gateway_span(spans)].into_iter().chain(origin)
    }

    fn gateway_span(&self, spans: Spans) -> SpanData {
        let context = spans.context;
        let name = format!("{} {}", spans.method, spans.route);
        let (address, port) = address_and_port(&spans.host);
        let mut attributes = vec![
            KeyValue::new("http.request.method", spans.method),
            KeyValue::new("http.route", spans.route),
            KeyValue::new("http.response.status_code", i64::from(spans.status)),
            KeyValue::new("http.response.body.size", i64::try_from(spans.bytes).unwrap_or(i64::MAX)),
            KeyValue::new("network.protocol.version", spans.version),
            KeyValue::new("server.address", address.to_owned()),
            KeyValue::new("url.path", spans.path),
            KeyValue::new("user_agent.original", spans.user_agent),
            KeyValue::new("client.address", spans.client.to_string()),
            KeyValue::new("tidegate.decision", format!("{:016x}", spans.decision)),
            KeyValue::new("tidegate.class", spans.class),
            KeyValue::new("tidegate.kind", spans.kind),
        ];
        attributes.extend(spans.scheme.map(|scheme| KeyValue::new("url.scheme", scheme)));
        attributes.extend(port.map(|port| KeyValue::new("server.port", i64::from(port))));
        if let Some(reason) = spans.refusal {
            attributes.push(KeyValue::new("tidegate.reason", reason.name()));
        }
        // A status 4xx is no error of a server.
        let is_error = spans.status >= 500;
        let span = Span {
            id: context.span_id,
            parent: context.parent_span_id,
            is_parent_remote: context.parent_span_id.is_some(),
            kind: SpanKind::Server,
            name,
            started_at: spans.started_at,
            duration: spans.duration,
            error: is_error.then(|| spans.status.to_string()),
        };
        self.span(&context, span, attributes)
    }

    fn origin_span(&self, context: &TraceContext, method: &str, origin: OriginSpan) -> SpanData {
        let mut attributes = vec![KeyValue::new("http.request.method", method.to_owned())];
        if let Some(status) = origin.status {
            attributes.push(KeyValue::new("http.response.status_code", i64::from(status)));
        }
        if let Some(name) = origin.name {
            attributes.push(KeyValue::new("tidegate.origin", name));
        }
        let error = match origin.status {
            None => Some("no_response".to_owned()),
            Some(status) => (status >= 400).then(|| status.to_string()),
        };
        let span = Span {
            id: context.origin_span_id(),
            parent: Some(context.span_id),
            is_parent_remote: false,
            kind: SpanKind::Client,
            name: method.to_owned(),
            started_at: origin.started_at,
            duration: origin.duration,
            error,
        };
        self.span(context, span, attributes)
    }

    fn span(&self, context: &TraceContext, span: Span, mut attributes: Vec<KeyValue>) -> SpanData {
        let status = if span.error.is_some() { Status::error("") } else { Status::Unset };
        attributes.extend(span.error.map(|error| KeyValue::new("error.type", Value::from(error))));
        let trace_id = TraceId::from_bytes(context.trace_id.to_be_bytes());
        let id = |id: u64| SpanId::from_bytes(id.to_be_bytes());
        let (flags, state) = (TraceFlags::SAMPLED, TraceState::default());
        let start_time = system_time(span.started_at);
        SpanData {
            span_context: SpanContext::new(trace_id, id(span.id), flags, false, state),
            parent_span_id: span.parent.map_or(SpanId::INVALID, id),
            parent_span_is_remote: span.is_parent_remote,
            span_kind: span.kind,
            name: span.name.into(),
            start_time,
            end_time: start_time + span.duration,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

/// HTTP client of the exporter, which itself says of each failure to connect or to answer "network error".
#[derive(Debug)]
struct Collector {
    client: HyperClient<HttpsConnector<HttpConnector>>,
    failure: Arc<Mutex<Option<String>>>,
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let result = self.client.send_bytes(request).await;
        *self.failure.lock() = result.as_ref().err().map(|error| causes(error.as_ref()));
        result
    }
}

/// Returns an error with what has caused it.
fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Returns an error for what the environment has as header fields, `api-key=...,other=...`, if the exporter would leave out one of
/// them, or if one breaks its messages.
fn check_fields(fields: &str) -> Result<(), String> {
    const OF_EXPORTER: [HeaderName; 5] = [CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING];
    for field in fields.split(',').map(str::trim).filter(|field| !field.is_empty()) {
        let Some((name, value)) = field.split_once('=') else {
            return Err("a field has no `=`; write it like api-key=VALUE".to_owned());
        };
        match HeaderName::from_bytes(name.trim().as_bytes()) {
            Err(_) => return Err(format!("{:?} is no name of a field; write it like api-key=VALUE", name.trim())),
            Ok(name) if OF_EXPORTER.contains(&name) => {
                return Err(format!("{name} is a field that the exporter sets; remove it"));
            }
            Ok(name) if HeaderValue::from_str(value.trim()).is_err() => {
                return Err(format!("the value of {name} has characters that a field cannot have; remove them"));
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// What a span has besides its attributes.
struct Span {
    id: u64,
    parent: Option<u64>,
    is_parent_remote: bool,
    kind: SpanKind,
    name: String,
    started_at: Timestamp,
    duration: Duration,
    /// Value of `error.type`.
    error: Option<String>,
}

/// Returns the address and the port of a host such as `example.com:8080`.
fn address_and_port(host: &str) -> (&str, Option<u16>) {
    let parts = host.rsplit_once(':').and_then(|(address, port)| Some((address, port.parse().ok()?)));
    parts.map_or((host, None), |(address, port)| (address, Some(port)))
}

fn system_time(time: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(time.0)
}

fn error_of(url: &ReceiverUrl, error: &dyn std::error::Error) -> ExportError {
    ExportError { url: url.to_string(), cause: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_split_into_address_and_port() {
        for (host, parts) in [
            ("example.com", ("example.com", None)),
            ("example.com:8080", ("example.com", Some(8080))),
            ("[2001:db8::1]", ("[2001:db8::1]", None)),
            ("[2001:db8::1]:443", ("[2001:db8::1]", Some(443))),
            ("example.com:99999", ("example.com:99999", None)),
            (":", (":", None)),
        ] {
            assert_eq!(address_and_port(host), parts, "{host}");
        }
    }

    #[test]
    fn fields_of_the_environment_are_sent_or_reported() {
        for fields in ["", "api-key=a", "api-key=a%20b, x-scope = b ,", "authorization=Basic YTpi=="] {
            assert_eq!(check_fields(fields), Ok(()), "{fields}");
        }
        for (fields, problem) in [
            ("secret", "a field has no `=`"),
            ("a=b,na me=v", "\"na me\" is no name of a field"),
            ("a=x\ny", "the value of a has"),
            ("Host=evil", "host is a field that the exporter sets"),
            ("content-length=3", "content-length is a field that the exporter sets"),
        ] {
            let error = check_fields(fields).expect_err(fields);
            assert!(error.starts_with(problem) && !error.contains("secret"), "{error}");
        }
    }
}
