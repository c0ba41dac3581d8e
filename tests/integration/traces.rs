//! Traces: the context of a request goes on to the origin and into the log, and its spans to a collector: a receiver of OTLP in
//! this file, because no package registry of the tests has a program of OpenTelemetry that receives.

use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, OriginConnection, ReceivedRequest, signal};
use crate::support::program::run;
use crate::support::wait::wait_until;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use parking_lot::Mutex;
use prost::Message;
use std::sync::Arc;
use std::time::Duration;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A collector on loopback, and the spans that it was sent.
struct Collector {
    server: Origin,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    fn accepting() -> Self {
        Self::with_script(|_, connection| connection.reply("200 OK", "Content-Type: application/x-protobuf\r\n", b""))
    }

    fn with_script(script: impl Fn(&ReceivedRequest, &mut OriginConnection) + Send + Sync + 'static) -> Self {
        let spans = Arc::<Mutex<Vec<Span>>>::default();
        let received = Arc::clone(&spans);
        let server = Origin::with_script(move |request, connection| {
            let body = connection.read_body(request);
            let export = ExportTraceServiceRequest::decode(&*body).expect("OTLP");
            let scopes = export.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
            received.lock().extend(scopes.flat_map(|scope| scope.spans));
            script(request, connection);
        });
        Self { server, spans }
    }

    /// Returns the YAML of `traces`, with `keys`.
    fn yaml(&self, keys: &str) -> String {
        format!("traces: {{ endpoint: \"http://{}\"{keys} }}\n", self.server.address())
    }

    /// Waits for `count` spans, and returns them.
    fn wait_for(&self, count: usize) -> Vec<Span> {
        wait_until(&format!("{count} spans"), || self.spans.lock().len() >= count);
        self.spans.lock().clone()
    }
}

const RULES: &str = "classes: []\n\
    clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.1/32] }\n\
    quotas: { api: { limit: 1, window: { fixed: 24h }, pacing: off, per_client: 100% } }\n\
    routes: [{ match: \"/item/*\", cost: { api: 1 } }]\n";

