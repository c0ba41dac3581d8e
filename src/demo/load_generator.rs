//! Load generator: sends the requests of a day to a gateway over real connections and returns each response.

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

/// Sends the requests of a day.
pub struct LoadGenerator {
    /// Requests, ordered by time.
    pub day: Arc<Vec<DemoRequest>>,
    /// Address of the gateway.
    pub gateway: SocketAddr,
    /// Start of the day on the gateway's clock, which the load generator sets.
    pub day_start: Timestamp,
    /// Clock of the gateway.
    pub clock: Clock,
    /// Real duration of the day; `None`: as fast as responses arrive.
    pub duration: Option<Duration>,
    /// Number of concurrent connections.
    pub connections: usize,
}

/// Result of one request.
#[derive(Debug)]
pub struct DemoResponse {
    /// Index of the request in the day.
    pub index: usize,
    /// Response, or the reason for a missing one.
    pub result: Result<ResponseParts, SendError>,
}

/// Response of the gateway.
#[derive(Clone, Debug)]
pub struct ResponseParts {
    /// Response status.
    pub status: StatusCode,
    /// Response headers.
    pub headers: HeaderMap,
    /// Response body.
    pub body: Bytes,
}

/// Error for a request without a response.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The gateway accepts no connection.
    #[error("cannot connect to the gateway")]
    Connect(#[source] std::io::Error),
    /// The connection was closed before the response was complete.
    #[error("the gateway closed the connection")]
    ConnectionClosed(#[from] hyper::Error),
    /// The request is not valid HTTP.
    #[error("invalid request")]
    InvalidRequest(#[from] http::Error),
    /// No response arrived in time.
    #[error("no response within {TIMEOUT:?}")]
    TimedOut,
}

/// Header with the client address, as a proxy in front of the gateway sets it.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Header of every response that the gateway generates itself.
const DECISION: &str = "x-tidegate-decision";

/// Number of queued requests per connection. Small, so that a slow gateway slows the day down.
const QUEUE_LEN: usize = 4;

const TIMEOUT: Duration = Duration::from_secs(60);

impl ResponseParts {
    /// Returns true if the gateway refused the request by a rule.
    pub fn is_refusal(&self) -> bool {
        let by_rule = matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        by_rule && self.headers.contains_key(DECISION)
    }

    /// Returns the value of `Retry-After`, in seconds.
    pub fn retry_after(&self) -> Option<u64> {
        self.headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()
    }
}

impl LoadGenerator {
    /// Sends all requests and passes each response to `responses`. Returns when all responses have arrived.
    pub async fn send(self, responses: mpsc::UnboundedSender<DemoResponse>) {
        let mut workers = JoinSet::new();
        let queues: Vec<mpsc::Sender<usize>> = (0..self.connections.max(1))
            .map(|_| {
                let (queue, receiver) = mpsc::channel(QUEUE_LEN);
                let client = ClientConnection { gateway: self.gateway, day: Arc::clone(&self.day), connection: None };
                workers.spawn(client.run(receiver, responses.clone()));
                queue
            })
            .collect();
        let started = self.clock.monotonic_now();
        for (number, request) in self.day.iter().enumerate() {
            if let Some(duration) = self.duration {
                let due = duration.mul_f64(request.at.as_secs_f64() / traffic::DAY.as_secs_f64());
                let remaining = due.saturating_sub(self.clock.monotonic_now().saturating_duration_since(started));
                // Even an empty sleep takes one tick of the timer, so it is skipped if the day is late.
                if !remaining.is_zero() {
                    tokio::time::sleep(remaining).await;
                }
            }
            self.clock.set(self.day_start + request.at);
            // A queue is closed only if its connection task panicked; the missing responses reveal that.
            let _ = queues[number % queues.len()].send(number).await;
        }
        drop(queues);
        while workers.join_next().await.is_some() {}
    }
}

struct ClientConnection {
    gateway: SocketAddr,
    day: Arc<Vec<DemoRequest>>,
    connection: Option<SendRequest<Empty<Bytes>>>,
}

impl ClientConnection {
    async fn run(mut self, mut receiver: mpsc::Receiver<usize>, responses: mpsc::UnboundedSender<DemoResponse>) {
        while let Some(index) = receiver.recv().await {
            let response = match tokio::time::timeout(TIMEOUT, self.send_one(index)).await {
                Ok(response) => response,
                Err(_) => Err(SendError::TimedOut),
            };
            if response.is_err() {
                self.connection = None;
            }
            if responses.send(DemoResponse { index, result: response }).is_err() {
                return;
            }
        }
    }

    async fn send_one(&mut self, index: usize) -> Result<ResponseParts, SendError> {
        let request = request(&self.day[index], self.gateway)?;
        let mut connection = self.connect().await?;
        let response = connection.send_request(request).await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        self.connection = Some(connection);
        Ok(ResponseParts { status: head.status, headers: head.headers, body })
    }

    async fn connect(&mut self) -> Result<SendRequest<Empty<Bytes>>, SendError> {
        if let Some(mut connection) = self.connection.take()
            && connection.ready().await.is_ok()
        {
            return Ok(connection);
        }
        let stream = TcpStream::connect(self.gateway).await.map_err(SendError::Connect)?;
        // Affects only latency, so an error is ignored.
        let _ = stream.set_nodelay(true);
        let (connection, driver) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(driver);
        Ok(connection)
    }
}

fn request(demo_request: &DemoRequest, gateway: SocketAddr) -> Result<Request<Empty<Bytes>>, http::Error> {
    let mut request = Request::builder()
        .method(demo_request.method.clone())
        .uri(&demo_request.path)
        .header(HOST, gateway.to_string())
        .header(FORWARDED_FOR, demo_request.client.to_string());
    if !demo_request.user_agent.is_empty() {
        request = request.header(USER_AGENT, demo_request.user_agent.as_bytes());
    }
    if let Some(referer) = &demo_request.referer {
        request = request.header(REFERER, referer.as_bytes());
    }
    request.body(Empty::new())
}

#[cfg(test)]
mod tests {
    use super::super::origin::{Origin, OriginOptions};
    use super::*;

    #[tokio::test]
    async fn every_request_is_answered_once_on_simulated_time() {
        let origin = Origin::start(OriginOptions::default()).expect("a free port");
        let day = Arc::new(traffic::generate(1, 0.005));
        let start = Timestamp::from_seconds(1_000_000);
        let clock = Clock::frozen_at(start);
        let (sender, mut responses) = mpsc::unbounded_channel();
        let gateway = origin.address();
        let generator = LoadGenerator {
            day: Arc::clone(&day),
            gateway,
            day_start: start,
            clock: clock.clone(),
            duration: None,
            connections: 3,
        };
        generator.send(sender).await;
        let mut seen = vec![0; day.len()];
        while let Some(DemoResponse { index, result: response }) = responses.recv().await {
            assert_eq!(response.expect("an answer").status, StatusCode::OK);
            seen[index] += 1;
        }
        assert!(seen.iter().all(|&times| times == 1));
        let served = origin.stop();
        assert_eq!(served.requests, day.len() as u64);
        assert_eq!(served.units, day.iter().map(|request| request.cost).sum::<u64>());
        assert_eq!(clock.now(), (start + day[day.len() - 1].at).truncate_to_micros());
    }
}
