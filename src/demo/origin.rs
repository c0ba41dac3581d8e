//! MeteredOrigin of the demo: a shop whose pages are generated from an API with a daily quota.
//!
//! The origin counts its responses and their costs independently, so that the gateway's counters can be verified.

use super::site;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, DATE};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tidegate_engine::clock::Clock;
use tidegate_http1::DateCache;

/// A running origin. It runs until the end of the process.
pub(super) struct MeteredOrigin {
    /// Listen address.
    pub(super) address: SocketAddr,
    counters: Arc<Mutex<OriginCounters>>,
}

/// Units of an origin whose cached pages cost nothing.
#[derive(Debug, Default)]
pub(super) struct OriginCounters {
    /// Units used so far.
    units: u64,
    /// Pages that cost nothing when requested again.
    cached_pages: HashSet<String>,
}

/// Time in which the origin generates a page. Cached pages and free resources take none.
const LATENCY: Duration = Duration::from_millis(8);

impl MeteredOrigin {
    /// Starts the origin on a free port of the loopback interface, in its own thread. It dates responses by `clock`.
    pub(super) fn start(clock: Clock) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let counters = Arc::new(Mutex::new(OriginCounters::default()));
        let router = Router::new().fallback(respond).with_state((Arc::clone(&counters), clock));
        std::thread::Builder::new().name("demo-origin".into()).spawn(move || {
            runtime.block_on(async { axum::serve(tokio::net::TcpListener::from_std(listener)?, router).await })
        })?;
        Ok(Self { address, counters })
    }

    /// Returns the units used so far.
    pub(super) fn units(&self) -> u64 {
        self.counters.lock().units()
    }
}

impl OriginCounters {
    /// Records a request and returns its cost, in units.
    pub(super) fn record(&mut self, target: &str) -> u64 {
        let cost = site::cost(target);
        let spent = if cost > 0 && self.cached_pages.insert(target.to_owned()) { cost } else { 0 };
        self.units += spent;
        spent
    }

    /// Returns the units used so far.
    pub(super) fn units(&self) -> u64 {
        self.units
    }
}

async fn respond(State((counters, clock)): State<(Arc<Mutex<OriginCounters>>, Clock)>, request: Request) -> Response {
    let target = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let spent = counters.lock().record(target);
    if spent > 0 {
        tokio::time::sleep(LATENCY).await;
    }
    let (content_type, body) = site::page(target);
    let mut response = ([(CONTENT_TYPE, content_type)], body).into_response();
    let date = DateCache::new().text(clock.now().seconds());
    response.headers_mut().insert(DATE, HeaderValue::from_bytes(&date).expect("a date is ASCII"));
    if site::cost(target) > 0 {
        let headers = response.headers_mut();
        headers.insert("x-api-cost", spent.into());
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, max-age=0"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_page_costs_nothing_the_second_time() {
        let mut counters = OriginCounters::default();
        assert_eq!(counters.record("/search?q=oak"), 4);
        assert_eq!(counters.record("/search?q=oak"), 0);
        assert_eq!(counters.record("/item/1"), 1);
        assert_eq!(counters.record("/robots.txt"), 0);
        assert_eq!(counters.units, 5);
    }
}
