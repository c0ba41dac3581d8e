//! A site behind a gateway that has settings and state, and neither listener nor origin: requests are passed to [`handle`] as
//! values. The origin has no address, so that whatever reaches it fails as if it were down.

use super::super::client_connection::ClientConnection;
use super::super::evaluate::evaluate;
use super::super::journal::Journal;
use super::super::known::Known;
use super::super::lookup::{CacheRole, cache_role};
use super::super::origin_head::{prepare_fetch, prepare_head};
use super::super::{handle, identify};
use crate::gateway::cache::{CacheFetch, FetchRules, Recorder, ResponseHead};
use crate::gateway::config::Config;
use crate::gateway::config::ConfigFiles;
use crate::gateway::message::headers::strip_admin_sessions;
use crate::gateway::message::response_body::ResponseBody;
use crate::gateway::message::target::{ClientRequest, Target};
use crate::gateway::shared::{Dependencies, Shared};
use crate::gateway::transport::client_body::ClientBody;
use crate::gateway::transport::connection_timeouts::ConnectionState;
use crate::gateway::transport::listener::ListenerOptions;
use crate::gateway::upstream::OriginServers;
use crate::gateway::worker::Worker;
use crate::telemetry::Telemetry;
use bytes::Bytes;
use http::{Method, StatusCode, Uri, Version};
use http_body_util::Empty;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::cell::{Cell, OnceCell};
use std::collections::HashSet;
use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::net::IpAddr;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_crawlers::user_agents::UserAgentMatcher;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_crawlers::verify::signature::SignatureVerifier;
use tidegate_engine::Engine;
use tidegate_engine::clock::Clock;
use tidegate_http1::{Fields, Request, RequestHead, Response};
use tidegate_policy::Timestamp;
use tidegate_policy::switches::Switches;
use tidegate_tls::PendingChallenges;
use tokio::io::AsyncWriteExt;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

/// Time at which a site starts: the start of a minute.
pub(super) const START: Timestamp = Timestamp::from_seconds(1_800_000_000);

/// Address of the client.
pub(super) const CLIENT: [u8; 4] = [192, 0, 2, 1];

/// Address of another client.
pub(super) const OTHER_CLIENT: [u8; 4] = [192, 0, 2, 2];

/// User agent of a bot that says so.
pub(super) const BOT: (&str, &str) = ("user-agent", "curl/8.9.1");

const PERSON: (&str, &str) = ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0");

const MAX_CLIENTS: usize = 1000;

/// Bytes that a pipe holds.
const PIPE: usize = 1024 * 1024;

/// The lists of user agents and operators in this binary, which take long to read.
static OPERATORS: LazyLock<Arc<OperatorTable>> = LazyLock::new(|| Arc::new(OperatorTable::builtin()));
static USER_AGENTS: LazyLock<Arc<UserAgentMatcher>> =
    LazyLock::new(|| Arc::new(UserAgentMatcher::builtin(OPERATORS.product_tokens())));

/// A gateway with one worker, and one connection of a client.
pub(super) struct Site {
    pub(super) worker: Rc<Worker>,
    pub(super) clock: Clock,
    pub(super) telemetry: Telemetry,
    pub(super) challenges: Arc<PendingChallenges>,
    pub(super) listener: ListenerOptions,
    pub(super) peer: IpAddr,
    runtime: Runtime,
    tasks: LocalSet,
    _drained: mpsc::Receiver<Incoming>,
}

/// What a client receives, and what is logged of its request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) fields: Fields,
    pub(super) body: String,
    /// Line of the access log; `None` if the request was not counted.
    pub(super) line: Option<Value>,
}

