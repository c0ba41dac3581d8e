//! Overload of one client leaves the others served, and overload of the origin pauses the scope.

use super::*;

const LOGIN: RouteId = RouteId(0);
const PAGES: RouteId = RouteId(1);

/// Clients in front of an origin, in steps of one millisecond. Each client sends at its interval; a response takes 20 ms.
struct Site {
    fixture: ThrottleFixture,
    clients: Vec<SimulatedClient>,
    now: u64,
    waiting: Vec<(usize, TestClient)>,
    in_flight: Vec<(u64, usize, SlotGuard)>,
    /// Number of requests that the origin received from each client.
    sent: Vec<u32>,
    served: Vec<u32>,
    refused: Vec<u32>,
}

/// One client, or one that changes its address with each request within a /48.
#[derive(Clone, Copy)]
struct SimulatedClient {
    network: u64,
    interval_ms: u64,
    route: RouteId,
    changes_address: bool,
}

impl Site {
    fn new(backoff: Backoff, controller: Option<Controller>, clients: Vec<SimulatedClient>) -> Self {
        let config = throttle::ThrottleConfig { backoff: Some(backoff), controller, ..with_concurrency(16) };
        let count = clients.len();
        Self {
            fixture: ThrottleFixture::with_scopes(&[("api", config)]),
            clients,
            now: 0,
            waiting: Vec::new(),
            in_flight: Vec::new(),
            sent: vec![0; count],
            served: vec![0; count],
            refused: vec![0; count],
        }
    }

    /// Runs for `seconds`; `status` is the origin's response to a client.
    fn run(&mut self, seconds: u64, status: impl Fn(usize) -> u16) {
        for now in self.now + 1..=self.now + seconds * 1000 {
            self.now = now;
            for (ends_at, client, guard) in std::mem::take(&mut self.in_flight) {
                if ends_at > now {
                    self.in_flight.push((ends_at, client, guard));
                    continue;
                }
                let _ = guard.record_response(&origin_outcome(status(client)), 0.0, ms(now));
                self.served[client] += u32::from(status(client) == 200);
            }
            for (client, mut waiter) in std::mem::take(&mut self.waiting) {
                match waiter.poll_at(now) {
                    QueuePoll::Granted(guard) => self.start(client, guard),
                    QueuePoll::Pending { .. } => self.waiting.push((client, waiter)),
                    QueuePoll::Rejected(_) => self.refused[client] += 1,
                }
            }
            for client in 0..self.clients.len() {
                let SimulatedClient { interval_ms, .. } = self.clients[client];
                if now % interval_ms == client as u64 * 7 % interval_ms {
                    self.send(client);
                }
            }
        }
    }

    fn send(&mut self, client: usize) {
        let SimulatedClient { network, route, changes_address, .. } = self.clients[client];
        let key = network << 16 | if changes_address { self.now & 0xffff } else { 1 };
        let source = RequestSource { client: ClientKey::from_u64(key), network, route };
        match self.fixture.acquire_from(source, &["api"], HIGH_PRIORITY, self.now) {
            AcquireOutcome::Acquired(guard) => self.start(client, guard.expect("the scope is throttled")),
            AcquireOutcome::Queued(request) => self.waiting.push((client, TestClient::new(request))),
            AcquireOutcome::Rejected(_) => self.refused[client] += 1,
        }
    }

    fn start(&mut self, client: usize, guard: SlotGuard) {
        self.sent[client] += 1;
        self.in_flight.push((self.now + 20, client, guard));
    }

    fn state(&self) -> ScopeState {
        self.fixture.state("api", self.now)
    }
}

fn backoff(min_clients: u32) -> Backoff {
    let min_clients = NonZeroU32::new(min_clients).expect("not zero");
    Backoff { min_clients, statuses: vec![429, 503], ..with_backoff().backoff.expect("a backoff") }
}

/// Returns `count` visitors, each in a network of its own, who request a page per second.
fn visitors(count: u64) -> Vec<SimulatedClient> {
    let visitor = |network| SimulatedClient { network, interval_ms: 1000, route: PAGES, changes_address: false };
    (100..100 + count).map(visitor).collect()
}

