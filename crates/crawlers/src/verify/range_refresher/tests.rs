use super::*;
use crate::verify::OperatorOverride;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use tempfile::TempDir;
use tidegate_policy::{Proof, ProofMethod};

const DAY: Duration = Duration::from_secs(86_400);

#[tokio::test]
async fn fetched_list_is_applied_and_cached() {
    let fixture = RefreshFixture::new();
    fixture.server.respond_with(ok_response("\"1\"", "192.0.2.0/24"));
    let mut refresher = fixture.refresher();
    assert_eq!(fixture.proof("192.0.2.1"), Proof::Unknown);
    refresher.refresh_due().await;
    assert_eq!(fixture.proof("192.0.2.1"), Proof::Proven(ProofMethod::Address));
    assert_eq!(fixture.proof("198.51.100.1"), Proof::Disproven(ProofMethod::Address));
    assert_eq!(fixture.cached_files(), 1);
}

#[tokio::test]
async fn list_is_revalidated_once_per_interval() {
    let fixture = RefreshFixture::new();
    fixture.server.respond_with(ok_response("\"1\"", "192.0.2.0/24"));
    let mut refresher = fixture.refresher();
    refresher.refresh_due().await;
    fixture.server.respond_with("304 Not Modified\r\n\r\n".into());
    fixture.clock.advance(DAY.mul_f64(0.89));
    refresher.refresh_due().await;
    assert_eq!(fixture.server.requests().len(), 1);
    fixture.clock.advance(DAY.mul_f64(0.22));
    refresher.refresh_due().await;
    assert!(fixture.server.requests()[1].contains("if-none-match: \"1\""), "{:?}", fixture.server.requests());
    assert_eq!(fixture.proof("192.0.2.1"), Proof::Proven(ProofMethod::Address));
    fixture.server.respond_with(ok_response("\"2\"", "198.51.100.0/24"));
    fixture.clock.advance(DAY.mul_f64(1.1));
    refresher.refresh_due().await;
    assert_eq!(fixture.proof("198.51.100.1"), Proof::Proven(ProofMethod::Address));
    assert_eq!(fixture.proof("192.0.2.1"), Proof::Disproven(ProofMethod::Address));
}

#[tokio::test]
async fn invalid_list_keeps_the_previous_and_retries_soon() {
    let fixture = RefreshFixture::new();
    let networks: Vec<String> = (0..10).map(|number| format!("192.0.{number}.0/32")).collect();
    fixture.server.respond_with(ok_response("\"1\"", &networks.join("\n")));
    let mut refresher = fixture.refresher();
    refresher.refresh_due().await;
    let large = "x".repeat(MAX_BYTES + 1);
    for broken in ["", "<html>", "0.0.0.0/0", "192.0.0.0/32", "{\"prefixes\": []}", &large] {
        fixture.server.respond_with(ok_response("\"2\"", broken));
        fixture.clock.advance(DAY.mul_f64(1.1));
        refresher.refresh_due().await;
        assert_eq!(
            fixture.proof("192.0.9.0"),
            Proof::Proven(ProofMethod::Address),
            "{}",
            &broken[..broken.len().min(20)]
        );
    }
    let requests = fixture.server.requests();
    assert!(
        requests.iter().skip(1).all(|request| request.contains("if-none-match: \"1\"")),
        "a rejected list stores no validators"
    );
    fixture.server.respond_with(ok_response("\"3\"", "192.0.9.0/32\n198.51.100.1\n1.1.1.1\n2.2.2.2\n3.3.3.3"));
    fixture.clock.advance(Duration::from_secs(4000));
    refresher.refresh_due().await;
    assert_eq!(fixture.proof("198.51.100.1"), Proof::Proven(ProofMethod::Address));
}

#[tokio::test]
async fn restart_uses_the_cached_list_during_outages() {
    let mut fixture = RefreshFixture::new();
    fixture.server.respond_with(ok_response("\"1\"", "192.0.2.0/24"));
    fixture.refresher().refresh_due().await;
    fixture.restart();
    let mut refresher = fixture.refresher();
    assert_eq!(
        fixture.proof("192.0.2.1"),
        Proof::Proven(ProofMethod::Address),
        "the stored copy is used before the first fetch"
    );
    assert_eq!(fixture.server.requests().len(), 1, "a restart does not fetch again");
    fixture.server.respond_with("503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".into());
    fixture.clock.advance(DAY * 2);
    refresher.refresh_due().await;
    assert_eq!(fixture.server.requests().len(), 2);
    assert_eq!(fixture.proof("192.0.2.1"), Proof::Proven(ProofMethod::Address));
}