impl Site {
    /// Returns a site with these settings besides the address of the origin.
    pub(super) fn new(rules: &str) -> Self {
        let settings = settings(rules);
        let clock = Clock::manual(START);
        let engine = Engine::deterministic(MAX_CLIENTS);
        engine.open_quotas(&settings.rules, START);
        let telemetry = Telemetry::new(None, ("test", "test"), START);
        telemetry.config_loaded(&settings.rules, &[], START);
        let challenges = Arc::<PendingChallenges>::default();
        let dependencies = Dependencies {
            clock: clock.clone(),
            engine,
            user_agents: Arc::clone(&USER_AGENTS),
            operators: Arc::clone(&OPERATORS),
            signatures: Arc::new(SignatureVerifier::new(OPERATORS.signature_agents())),
            tls: Vec::new(),
            challenges: Arc::clone(&challenges),
            origin_servers: OriginServers::all(&settings).expect("no files of TLS"),
            files: ConfigFiles::default(),
            session_secret: [7; 32],
            switches: Switches::default(),
            ledger_responses: None,
            is_ledger_remote: false,
            default_memory: None,
            origin_connections: 0,
            seed: 1,
        };
        let (drain, drained) = mpsc::channel(1);
        let worker = Worker::new(Arc::new(Shared::new(dependencies, settings, 1)), telemetry.worker(), drain, 0, 1);
        // Without I/O: a request that needs a socket panics.
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        Self {
            worker,
            clock,
            telemetry,
            challenges,
            listener: ListenerOptions::default(),
            peer: CLIENT.into(),
            runtime,
            tasks: LocalSet::new(),
            _drained: drained,
        }
    }

