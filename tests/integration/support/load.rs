//! Load generator: many clients on persistent connections, a burst of requests at a time.

use super::client::{Client, Response};
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use tidegate::policy::ClientKind;

/// A request and its client.
#[derive(Clone, Debug)]
pub struct LoadRequest {
    pub client: IpAddr,
    pub method: String,
    pub target: String,
    /// Value of `User-Agent`; not sent if empty.
    pub user_agent: String,
    pub referer: Option<String>,
    /// Client kind that the gateway must detect, if it is detectable.
    pub kind: Option<ClientKind>,
}

/// Number of threads that send concurrently.
const CALLERS: usize = 8;

/// Number of connections per thread, each with one request in flight.
const BURST: usize = 8;

/// Sends all requests, approximately in order, and returns the responses in exact order. A response is `None` if the
/// connection ended before it was complete. `between` is called before each burst.
pub fn send_all(gate: SocketAddr, visits: &[LoadRequest], between: impl Fn() + Sync) -> Vec<Option<Response>> {
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(vec![None; visits.len()]);
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                let mut lines: Vec<LoadConnection> = (0..BURST).map(|_| LoadConnection { gate, open: None }).collect();
                loop {
                    let first = next.fetch_add(BURST, Ordering::Relaxed);
                    let burst = first..visits.len().min(first + BURST);
                    if burst.is_empty() {
                        return;
                    }
                    between();
                    lines
                        .iter_mut()
                        .zip(burst.clone())
                        .for_each(|(line, place)| line.write_request(place, &visits[place]));
                    let heard: Vec<_> = lines
                        .iter_mut()
                        .zip(burst.clone())
                        .map(|(line, place)| line.receive_response(&visits[place]))
                        .collect();
                    answers.lock()[burst].clone_from_slice(&heard);
                }
            });
        }
    });
    answers.into_inner()
}

/// Returns the host of a request. Each request has its own, which identifies it in the log and at the origin.
pub fn request_host(place: usize) -> String {
    format!("visit-{place}.example")
}

/// Returns the index of the request with this host.
pub fn request_index(host: &str) -> usize {
    let number = host.strip_prefix("visit-").and_then(|rest| rest.strip_suffix(".example"));
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no request has host {host}"))
}

/// A connection, reopened when it has ended.
struct LoadConnection {
    gate: SocketAddr,
    open: Option<Client>,
}

impl LoadConnection {
    fn write_request(&mut self, place: usize, visit: &LoadRequest) {
        let client = self.open.get_or_insert_with(|| Client::connect(self.gate));
        client.send(format_request(place, visit));
    }

    fn receive_response(&mut self, visit: &LoadRequest) -> Option<Response> {
        let answer = self.open.as_mut().and_then(|client| client.response_or_eof(&visit.method));
        if answer.as_ref().is_none_or(|answer| answer.field("connection") == "close") {
            self.open = None;
        }
        answer
    }
}

fn format_request(place: usize, visit: &LoadRequest) -> String {
    let LoadRequest { client, method, target, user_agent, referer, .. } = visit;
    let mut request =
        format!("{method} {target} HTTP/1.1\r\nHost: {}\r\nX-Forwarded-For: {client}\r\n", request_host(place));
    if !user_agent.is_empty() {
        request += &format!("User-Agent: {user_agent}\r\n");
    }
    if let Some(referer) = referer {
        request += &format!("Referer: {referer}\r\n");
    }
    if !matches!(method.as_str(), "GET" | "HEAD") {
        request += "Content-Length: 0\r\n";
    }
    request + "\r\n"
}
