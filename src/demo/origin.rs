//! Origin of the demo: a shop whose pages are generated from an API with a daily quota.
//!
//! The origin counts its responses and their costs independently, so that the gateway's counters can be verified.

use super::site;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A running origin. Dropping it stops it.
pub struct Origin {
    address: SocketAddr,
    counters: Arc<Mutex<OriginCounters>>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// Totals of the responses that the origin has sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginTotals {
    /// Number of all requests.
    pub requests: u64,
    /// Units used at the API.
    pub units: u64,
    /// Number of requests that used units.
    pub charged: u64,
    /// Number of costly pages served from the origin's cache.
    pub cached: u64,
    /// Number of requests by the value of `X-Tidegate-Class`; the key is empty for requests without it.
    pub by_class: BTreeMap<String, u64>,
    /// Number of requests by path, without the query.
    pub by_path: BTreeMap<String, u64>,
}

/// Options of the origin: costs, latency and caching.
#[derive(Clone, Copy, Debug)]
pub struct OriginOptions {
    /// Returns the cost of a path with its query, in units.
    pub cost: fn(&str) -> u64,
    /// Time to generate a page; cached pages and free resources take none.
    pub latency: Duration,
    /// True if generated pages are cached and cost nothing afterwards.
    pub caches_pages: bool,
}

impl Default for OriginOptions {
    /// Returns the demo shop without latency and without caching.
    fn default() -> Self {
        Self { cost: site::cost, latency: Duration::ZERO, caches_pages: false }
    }
}

#[derive(Debug, Default)]
struct OriginCounters {
    totals: OriginTotals,
    cached_pages: HashSet<String>,
}

/// Header with the actual cost of a response, in units.
const COST: HeaderName = HeaderName::from_static("x-api-cost");
const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
const CLASS: HeaderName = HeaderName::from_static("x-tidegate-class");

/// Time for responses in flight to finish on stop; connections that are busy after it are closed.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

impl Origin {
    /// Starts the origin on a free port of the loopback interface, in its own thread.
    pub fn start(options: OriginOptions) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let counters = Arc::new(Mutex::new(OriginCounters::default()));
        let (stop, stopped) = watch::channel(false);
        let shared_counters = Arc::clone(&counters);
        let thread = std::thread::Builder::new().name("demo-origin".into()).spawn(move || {
            runtime.block_on(accept(listener, options, shared_counters, stopped));
        })?;
        Ok(Self { address, counters, stop, thread: Some(thread) })
    }

    /// Returns the listen address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the totals so far.
    pub fn totals(&self) -> OriginTotals {
        self.counters.lock().totals.clone()
    }

    /// Finishes the responses in flight, stops, and returns the totals.
    pub fn stop(mut self) -> OriginTotals {
        self.close();
        self.totals()
    }

    fn close(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is already reported.
            let _ = thread.join();
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.close();
    }
}

async fn accept(
    listener: std::net::TcpListener,
    options: OriginOptions,
    counters: Arc<Mutex<OriginCounters>>,
    mut stopped: watch::Receiver<bool>,
) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                connections.spawn(serve(stream, options, Arc::clone(&counters), stopped.clone()));
            }
            _ = connections.join_next(), if !connections.is_empty() => {}
            _ = stopped.changed() => break,
        }
    }
    let finished = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, finished).await;
}

async fn serve(
    stream: TcpStream,
    options: OriginOptions,
    counters: Arc<Mutex<OriginCounters>>,
    mut stopped: watch::Receiver<bool>,
) {
    // Affects only latency, so an error is ignored.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| respond(request, options, Arc::clone(&counters)));
    let connection = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // A connection aborted by the client is not an error.
        _ = connection.as_mut() => return,
        _ = stopped.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

async fn respond(
    request: Request<Incoming>,
    options: OriginOptions,
    counters: Arc<Mutex<OriginCounters>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    // The body is read and discarded, so that the connection can be reused.
    let _ = body.collect().await;
    let target = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
    let class = head.headers.get(CLASS).and_then(|class| class.to_str().ok()).unwrap_or("").to_owned();
    let costly = (options.cost)(&target) > 0;
    let spent = counters.lock().record(&target, class, options);
    if spent > 0 && !options.latency.is_zero() {
        tokio::time::sleep(options.latency).await;
    }
    let mut response = Response::new(Full::new(page(&target)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(&target)));
    if costly {
        headers.insert(COST, HeaderValue::from(spent));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, max-age=0"));
        let cache_status = if spent == 0 { "shop; hit" } else { "shop; fwd=miss" };
        headers.insert(CACHE_STATUS, HeaderValue::from_static(cache_status));
    }
    Ok(response)
}

impl OriginCounters {
    /// Records a request and returns its cost, in units.
    fn record(&mut self, target: &str, class: String, options: OriginOptions) -> u64 {
        let cost = (options.cost)(target);
        let is_cached = cost > 0 && options.caches_pages && !self.cached_pages.insert(target.to_owned());
        let spent = if is_cached { 0 } else { cost };
        let path = target.split('?').next().unwrap_or(target);
        let totals = &mut self.totals;
        totals.requests += 1;
        totals.units += spent;
        totals.charged += u64::from(spent > 0);
        totals.cached += u64::from(is_cached);
        *totals.by_class.entry(class).or_default() += 1;
        *totals.by_path.entry(path.to_owned()).or_default() += 1;
        spent
    }
}

fn page(target: &str) -> Bytes {
    match target {
        "/robots.txt" => Bytes::from_static(b"User-agent: *\nDisallow: /cart\n"),
        "/feed.xml" => Bytes::from_static(b"<?xml version=\"1.0\"?><feed xmlns=\"http://www.w3.org/2005/Atom\"/>\n"),
        _ if target.starts_with("/assets/") => Bytes::from_static(&[b'.'; 512]),
        _ => Bytes::from_static(b"<!doctype html><title>Shop</title><p>Generated from a paid API.\n"),
    }
}

fn content_type(target: &str) -> &'static str {
    match target.rsplit('.').next() {
        Some("txt") => "text/plain; charset=utf-8",
        Some("xml") => "application/atom+xml",
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        Some("svg") => "image/svg+xml",
        Some("webp") => "image/webp",
        _ => "text/html; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_page_costs_nothing_the_second_time() {
        let (mut counters, options) =
            (OriginCounters::default(), OriginOptions { caches_pages: true, ..OriginOptions::default() });
        assert_eq!(counters.record("/search?q=oak", "person".into(), options), 4);
        assert_eq!(counters.record("/search?q=oak", "person".into(), options), 0);
        assert_eq!(counters.record("/item/1", String::new(), options), 1);
        assert_eq!(counters.record("/robots.txt", String::new(), options), 0);
        let totals = counters.totals;
        assert_eq!((totals.requests, totals.units, totals.charged, totals.cached), (4, 5, 2, 1));
        assert_eq!(totals.by_path["/search"], 2);
        assert_eq!(totals.by_class["person"], 2);
    }

    #[test]
    fn origin_without_cache_charges_every_request() {
        let mut counters = OriginCounters::default();
        assert_eq!(
            (1..=3).map(|_| counters.record("/item/1", String::new(), OriginOptions::default())).sum::<u64>(),
            3
        );
    }

    #[test]
    fn origin_stops_with_an_idle_connection_open() {
        let origin = Origin::start(OriginOptions::default()).expect("a free port");
        let idle = std::net::TcpStream::connect(origin.address()).expect("the origin listens");
        assert_eq!(origin.stop(), OriginTotals::default());
        drop(idle);
    }
}
