//! Load generator: many clients on persistent connections, a burst of requests at a time.

use super::client::{Client, Response};
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use tidegate_policy::ClientKind;

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
const THREADS: usize = 8;

/// Number of connections per thread, each with one request in flight.
const CONNECTIONS_PER_THREAD: usize = 8;

/// Sends all requests, approximately in order, and returns the responses in exact order. A response is `None` if the
/// connection ended before it was complete. `between` is called before each burst.
pub fn send_all(gateway: SocketAddr, requests: &[LoadRequest], between: impl Fn() + Sync) -> Vec<Option<Response>> {
    let next = AtomicUsize::new(0);
    let responses = Mutex::new(vec![None; requests.len()]);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut connections: Vec<LoadConnection> =
                    (0..CONNECTIONS_PER_THREAD).map(|_| LoadConnection { gateway, client: None }).collect();
                loop {
                    let first = next.fetch_add(CONNECTIONS_PER_THREAD, Ordering::Relaxed);
                    let burst = first..requests.len().min(first + CONNECTIONS_PER_THREAD);
                    if burst.is_empty() {
                        return;
                    }
                    between();
                    connections
                        .iter_mut()
                        .zip(burst.clone())
                        .for_each(|(connection, index)| connection.write_request(index, &requests[index]));
                    let burst_responses: Vec<_> = connections
                        .iter_mut()
                        .zip(burst.clone())
                        .map(|(connection, index)| connection.receive_response(&requests[index]))
                        .collect();
                    responses.lock()[burst].clone_from_slice(&burst_responses);
                }
            });
        }
    });
    responses.into_inner()
}

/// Returns the host of a request. Each request has its own, which identifies it in the log and at the origin.
pub fn request_host(index: usize) -> String {
    format!("visit-{index}.example")
}

/// Returns the index of the request with this host.
pub fn request_index(host: &str) -> usize {
    let number = host.strip_prefix("visit-").and_then(|rest| rest.strip_suffix(".example"));
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no request has host {host}"))
}

/// A connection, reopened when it has ended.
struct LoadConnection {
    gateway: SocketAddr,
    client: Option<Client>,
}

impl LoadConnection {
    fn write_request(&mut self, index: usize, request: &LoadRequest) {
        let client = self.client.get_or_insert_with(|| Client::connect(self.gateway));
        client.send(format_request(&request_host(index), request));
    }

    fn receive_response(&mut self, request: &LoadRequest) -> Option<Response> {
        let response = self.client.as_mut().and_then(|client| client.response_or_eof(&request.method));
        if response.as_ref().is_none_or(|response| response.field("connection") == "close") {
            self.client = None;
        }
        response
    }
}

/// Returns the head of a request to `host`.
pub fn format_request(host: &str, request: &LoadRequest) -> String {
    let LoadRequest { client, method, target, user_agent, referer, .. } = request;
    let mut text = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-For: {client}\r\n");
    if !user_agent.is_empty() {
        text += &format!("User-Agent: {user_agent}\r\n");
    }
    if let Some(referer) = referer {
        text += &format!("Referer: {referer}\r\n");
    }
    if !matches!(method.as_str(), "GET" | "HEAD") {
        text += "Content-Length: 0\r\n";
    }
    text + "\r\n"
}
