//! Everybody who comes: many clients on connections that they keep, a burst of them at a time.

use super::client::{Answer, Client};
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use tidegate::policy::ClientKind;

/// One request, and who sends it.
#[derive(Clone, Debug)]
pub struct Visit {
    pub client: IpAddr,
    pub method: String,
    pub target: String,
    /// Empty: none is sent.
    pub user_agent: String,
    pub referer: Option<String>,
    /// What the gate must take the client for, where it can know.
    pub kind: Option<ClientKind>,
}

/// Threads that send at the same time.
const CALLERS: usize = 8;

/// Connections of each, with one request under way on every one of them.
const BURST: usize = 8;

/// Sends all visits, about in their order, and hands back the answers in exactly that: `None` where the connection
/// ended before the answer did. `between` is called before each burst.
pub fn send(gate: SocketAddr, visits: &[Visit], between: impl Fn() + Sync) -> Vec<Option<Answer>> {
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(vec![None; visits.len()]);
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                let mut lines: Vec<Line> = (0..BURST).map(|_| Line { gate, open: None }).collect();
                loop {
                    let first = next.fetch_add(BURST, Ordering::Relaxed);
                    let burst = first..visits.len().min(first + BURST);
                    if burst.is_empty() {
                        return;
                    }
                    between();
                    lines.iter_mut().zip(burst.clone()).for_each(|(line, place)| line.ask(place, &visits[place]));
                    let heard: Vec<_> =
                        lines.iter_mut().zip(burst.clone()).map(|(line, place)| line.hear(&visits[place])).collect();
                    answers.lock()[burst].clone_from_slice(&heard);
                }
            });
        }
    });
    answers.into_inner()
}

/// Each visit has a host of its own: it stands in the log and reaches the origin, so both can be told apart.
pub fn host(place: usize) -> String {
    format!("visit-{place}.example")
}

/// The visit that came to this host.
pub fn place(host: &str) -> usize {
    let number = host.strip_prefix("visit-").and_then(|rest| rest.strip_suffix(".example"));
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("nobody asked for {host}"))
}

/// One connection, made anew when it has ended.
struct Line {
    gate: SocketAddr,
    open: Option<Client>,
}

impl Line {
    fn ask(&mut self, place: usize, visit: &Visit) {
        let client = self.open.get_or_insert_with(|| Client::connect(self.gate));
        client.send(request(place, visit));
    }

    fn hear(&mut self, visit: &Visit) -> Option<Answer> {
        let answer = self.open.as_mut().and_then(|client| client.answer_or_end(&visit.method));
        if answer.as_ref().is_none_or(|answer| answer.field("connection") == "close") {
            self.open = None;
        }
        answer
    }
}

fn request(place: usize, visit: &Visit) -> String {
    let Visit { client, method, target, user_agent, referer, .. } = visit;
    let mut request = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\nX-Forwarded-For: {client}\r\n", host(place));
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