#[tokio::test]
async fn changed_range_file_is_reloaded_and_can_shrink() {
    let mut fixture = RefreshFixture::new();
    let file = fixture.state_dir.path().join("ours.txt");
    fixture.source = RangeSource::File(file.clone());
    let write = |text: &str| std::fs::write(&file, text).expect("room on the disk");
    write("192.0.2.0/24\n192.0.3.0/32\n192.0.4.0/32\n");
    fixture.restart();
    let mut refresher = fixture.refresher();
    assert_eq!(fixture.proof("192.0.2.1"), Proof::Proven(ProofMethod::Address), "the file is read at startup");
    write("198.51.100.0/24\n");
    fixture.clock.advance(FILE_POLL_INTERVAL);
    refresher.refresh_due().await;
    assert_eq!(fixture.proof("198.51.100.1"), Proof::Proven(ProofMethod::Address));
    write("half a li");
    fixture.clock.advance(FILE_POLL_INTERVAL);
    refresher.refresh_due().await;
    let stale = || fixture.operators.stale_lists().iter().map(|(_, count)| count).sum::<usize>();
    assert_eq!(stale(), 1);
    assert_eq!(
        fixture.operators.errors(),
        [(file.display().to_string(), "not a network list: `half` is not a network".into())]
    );
    std::fs::remove_file(&file).expect("the file exists");
    fixture.clock.advance(FILE_POLL_INTERVAL);
    refresher.refresh_due().await;
    assert_eq!(fixture.proof("198.51.100.1"), Proof::Proven(ProofMethod::Address));
    write("198.51.100.0/24\n");
    fixture.clock.advance(FILE_POLL_INTERVAL);
    refresher.refresh_due().await;
    assert_eq!((stale(), fixture.operators.errors()), (0, Vec::new()));
}

#[tokio::test]
async fn first_fetches_are_delayed_and_spread_out() {
    let fixture = RefreshFixture::new();
    let refresher = fixture.refresher_for_all();
    let built_in = refresher.lists.iter().filter(|list| list.source != fixture.source);
    let mut due: Vec<Timestamp> = built_in.map(|list| list.due_at).collect();
    due.sort();
    due.dedup();
    assert!(due.len() > 15, "{} times", due.len());
    let start = fixture.clock.monotonic_now();
    assert!(due.iter().all(|due| *due > start && *due < start + FIRST_FETCH_SPREAD));
}

#[tokio::test]
async fn disabled_refresh_fetches_nothing() {
    let mut fixture = RefreshFixture::new();
    fixture.interval = None;
    let mut refresher = fixture.refresher();
    fixture.clock.advance(DAY * 30);
    refresher.refresh_due().await;
    assert_eq!(fixture.server.requests(), Vec::<String>::new());
}

/// An operator with one list, published by a server of this test.
struct RefreshFixture {
    server: ListServer,
    state_dir: TempDir,
    clock: Clock,
    source: RangeSource,
    interval: Option<Duration>,
    operators: Arc<OperatorTable>,
}

impl RefreshFixture {
    fn new() -> Self {
        let server = ListServer::start();
        let source = RangeSource::Url(format!("http://{}/bots.json", server.address));
        let operators = operators(&source);
        let directory = tempfile::tempdir().expect("a directory");
        // Later than the snapshot.
        let clock = Clock::manual(Timestamp::from_seconds(1_800_014_400));
        Self { server, state_dir: directory, clock, source, interval: Some(DAY), operators }
    }

    fn restart(&mut self) {
        self.operators = operators(&self.source);
    }

    /// Refreshes only that list, because the servers of the built-in lists are external.
    fn refresher(&self) -> RangeRefresher {
        let mut refresher = self.refresher_for_all();
        refresher.lists.retain(|list| list.source == self.source);
        refresher
    }

    fn refresher_for_all(&self) -> RangeRefresher {
        let operators = Arc::clone(&self.operators);
        RangeRefresher::new(
            operators,
            Fetcher::with_public_roots(),
            self.state_dir.path(),
            self.interval,
            self.clock.clone(),
            42,
        )
    }

    fn proof(&self, address: &str) -> Proof {
        let acme = self.operators.id("acme").expect("declared");
        self.operators.verify(acme, address.parse().expect("an address"), Timestamp::default())
    }

    fn cached_files(&self) -> usize {
        std::fs::read_dir(self.state_dir.path().join("ranges")).expect("a directory").count()
    }
}

fn operators(source: &RangeSource) -> Arc<OperatorTable> {
    let declared = OperatorOverride {
        name: "acme".into(),
        ranges: Some(vec![source.clone()]),
        exhaustive: Some(vec![ProofMethod::Address]),
        ..OperatorOverride::default()
    };
    Arc::new(OperatorTable::with_overrides(vec![declared]))
}

fn ok_response(etag: &str, body: &str) -> String {
    format!("200 OK\r\nETag: {etag}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Plain HTTP server on loopback that sends the response set last.
struct ListServer {
    address: SocketAddr,
    responses: Arc<Mutex<VecDeque<String>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl ListServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let server = Self { address, responses: Arc::default(), requests: Arc::default() };
        let (responses, requests) = (Arc::clone(&server.responses), Arc::clone(&server.requests));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut head = [0; 4096];
                let length = stream.read(&mut head).unwrap_or(0);
                requests.lock().push(String::from_utf8_lossy(&head[..length]).into_owned());
                let response = responses.lock().pop_front().unwrap_or_else(|| "500 Not Told\r\n\r\n".into());
                let _ = stream.write_all(format!("HTTP/1.1 {response}").as_bytes());
            }
        });
        server
    }

    fn respond_with(&self, response: String) {
        self.responses.lock().push_back(response);
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}