    /// Runs `work` like a task of the worker.
    pub(super) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.tasks.block_on(&self.runtime, work)
    }

    /// Returns the connection of the client.
    pub(super) fn connection(&self) -> Rc<ClientConnection> {
        let state = ConnectionState::new(self.worker.monotonic_tick(), self.clock.clone(), u32::MAX);
        ClientConnection::new(Rc::clone(&self.worker), state, Rc::new(self.listener.clone()), self.peer, Vec::new())
    }

    /// Passes a request to the gateway.
    pub(super) fn send(&self, line: &str, fields: &[(&str, &str)]) -> Answer {
        self.send_head(head(line, fields), ClientBody::Empty)
    }

    /// Passes a request with this head and body to the gateway.
    pub(super) fn send_head(&self, head: RequestHead, body: ClientBody) -> Answer {
        let known: HashSet<_> = self.telemetry.recent_decisions().into_iter().collect();
        let Response { status, fields, mut body } =
            self.run(async { handle(self.connection(), Request { head, body }).await });
        let body = self.run(async { read(&mut body).await });
        let new = self.telemetry.recent_decisions().into_iter().find(|line| !known.contains(line));
        let line = new.map(|line| serde_json::from_slice(&line).expect("a line is JSON"));
        Answer { status: status.as_u16(), fields, body, line }
    }

    /// Passes a request with a body to the gateway; `body` begins with the fields that frame it.
    pub(super) fn send_body(&self, line: &str, fields: &[(&str, &str)], body: &str) -> Answer {
        let body = self.run(received_body(body, true));
        self.send_head(head(line, fields), body)
    }

    /// Like [`Self::send_body`], for a client that leaves after these bytes.
    pub(super) fn send_broken_body(&self, line: &str, fields: &[(&str, &str)], body: &str) -> Answer {
        let body = self.run(received_body(body, false));
        self.send_head(head(line, fields), body)
    }

    /// Returns what is known of a request.
    pub(super) fn known(&self, line: &str, fields: &[(&str, &str)]) -> Box<Known> {
        let (config, now, mut head) = (self.worker.config(), self.clock.now(), head(line, fields));
        strip_admin_sessions(&mut head.fields);
        let target = Target::parse(&head, &self.worker.shared().via.pseudonym, &config.settings).expect("valid");
        let request = ClientRequest {
            head,
            target,
            has_body: false,
            signature: OnceCell::new(),
            session_cookies: Default::default(),
            json: None,
        };
        identify(self.connection(), config, request, now, self.worker.next_decision_id(), now)
    }

    /// Returns the journal of a request that the cache has no part in.
    pub(super) fn journal(&self, line: &str, fields: &[(&str, &str)]) -> Box<Journal> {
        let known = self.known(line, fields);
        self.run(evaluate(known, &CacheRole::Unused, self.clock.now()))
    }

    /// Returns the part of the cache in a request.
    pub(super) fn cache_role(&self, line: &str, fields: &[(&str, &str)]) -> CacheRole {
        let known = self.known(line, fields);
        let mut now = self.clock.now();
        self.run(cache_role(&known, &mut now))
    }

    /// Returns the journal of a fetch for the cache whose request is prepared for the origin.
    pub(super) fn fetch(&self, line: &str, fields: &[(&str, &str)]) -> Box<Journal> {
        let known = self.known(line, fields);
        let mut now = self.clock.now();
        let role = self.run(cache_role(&known, &mut now));
        let mut journal = self.run(evaluate(known, &role, now));
        let CacheRole::Fetch(fetch) = role else { panic!("no fetch for the cache: {line}") };
        journal.cache.begin_fetch(fetch);
        prepare_head(&mut journal.known);
        prepare_fetch(&mut journal);
        journal
    }

    /// Stores the response of the origin to a request. Costs nothing.
    pub(super) fn store(&self, line: &str, fields: &[(&str, &str)], response: &[(&str, &str)], body: &str) {
        let mut journal = self.fetch(line, fields);
        let fetch = journal.cache.fetch.take().expect("a fetch");
        self.store_response(&journal, *fetch, response, body);
    }

    /// Stores the response to a fetch.
    pub(super) fn store_response(
        &self,
        journal: &Journal,
        mut fetch: CacheFetch,
        response: &[(&str, &str)],
        body: &str,
    ) {
        let (config, response) = (&journal.known.config, fields_of(response));
        let rules = FetchRules::of_route(&config.settings, journal.known.classified.route).expect("cached");
        let (sent, now) = (&journal.known.request.head.fields, self.clock.now());
        let (target, terms) = fetch.storage(sent, StatusCode::OK, &response, rules, now).expect("storable");
        let head = ResponseHead::new(StatusCode::OK, &response, &self.worker.date());
        let (cache, guard) = (Arc::clone(&self.worker.shared.cache), fetch.guard.take());
        let mut recorder = Recorder::new(cache, target, head, terms, guard, rules.rules.max_object, None);
        assert!(recorder.push(body.as_bytes()), "too large");
        recorder.finish(None);
    }

    /// Charges the expected units of `count` requests, as if the origin had not said what they cost.
    pub(super) fn spend(&self, line: &str, count: usize) {
        for _ in 0..count {
            let mut journal = self.journal(line, &[]);
            assert!(journal.verdict.refusal().is_none(), "refused: {line}");
            let super::super::origin_trip::RequestUnits::Reserved(permit) = &mut journal.origin.units else { return };
            permit.mark_sent();
        }
    }

    /// Advances the clock.
    pub(super) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// Lets deadlines expire.
    pub(super) fn sweep(&self) {
        let config = self.worker.config();
        self.worker.upstream().sweep(config.pools(), &config.settings.origins, self.worker.monotonic_now());
    }

    /// Returns true if the origin has not responded to the last request.
    pub(super) fn has_outage(&self) -> bool {
        self.worker.config().origin_servers[0].outages.outage().is_some()
    }

    /// Activates switches of an administrator.
    pub(super) fn switch(&self, switches: Switches) {
        self.worker.shared().replace_switches(switches);
    }

    /// Activates other settings.
    pub(super) fn reload(&self, rules: &str) {
        let (settings, shared) = (settings(rules), self.worker.shared());
        let servers = OriginServers::all(&settings).expect("no files of TLS").into_iter().map(Arc::new).collect();
        let now = self.clock.now();
        shared.replace_config(Config::new(
            settings,
            servers,
            ConfigFiles::default(),
            Switches::default(),
            &shared.engine,
            now,
        ));
    }

    /// Returns the units used of the first quota.
    pub(super) fn used(&self) -> f64 {
        let quotas = self.worker.config().admission.quotas(self.clock.now());
        quotas[0].used.as_f64()
    }

    /// Returns the value of a series of the metrics.
    pub(super) fn metric(&self, series: &str) -> f64 {
        let text = self.telemetry.scrape(|| ());
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().expect("a number"))
    }
}

