//! Everybody who comes: sends a day's visits to a gate over real connections and hands back what each was told.

use super::traffic::{self, DemoRequest};
use crate::clock::Clock;
use crate::policy::Timestamp;
use bytes::Bytes;
use http::header::{HOST, HeaderName, REFERER, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// A day to be sent, and how.
pub struct LoadGenerator {
    /// The visits, by time.
    pub day: Arc<Vec<DemoRequest>>,
    /// The gate.
    pub gate: SocketAddr,
    /// When the day begins on the gate's clock, which the crowd moves along.
    pub begins: Timestamp,
    /// The gate's clock.
    pub clock: Clock,
    /// How long the whole day takes in real time; `None`: as fast as the answers come.
    pub takes: Option<Duration>,
    /// Connections that are open at the same time.
    pub connections: usize,
}

/// What became of one visit.
#[derive(Debug)]
pub struct DemoResponse {
    /// Its place in the day.
    pub visit: usize,
    /// What came back.
    pub answer: Result<ResponseParts, SendError>,
}

/// What the gate said.
#[derive(Clone, Debug)]
pub struct ResponseParts {
    /// The status.
    pub status: StatusCode,
    /// The header fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// There is nobody at that address.
    #[error("cannot connect to the gate")]
    Connect(#[source] std::io::Error),
    /// The connection broke off in the middle.
    #[error("the gate broke off")]
    ConnectionClosed(#[from] hyper::Error),
    /// The visit cannot be written as a request.
    #[error("not a request")]
    NotARequest(#[from] http::Error),
    /// Nothing came for a long time.
    #[error("no answer within {TIMEOUT:?}")]
    TimedOut,
}

/// The field that says whose address a request comes from, as a proxy before the gate would set it.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Set on every answer that the gate made itself.
const DECISION: &str = "x-tidegate-decision";

/// Requests waiting for one connection. Few: when the gate is slower than the day, the day slows down.
const QUEUE_LEN: usize = 4;

const TIMEOUT: Duration = Duration::from_secs(60);

impl ResponseParts {
    /// True when the gate turned the client away by rule.
    pub fn is_refusal(&self) -> bool {
        let by_rule = matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        by_rule && self.headers.contains_key(DECISION)
    }

    /// The seconds to wait that the client was told.
    pub fn retry_after(&self) -> Option<u64> {
        self.headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()
    }
}

impl LoadGenerator {
    /// Sends the whole day, each answer to `heard` as it comes; returns when all have come.
    pub async fn send(self, heard: mpsc::UnboundedSender<DemoResponse>) {
        let mut workers = JoinSet::new();
        let lines: Vec<mpsc::Sender<usize>> = (0..self.connections.max(1))
            .map(|_| {
                let (line, waiting) = mpsc::channel(QUEUE_LEN);
                let caller = ClientConnection { gate: self.gate, day: Arc::clone(&self.day), connection: None };
                workers.spawn(caller.run(waiting, heard.clone()));
                line
            })
            .collect();
        let begun = self.clock.monotonic_now();
        for (number, visit) in self.day.iter().enumerate() {
            if let Some(takes) = self.takes {
                let due = takes.mul_f64(visit.at.as_secs_f64() / traffic::LENGTH.as_secs_f64());
                let early = due.saturating_sub(self.clock.monotonic_now().saturating_duration_since(begun));
                // Even a sleep of nothing takes a tick of the timer, which a day that is late does not have.
                if !early.is_zero() {
                    tokio::time::sleep(early).await;
                }
            }
            self.clock.set(self.begins + visit.at);
            // A line is closed only when its caller has panicked, which the answers missing in the end will show.
            let _ = lines[number % lines.len()].send(number).await;
        }
        drop(lines);
        while workers.join_next().await.is_some() {}
    }
}

struct ClientConnection {
    gate: SocketAddr,
    day: Arc<Vec<DemoRequest>>,
    connection: Option<SendRequest<Empty<Bytes>>>,
}

impl ClientConnection {
    async fn run(mut self, mut waiting: mpsc::Receiver<usize>, heard: mpsc::UnboundedSender<DemoResponse>) {
        while let Some(visit) = waiting.recv().await {
            let answer = match tokio::time::timeout(TIMEOUT, self.send_one(visit)).await {
                Ok(answer) => answer,
                Err(_) => Err(SendError::TimedOut),
            };
            if answer.is_err() {
                self.connection = None;
            }
            if heard.send(DemoResponse { visit, answer }).is_err() {
                return;
            }
        }
    }

    async fn send_one(&mut self, visit: usize) -> Result<ResponseParts, SendError> {
        let request = request(&self.day[visit], self.gate)?;
        let mut connection = self.connected().await?;
        let response = connection.send_request(request).await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        self.connection = Some(connection);
        Ok(ResponseParts { status: head.status, headers: head.headers, body })
    }

    async fn connected(&mut self) -> Result<SendRequest<Empty<Bytes>>, SendError> {
        if let Some(mut kept) = self.connection.take()
            && kept.ready().await.is_ok()
        {
            return Ok(kept);
        }
        let stream = TcpStream::connect(self.gate).await.map_err(SendError::Connect)?;
        // Only a matter of speed.
        let _ = stream.set_nodelay(true);
        let (connection, driver) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(driver);
        Ok(connection)
    }
}

fn request(visit: &DemoRequest, gate: SocketAddr) -> Result<Request<Empty<Bytes>>, http::Error> {
    let mut request = Request::builder()
        .method(visit.method.clone())
        .uri(&visit.path)
        .header(HOST, gate.to_string())
        .header(FORWARDED_FOR, visit.client.to_string());
    if !visit.user_agent.is_empty() {
        request = request.header(USER_AGENT, visit.user_agent.as_bytes());
    }
    if let Some(referer) = &visit.referer {
        request = request.header(REFERER, referer.as_bytes());
    }
    request.body(Empty::new())
}

#[cfg(test)]
mod tests {
    use super::super::origin::{Origin, OriginOptions};
    use super::*;

    #[tokio::test]
    async fn every_visit_is_answered_once_and_the_clock_follows_the_day() {
        let origin = Origin::start(OriginOptions::default()).expect("a free port");
        let day = Arc::new(traffic::generate(1, 0.005));
        let begins = Timestamp::from_seconds(1_000_000);
        let clock = Clock::frozen_at(begins);
        let (heard, mut answers) = mpsc::unbounded_channel();
        let gate = origin.address();
        let crowd =
            LoadGenerator { day: Arc::clone(&day), gate, begins, clock: clock.clone(), takes: None, connections: 3 };
        crowd.send(heard).await;
        let mut seen = vec![0; day.len()];
        while let Some(DemoResponse { visit, answer }) = answers.recv().await {
            assert_eq!(answer.expect("an answer").status, StatusCode::OK);
            seen[visit] += 1;
        }
        assert!(seen.iter().all(|&times| times == 1));
        let served = origin.stop();
        assert_eq!(served.requests, day.len() as u64);
        assert_eq!(served.units, day.iter().map(|visit| visit.cost).sum::<u64>());
        assert_eq!(clock.now(), (begins + day[day.len() - 1].at).truncate_to_micros());
    }
}
