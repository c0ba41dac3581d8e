//! Load generator: sends the requests of a day to a gateway over real connections and returns each response.

use super::traffic::{self, DemoRequest};
use bytes::Bytes;
use http::header::{HOST, HeaderName, REFERER, USER_AGENT};
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tidegate_engine::clock::Clock;
use tidegate_policy::Timestamp;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

/// Index of a request in the day, and its response.
pub(super) type DemoResponse = (usize, anyhow::Result<Response<Bytes>>);

/// Header with the client address, as a proxy in front of the gateway sets it.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Number of concurrent connections.
const CONNECTIONS: usize = 24;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Sends the requests of `day` to a gateway, at their times on its `clock`, and passes each response to `responses`.
/// Returns when all responses have arrived. The day takes `duration` of real time, or longer if the gateway is slow.
pub(super) async fn send(
    day: Arc<Vec<DemoRequest>>,
    gateway: SocketAddr,
    clock: Clock,
    duration: Duration,
    responses: mpsc::UnboundedSender<DemoResponse>,
) {
    let started = clock.monotonic_now();
    let schedule = Arc::new(Schedule { started, clock, duration, unsent: Mutex::new(0..day.len()) });
    let mut connections = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let client = SimulatedClient { gateway, day: Arc::clone(&day), connection: None };
        connections.spawn(client.run(Arc::clone(&schedule), responses.clone()));
    }
    while connections.join_next().await.is_some() {}
}

/// The times at which requests are sent.
struct Schedule {
    started: Timestamp,
    clock: Clock,
    duration: Duration,
    /// Indexes of the requests that are not sent yet.
    unsent: Mutex<Range<usize>>,
}

impl Schedule {
    /// Waits until the next request is due, sets the clock to its time and returns its index.
    async fn next(&self, day: &[DemoRequest]) -> Option<usize> {
        // The lock is held while waiting, so that requests start in order.
        let mut unsent = self.unsent.lock().await;
        let index = unsent.next()?;
        let at = day[index].at;
        let due = self.duration.mul_f64(at.as_secs_f64() / traffic::DAY.as_secs_f64());
        let remaining = due.saturating_sub(self.clock.monotonic_now().saturating_duration_since(self.started));
        // Even an empty sleep takes one tick of the timer, so it is skipped if the day is late.
        if !remaining.is_zero() {
            tokio::time::sleep(remaining).await;
        }
        self.clock.set(traffic::DAY_START + at);
        Some(index)
    }
}

struct SimulatedClient {
    gateway: SocketAddr,
    day: Arc<Vec<DemoRequest>>,
    connection: Option<SendRequest<Empty<Bytes>>>,
}

impl SimulatedClient {
    async fn run(mut self, schedule: Arc<Schedule>, responses: mpsc::UnboundedSender<DemoResponse>) {
        while let Some(index) = schedule.next(&self.day).await {
            let response = tokio::time::timeout(TIMEOUT, self.send_one(index)).await;
            if responses.send((index, response.unwrap_or_else(|elapsed| Err(elapsed.into())))).is_err() {
                return;
            }
        }
    }

    async fn send_one(&mut self, index: usize) -> anyhow::Result<Response<Bytes>> {
        let request = request(&self.day[index], self.gateway)?;
        let mut connection = self.connect().await?;
        let (head, body) = connection.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        self.connection = Some(connection);
        Ok(Response::from_parts(head, body))
    }

    async fn connect(&mut self) -> anyhow::Result<SendRequest<Empty<Bytes>>> {
        if let Some(mut connection) = self.connection.take()
            && connection.ready().await.is_ok()
        {
            return Ok(connection);
        }
        let stream = TcpStream::connect(self.gateway).await?;
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
    use super::super::day;
    use super::super::origin::MeteredOrigin;
    use super::*;
    use std::collections::BTreeMap;

    #[tokio::test]
    async fn every_request_is_answered_once_on_simulated_time() {
        let clock = Clock::frozen_at(traffic::DAY_START);
        let origin = MeteredOrigin::start(clock.clone()).expect("a free port");
        let day = Arc::new(day::generate(1, 0.005));
        let (sender, mut responses) = mpsc::unbounded_channel();
        send(Arc::clone(&day), origin.address, clock.clone(), Duration::ZERO, sender).await;
        let mut seen = vec![0; day.len()];
        while let Some((index, response)) = responses.recv().await {
            assert!(response.expect("an answer").status().is_success());
            seen[index] += 1;
        }
        assert!(seen.iter().all(|&times| times == 1));
        let pages: BTreeMap<&str, u64> = day.iter().map(|request| (request.path.as_str(), request.cost)).collect();
        assert_eq!(origin.units(), pages.values().sum::<u64>());
        assert_eq!(clock.now(), (traffic::DAY_START + day[day.len() - 1].at).truncate_to_micros());
    }
}