impl Answer {
    /// Returns the value of a field; empty if there is none.
    pub(super) fn field(&self, name: &str) -> &str {
        field(&self.fields, name)
    }

    /// Returns the member of the line in the access log; null if there is none.
    pub(super) fn logged(&self, name: &str) -> Value {
        self.line.as_ref().map_or(Value::Null, |line| line[name].clone())
    }

    /// Returns the body as JSON.
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

/// Returns the only value of a field; empty if there is none.
pub(super) fn field<'a>(fields: &'a Fields, name: &str) -> &'a str {
    let mut values = fields.get_all_by_text(name);
    let value = values.next().unwrap_or_default();
    assert_eq!(values.next(), None, "several values of {name}");
    std::str::from_utf8(value).expect("text")
}

/// Returns the head of a request by its method and target, and its version if it is another than HTTP/1.1. Host and user agent
/// are added unless they are named; an empty one is none.
pub(super) fn head(line: &str, fields: &[(&str, &str)]) -> RequestHead {
    let mut parts = line.split(' ');
    let method = Method::from_bytes(parts.next().expect("a method").as_bytes()).expect("a method");
    let target = Uri::try_from(parts.next().expect("a target")).expect("a target");
    let version = match parts.next() {
        None => Version::HTTP_11,
        Some("HTTP/1.0") => Version::HTTP_10,
        Some("HTTP/2") => Version::HTTP_2,
        Some(other) => panic!("{other}"),
    };
    let mut all = fields_of(fields);
    for (name, value) in [("host", "shop.example"), PERSON] {
        if all.get_all_by_text(name).next().is_none() {
            all.append_text(name, value.as_bytes());
        }
    }
    all.retain(|field| !field.value.is_empty());
    RequestHead { method, target, version, fields: all }
}

/// Returns the settings of a site, by default of one whose origin has no address.
pub(super) fn settings(rules: &str) -> Settings {
    let origin = if rules.contains("origin:") { "" } else { "origin: { url: 'http://origin.invalid' }\n" };
    let classes = if rules.contains("classes:") { "" } else { "classes: []\n" };
    let text =
        format!("{origin}{classes}verify: {{ dns: off, refresh_interval: off }}\nledger: memory\nadmin: off\n{rules}");
    let operators: Vec<&str> = OPERATORS.names().collect();
    tidegate_config::load(Path::new("tidegate.yaml"), &text, &[], &[], &operators)
        .unwrap_or_else(|errors| panic!("{errors}"))
}

pub(super) fn fields_of(fields: &[(&str, &str)]) -> Fields {
    let mut all = Fields::new();
    fields.iter().for_each(|(name, value)| all.append_text(name, value.as_bytes()));
    all
}

/// Returns a body as an HTTP/2 connection reads it, from a pipe within the process. `body` begins with the fields that frame it;
/// with `stays`, the client keeps the connection after its last byte.
pub(super) async fn received_body(body: &str, stays: bool) -> ClientBody {
    let (mut client, server) = tokio::io::duplex(PIPE);
    client.write_all(format!("POST / HTTP/1.1\r\nHost: a\r\n{body}").as_bytes()).await.expect("a pipe");
    let client = stays.then_some(client);
    let (sender, receiver) = oneshot::channel();
    let sender = Cell::new(Some(sender));
    let service = service_fn(move |request: http::Request<Incoming>| {
        let received = sender.take().expect("one request").send(request.into_body());
        async move {
            received.expect("a receiver");
            pending::<Result<http::Response<Empty<Bytes>>, Infallible>>().await
        }
    });
    tokio::task::spawn_local(async move {
        let connection =
            http1::Builder::new().header_read_timeout(None).serve_connection(TokioIo::new(server), service);
        // Ends with an error if the client leaves.
        let _ = connection.await;
        drop(client);
    });
    ClientBody::Http2(receiver.await.expect("a request"))
}

/// Reads a body to its end, as text.
async fn read(body: &mut ResponseBody) -> String {
    let mut text = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
        if let Ok(data) = frame.expect("a whole body").into_data() {
            text.extend_from_slice(&data);
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}
