//! Clients with the three retry strategies of Atlassian's documentation against a real gateway. A client that follows
//! the response headers completes all of its work. A client sleeps by advancing the gateway's clock.

use crate::support::client::Response;
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use std::time::Duration;

/// Number of pages that a client must fetch: more than the capacity of any bucket in this module.
const PAGES_PER_CLIENT: usize = 40;

/// Bucket sizes: small and large batches, and a steady flow.
const BUCKETS: [&str; 6] = [
    "{ capacity: 10, fill: 5, interval: 10s }",
    "{ capacity: 1, fill: 1, interval: 3s }",
    "{ capacity: 5, fill: 30, interval: 1m }",
    "{ capacity: 8, fill: 3, interval: 1500ms }",
    "{ rate: 2/s, burst: 5 }",
    "{ rate: 7/m, burst: 1 }",
];

#[test]
fn exponential_backoff_completes_all_requests() {
    for bucket in BUCKETS {
        let site = BucketSite::with_bucket(bucket);
        let mut client = SimulatedClient::new("192.0.2.1", ExponentialBackoff::default());
        site.run_to_completion(&mut [&mut client]);
        assert!(client.refused_requests.len() > 1, "{bucket}: exponential backoff reacts to refusals only");
    }
}

#[test]
fn honoring_retry_after_avoids_all_refusals() {
    for bucket in BUCKETS {
        let site = BucketSite::with_bucket(bucket);
        let mut client = SimulatedClient::new("192.0.2.1", HonorRetryAfter);
        site.run_to_completion(&mut [&mut client]);
        assert_eq!(
            client.refused_requests,
            [] as [usize; 0],
            "{bucket}: the response to the last token has the time of the next one"
        );
        let mut late_client = SimulatedClient::new("192.0.2.2", HonorRetryAfter);
        site.drain_bucket(late_client.address);
        site.run_to_completion(&mut [&mut late_client]);
        assert_eq!(
            late_client.refused_requests,
            [0],
            "{bucket}: only the first request, after another client's requests"
        );
    }
}

#[test]
fn header_rate_adjustment_avoids_all_refusals() {
    for bucket in BUCKETS {
        let site = BucketSite::with_bucket(bucket);
        let mut client = SimulatedClient::new("192.0.2.1", AdjustToHeaders);
        site.run_to_completion(&mut [&mut client]);
        assert_eq!(client.refused_requests, [] as [usize; 0], "{bucket}");
        let mut late_client = SimulatedClient::new("192.0.2.2", AdjustToHeaders);
        site.drain_bucket(late_client.address);
        site.run_to_completion(&mut [&mut late_client]);
        assert_eq!(late_client.refused_requests, [0], "{bucket}: only the first request");
    }
}

#[test]
fn mixed_strategies_behind_one_address_complete() {
    for bucket in BUCKETS {
        let site = BucketSite::with_bucket(bucket);
        let mut exponential = SimulatedClient::new("192.0.2.1", ExponentialBackoff::default());
        let mut timed = SimulatedClient::new("192.0.2.1", HonorRetryAfter);
        let mut adjusting = SimulatedClient::new("192.0.2.1", AdjustToHeaders);
        site.run_to_completion(&mut [&mut exponential, &mut timed, &mut adjusting]);
    }
}

/// Retry strategy of a client: the delay between a response and the next request.
trait RetryStrategy {
    fn next_delay(&mut self, response: &Response, random: f64) -> Duration;
}

/// Sends until a refusal, then waits one second, doubled with each further refusal. Reads no headers.
#[derive(Default)]
struct ExponentialBackoff {
    consecutive_refusals: u32,
}

impl RetryStrategy for ExponentialBackoff {
    fn next_delay(&mut self, response: &Response, random: f64) -> Duration {
        if response.status == 200 {
            self.consecutive_refusals = 0;
            return Duration::ZERO;
        }
        self.consecutive_refusals += 1;
        let backoff = Duration::from_secs(1 << (self.consecutive_refusals - 1).min(10));
        backoff.mul_f64(1.0 + random / 2.0)
    }
}

/// Sends without a delay until `Retry-After` is above 0, then waits for as long.
struct HonorRetryAfter;

impl RetryStrategy for HonorRetryAfter {
    fn next_delay(&mut self, response: &Response, _: f64) -> Duration {
        retry_after(response)
    }
}

/// Spreads requests evenly over the refill interval.
struct AdjustToHeaders;

impl RetryStrategy for AdjustToHeaders {
    fn next_delay(&mut self, response: &Response, _: f64) -> Duration {
        let interval = Duration::from_secs(header_number(response, "x-ratelimit-interval-seconds"));
        let fill = u32::try_from(header_number(response, "x-ratelimit-fillrate")).expect("fill rate fits u32");
        (interval / fill).max(retry_after(response))
    }
}

struct SimulatedClient<'a> {
    address: &'static str,
    strategy: Box<dyn RetryStrategy + 'a>,
    request_count: usize,
    /// Numbers of the refused requests.
    refused_requests: Vec<usize>,
    pages_left: usize,
    /// Time of the next request, since the start.
    next_request_at: Duration,
}

impl<'a> SimulatedClient<'a> {
    fn new(address: &'static str, strategy: impl RetryStrategy + 'a) -> Self {
        Self {
            address,
            strategy: Box::new(strategy),
            request_count: 0,
            refused_requests: Vec::new(),
            pages_left: PAGES_PER_CLIENT,
            next_request_at: Duration::ZERO,
        }
    }
}

struct BucketSite {
    gateway: TestGateway,
    /// Keeps the origin alive.
    _origin: Origin,
}

impl BucketSite {
    fn with_bucket(bucket: &str) -> Self {
        let origin = Origin::plain();
        let rules = format!("classes: [ {{ name: all, bucket: {bucket} }} ]\nheaders: {{ legacy: [atlassian] }}");
        Self { gateway: TestGateway::with_rules(origin.address(), &rules), _origin: origin }
    }

    fn request_from(&self, address: &str) -> Response {
        let response = self.gateway.connect().get("/", &format!("X-Forwarded-For: {address}\r\n"));
        assert!(matches!(response.status, 200 | 429), "{}", response.status);
        response
    }

    fn drain_bucket(&self, address: &str) {
        while self.request_from(address).status == 200 {}
    }

    /// Runs every client until all of its pages are fetched, each at its own times. Panics if that takes too many
    /// requests.
    fn run_to_completion(&self, clients: &mut [&mut SimulatedClient<'_>]) {
        let mut elapsed = Duration::ZERO;
        while let Some(client) =
            clients.iter_mut().filter(|client| client.pages_left > 0).min_by_key(|client| client.next_request_at)
        {
            self.gateway.clock.advance(client.next_request_at.saturating_sub(elapsed));
            elapsed = elapsed.max(client.next_request_at);
            let response = self.request_from(client.address);
            match response.status {
                200 => client.pages_left -= 1,
                _ => client.refused_requests.push(client.request_count),
            }
            client.request_count += 1;
            assert!(
                client.request_count < 50 * PAGES_PER_CLIENT,
                "{} pages of {PAGES_PER_CLIENT} are missing",
                client.pages_left
            );
            let random = (client.request_count % 10) as f64 / 10.0;
            client.next_request_at = elapsed + client.strategy.next_delay(&response, random);
        }
    }
}

fn retry_after(response: &Response) -> Duration {
    Duration::from_secs(header_number(response, "retry-after"))
}

fn header_number(response: &Response, name: &str) -> u64 {
    response.field(name).parse().unwrap_or_else(|_| panic!("{name}: {:?}", response.field(name)))
}