#[test]
fn client_with_overload_of_its_own_leaves_the_others_served() {
    let gradient = Controller::Gradient(Gradient { min: 1, max: 16 });
    for (interval_ms, changes_address, controller) in [
        (1000, false, None),
        (100, false, None),
        (10, false, None),
        (1000, true, None),
        (100, true, None),
        (10, true, None),
        (10, true, Some(gradient)),
    ] {
        let mut clients = visitors(20);
        clients.push(SimulatedClient { network: 7, interval_ms, route: LOGIN, changes_address });
        let mut site = Site::new(backoff(3), controller, clients);
        let attacker = 20;
        site.run(300, |client| if client == attacker { 429 } else { 200 });
        let attack = format!("one request in {interval_ms} ms, changes its address: {changes_address}");
        assert_eq!(site.refused[..attacker], [0; 20], "{attack}");
        assert!(site.served[..attacker].iter().all(|served| *served >= 299), "{attack}: {:?}", site.served);
        assert!(site.sent[attacker] <= 40, "{attack}: its backoff grows: {} requests", site.sent[attacker]);
        assert_eq!(site.state().backoff_level, 0, "{attack}");
    }
}

#[test]
fn one_overloaded_route_leaves_the_others_served() {
    let mut clients = visitors(20);
    clients.iter_mut().take(10).for_each(|client| client.route = LOGIN);
    let mut site = Site::new(backoff(3), None, clients);
    site.run(10, |_| 200);
    site.run(60, |client| if client < 10 { 503 } else { 200 });
    assert_eq!(site.refused[10..], [0; 10]);
    assert_eq!(site.state().backoff_remaining, Duration::ZERO);
    let sent: u32 = site.sent[..10].iter().sum();
    assert!(sent <= 100 + 60, "the route backs off: {} of 600 requests were sent", sent - 100);
}

/// Returns the number of requests sent in a minute of overload, and the requests served in the minute after it.
fn overload_of_the_origin(min_clients: u32, clients: u64) -> (u32, u32) {
    let mut site = Site::new(backoff(min_clients), None, visitors(clients));
    site.run(10, |_| 200);
    let (sent, served): (u32, u32) = (site.sent.iter().sum(), site.served.iter().sum());
    site.run(60, |_| 503);
    let sent = site.sent.iter().sum::<u32>() - sent;
    site.run(60, |_| 200);
    (sent, site.served.iter().sum::<u32>() - served)
}

#[test]
fn overload_of_the_origin_is_met_as_quickly_as_by_any_overload() {
    for clients in [5, 20, 100, 500] {
        let (sent_by_any, served_by_any) = overload_of_the_origin(1, clients);
        let (sent, served) = overload_of_the_origin(3, clients);
        println!("{clients} clients: {sent_by_any} and {sent} sent, {served_by_any} and {served} served");
        assert!(sent <= sent_by_any + 12, "{clients} clients: {sent} requests instead of {sent_by_any}");
        assert!(f64::from(served) >= 0.9 * f64::from(served_by_any), "{clients} clients: {served} of {served_by_any}");
    }
}

#[test]
fn unreachable_origin_pauses_the_scope_at_once() {
    let config = throttle::ThrottleConfig { backoff: Some(backoff(3)), ..permissive() };
    let fixture = ThrottleFixture::with_scopes(&[("api", config)]);
    let guard = fixture.expect_acquired(&["api"], 0);
    let unreachable = OriginOutcome { status: None, is_unreachable: true, ..origin_outcome(200) };
    let _ = guard.record_response(&unreachable, 0.0, ms(0));
    assert_eq!(fixture.state("api", 0).backoff_remaining, seconds(1));
}

#[test]
fn parts_that_back_off_are_bounded_and_forgotten() {
    let config = throttle::ThrottleConfig { backoff: Some(backoff(u32::MAX)), ..permissive() };
    let fixture = ThrottleFixture::with_scopes(&[("api", config)]);
    for client in 0..10_000 {
        let source = RequestSource { client: ClientKey::from_u64(client), network: client, route: LOGIN };
        if let AcquireOutcome::Acquired(Some(guard)) = fixture.acquire_from(source, &["api"], HIGH_PRIORITY, 0) {
            let _ = guard.record_response(&origin_outcome(429), 0.0, ms(0));
        }
    }
    assert_eq!(fixture.state("api", 0).backoff_parts, 4096);
    let instances = |now| {
        let _ = fixture.throttle.snapshots(ms(now));
        fixture.throttle.scheduler.lock().instances.len()
    };
    assert_eq!(instances(0), 4096 + 1);
    assert_eq!(instances(660_000), 1, "ten minutes after its last request, a part is forgotten");
    assert_eq!(fixture.state("api", 660_000).backoff_parts, 0);
}