fn text<'a>(span: &'a Span, key: &str) -> &'a str {
    let attribute = span.attributes.iter().find(|attribute| attribute.key == key);
    match attribute.and_then(|attribute| attribute.value.as_ref()?.value.as_ref()) {
        Some(Attribute::StringValue(text)) => text,
        other => panic!("{key}: {other:?} of {span:?}"),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn request_of_a_trusted_sender_continues_its_trace() {
    let (origin, collector) = (Origin::plain(), Collector::accepting());
    let gateway = TestGateway::with_rules(origin.address(), &format!("{RULES}{}", collector.yaml(", sample: 0%")));
    let fields = format!("traceparent: {PARENT}\r\ntracestate: vendor=1\r\n");
    assert_eq!(gateway.connect().get("/item/1?key=secret", &fields).status, 200);
    let spans = collector.wait_for(2);
    let (server, client) = (&spans[0], &spans[1]);
    assert_eq!((server.kind(), client.kind()), (SpanKind::Server, SpanKind::Client));
    assert_eq!(
        (hexadecimal(&server.trace_id), hexadecimal(&server.parent_span_id)),
        (TRACE_ID.into(), PARENT[36..52].into())
    );
    assert_eq!((&client.trace_id, &client.parent_span_id), (&server.trace_id, &server.span_id));
    assert!(server.start_time_unix_nano <= client.start_time_unix_nano);
    assert!(client.end_time_unix_nano <= server.end_time_unix_nano, "{spans:?}");
    assert_eq!((server.name.as_str(), text(server, "url.path")), ("GET /item/*", "/item/1"));
    assert_eq!((text(server, "url.scheme"), text(server, "server.address")), ("http", "example.com"));
    assert!(!format!("{spans:?}").contains("secret"));

    let request = origin.last_request();
    let sent = format!("00-{TRACE_ID}-{}-01", hexadecimal(&client.span_id));
    assert_eq!((request.field("traceparent"), request.field("tracestate")), (sent.as_str(), "vendor=1"));
    assert_eq!(gateway.read_log()[0]["trace_id"], TRACE_ID);
}

#[test]
fn refusals_are_exported_and_name_their_trace() {
    let (origin, collector) = (Origin::plain(), Collector::accepting());
    let gateway = TestGateway::with_rules(origin.address(), &format!("{RULES}{}", collector.yaml(", sample: 0%")));
    let mut client = gateway.connect();
    assert_eq!(client.get("/item/1", "").status, 200, "not sampled");
    let refusal = client.get("/item/2", "");
    assert_eq!(refusal.status, 429);
    let spans = collector.wait_for(1);
    assert_eq!((spans.len(), text(&spans[0], "tidegate.reason")), (1, "client_share"));
    assert_eq!(refusal.json()["trace_id"], hexadecimal(&spans[0].trace_id));
    assert_eq!(text(&spans[0], "tidegate.decision"), refusal.field("x-tidegate-decision"));
    let (begun, unsampled) = (origin.last_request().field("traceparent").to_owned(), "-00");
    assert!(begun.starts_with("00-") && begun.ends_with(unsampled), "{begun}");
    drop(client);
    let ids: Vec<_> =
        gateway.read_log().iter().map(|line| line["trace_id"].as_str().expect("an id").to_owned()).collect();
    assert_eq!(ids, [begun[3..35].to_owned(), hexadecimal(&spans[0].trace_id)]);
}

#[test]
fn slow_requests_are_exported() {
    let (release, released) = signal();
    let (arrival, arrived) = signal();
    let origin = Origin::with_script(move |_, connection| {
        arrival.notify();
        released.wait();
        connection.reply("200 OK", "", b"page");
    });
    let collector = Collector::accepting();
    let rules = format!("classes: []\n{}", collector.yaml(", sample: 0%, slow: 2s"));
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let mut client = gateway.connect();
    for (target, duration) in [("/fast", Duration::from_millis(1999)), ("/slow", Duration::from_secs(2))] {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        arrived.wait();
        gateway.clock.advance(duration);
        release.notify();
        assert_eq!(client.read_response().status, 200);
    }
    drop(client);
    gateway.shut_down();
    let spans = collector.spans.lock();
    let of_gateway = spans.iter().filter(|span| span.kind() == SpanKind::Server);
    assert_eq!(of_gateway.map(|span| text(span, "url.path")).collect::<Vec<_>>(), ["/slow"], "{spans:?}");
}

#[test]
fn no_client_chooses_what_is_exported_or_keeps_a_state_without_its_trace() {
    let (origin, collector) = (Origin::plain(), Collector::accepting());
    let rules = collector.yaml(", sample: 0%") + "classes: []\nclients: { trusted_proxies: [] }\n";
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let mut client = gateway.connect();
    client.get("/", &format!("traceparent: {PARENT}\r\n"));
    let sent = origin.last_request().field("traceparent").to_owned();
    assert!(sent.starts_with(&PARENT[..36]) && sent.ends_with("-00"), "{sent}");
    for invalid in ["00-0-0-01", "x", &format!("{PARENT}\r\ntraceparent: {PARENT}")] {
        client.get("/", &format!("Traceparent: {invalid}\r\nTracestate: vendor=1\r\n"));
        let request = origin.last_request();
        assert!(!request.field("traceparent").contains(TRACE_ID), "{invalid}: {}", request.field("traceparent"));
        assert_eq!((request.field("traceparent").len(), request.field("tracestate")), (55, ""), "{invalid}");
    }
    gateway.shut_down();
    assert!(collector.spans.lock().is_empty(), "what is left is exported at the end, and nothing was chosen");
}

#[test]
fn collector_that_fails_or_hangs_holds_up_no_request() {
    let (release, released) = signal();
    let origin = Origin::plain();
    let collector = Collector::with_script(move |_, connection| {
        released.wait();
        connection.reply("503 Service Unavailable", "", b"");
    });
    let gateway = TestGateway::with_rules(origin.address(), &format!("{RULES}{}", collector.yaml(", sample: 100%")));
    let mut client = gateway.connect();
    assert_eq!(client.get("/item/1", "").status, 200);
    collector.wait_for(2);
    assert_eq!(client.get("/item/1", "").status, 429);
    release.notify();
    gateway.wait_for_metric("tidegate_traced_requests_total{result=\"dropped\"}", 1.0);
}

#[test]
fn endpoint_that_cannot_work_is_reported_with_its_place() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("gate.yaml");
    let check = |traces: &str| {
        std::fs::write(&file, format!("origin: http://127.0.0.1:1\ntraces: {traces}\n")).expect("file is writable");
        run(&["check", "--config", &file.display().to_string()], b"")
    };
    let outcome = check("{ endpoint: \"http://127.0.0.1:4318\" }");
    let line = "traces: 1% of requests, refusals, failures, and what takes 1s, to http://127.0.0.1:4318\n";
    assert!(outcome.output.contains(line), "{}", outcome.output);
    for (traces, error) in [
        ("{ sample: 5% }", "2:1: traces.endpoint: missing; name the URL of the collector"),
        (
            "{ endpoint: \"127.0.0.1:4318\" }",
            "traces.endpoint: not an https:// or http:// URL; write it like http://127.0.0.1:4318",
        ),
        ("{ endpoint: \"grpc://a\" }", "traces.endpoint: not an https:// or http:// URL"),
        ("{ endpoint: \"http://a\", sampel: 5% }", "unknown key \"sampel\""),
    ] {
        let outcome = check(traces);
        assert!(outcome.code == 2 && outcome.errors.contains(error), "{traces}: {} {}", outcome.code, outcome.errors);
    }
}
