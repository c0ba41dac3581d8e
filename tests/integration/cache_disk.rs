//! The cache on disk before a scripted origin: what survives a restart, what does not, and what becomes of damaged files.

use crate::support::client::{Client, Response};
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, OriginConnection, ReceivedRequest, signal};
use crate::support::running_gateway::RunningGateway;
use crate::support::small_disk::SmallDisk;
use crate::support::wait::wait_until;
use crate::support::{TIMEOUT, report_skip};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use tidegate_policy::hash::mix;

const RULES: &str = "\
workers: 1
cache: { disk: { size: 256MiB } }
routes:
  - { match: \"/**\" }
";

/// Length of a body that is read into memory.
const MEDIUM: usize = 100_000;
/// Length of a body that is sent from its file.
const LARGE: usize = 2_000_000;

/// Responds with a page that its URL and language determine.
fn pages(request: &ReceivedRequest, connection: &mut OriginConnection) {
    if request.method == "POST" {
        connection.read_body(request);
        return connection.reply("204 No Content", "", b"");
    }
    let fields = "Cache-Control: max-age=3600\r\nETag: \"1\"\r\nCache-Tag: all\r\n";
    match request.target.as_str() {
        "/medium" => connection.reply("200 OK", fields, &large_page()[..MEDIUM]),
        "/large" => connection.reply("200 OK", fields, &large_page()),
        "/language" => {
            let page = format!("page in {}", request.fields.get("accept-language").map_or("none", String::as_str));
            connection.reply("200 OK", &format!("{fields}Vary: Accept-Language\r\n"), page.as_bytes());
        }
        target => connection.reply("200 OK", fields, format!("page {target}").as_bytes()),
    }
}

fn large_page() -> Vec<u8> {
    (0..LARGE).map(|position| (position ^ (position >> 9)) as u8).collect()
}

fn get(gateway: &TestGateway, path: &str, fields: &str) -> Response {
    gateway.connect().get(path, fields)
}

fn is_hit(response: &Response) -> bool {
    response.field("cache-status").starts_with("tidegate; hit")
}

fn stats(gateway: &TestGateway) -> Value {
    let (status, document) = gateway.admin_get("/api/v1/cache");
    assert_eq!(status, 200);
    serde_json::from_str(&document).expect("JSON")
}

fn data_files(gateway: &TestGateway) -> Vec<PathBuf> {
    let entries = fs::read_dir(gateway.state_dir().join("cache")).expect("the directory of the cache");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "data")).collect()
}

/// Inverts all bytes that are equal to those of `text` in the files.
fn damage(files: &[PathBuf], text: &[u8]) {
    let mut is_found = false;
    for file in files {
        let mut content = fs::read(file).expect("a file");
        while let Some(start) = content.windows(text.len()).position(|window| window == text) {
            content[start] ^= 1;
            is_found = true;
        }
        fs::write(file, content).expect("a file");
    }
    assert!(is_found, "the files have the page");
}

#[test]
fn copy_is_served_from_disk_where_memory_has_no_space_for_it() {
    let origin = Origin::with_script(pages);
    let rules = |memory| RULES.replace("disk:", &format!("memory: {memory}, max_object: 128KiB, disk:"));
    let gateway = TestGateway::with_rules(origin.address(), &rules("64MiB"));
    assert_eq!(get(&gateway, "/medium", "").status, 200);
    wait_until("the page to be on disk", || stats(&gateway)["disk"]["entries"] == 1);
    // The store has as many parts as before, each too small for the page.
    gateway.reload(origin.address(), &rules("1MiB")).expect("valid rules");
    for _ in 0..3 {
        let medium = get(&gateway, "/medium", "");
        assert!(is_hit(&medium) && medium.body == large_page()[..MEDIUM]);
        assert_eq!(stats(&gateway)["entries"], 0, "the page is not in memory");
    }
    assert_eq!(origin.received_requests().len(), 1);
}

#[test]
fn copies_survive_a_restart() {
    let origin = Origin::with_script(pages);
    let mut gateway = TestGateway::with_rules(origin.address(), RULES);
    for (path, fields) in [
        ("/a", ""),
        ("/large", ""),
        ("/language", "Accept-Language: de\r\n"),
        ("/language", "Accept-Language: de\r\n"),
        ("/language", "Accept-Language: fr\r\n"),
    ] {
        assert_eq!(get(&gateway, path, fields).status, 200);
    }
    gateway.restart_with_disk();
    assert_eq!(stats(&gateway)["entries"], 0, "nothing is in memory yet");
    let fetched = origin.received_requests().len();
    for round in 0..2 {
        for (path, fields, text) in [
            ("/a", "", "page /a"),
            ("/language", "Accept-Language: de\r\n", "page in de"),
            ("/language", "Accept-Language: fr\r\n", "page in fr"),
        ] {
            let response = get(&gateway, path, fields);
            assert!(is_hit(&response) && response.text() == text, "{round} {path} {fields}");
        }
        let large = get(&gateway, "/large", "");
        assert!(is_hit(&large) && large.body == large_page());
        let part = get(&gateway, "/large", "Range: bytes=65000-140000\r\n");
        assert_eq!(part.status, 206);
        assert!(is_hit(&part) && part.body == large_page()[65_000..=140_000]);
        let known = get(&gateway, "/large", "If-None-Match: \"1\"\r\n");
        assert_eq!((known.status, known.body.len()), (304, 0));
    }
    assert_eq!(origin.received_requests().len(), fetched, "the origin was not asked");
    let memory = stats(&gateway)["memory_bytes"].as_u64().expect("a number");
    assert!(memory < 100_000, "{memory} bytes: the large page is sent from its file");
}

#[test]
fn removed_copies_do_not_return_with_a_restart() {
    let origin = Origin::with_script(pages);
    let mut gateway = TestGateway::with_rules(origin.address(), RULES);
    // A field that neither the rules nor Vary name is part of the key by its value.
    let fetch_all = |gateway: &TestGateway| {
        let requests = [("/a", ""), ("/b", ""), ("/c", "X-Shop: 1\r\n"), ("/d", ""), ("/shop/1", "")];
        requests.map(|(path, fields)| is_hit(&get(gateway, path, fields)))
    };
    fetch_all(&gateway);
    gateway.restart_with_disk();
    assert_eq!(fetch_all(&gateway), [true; 5]);
    gateway.restart_with_disk();
    for path in ["/b", "/c"] {
        let mut client = gateway.connect();
        client.send(format!("POST {path} HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1\r\n\r\nx"));
        assert_eq!(client.read_response().status, 204);
    }
    let purge =
        |gateway: &TestGateway, query: &str| gateway.admin_request("DELETE", &format!("/api/v1/cache?{query}"), "");
    assert_eq!(purge(&gateway, "url=http://example.com/d"), (200, "{\"removed\":1}".to_owned()), "not in memory");
    assert_eq!(purge(&gateway, "prefix=http://example.com/shop/"), (200, "{\"removed\":1}".to_owned()));
    gateway.restart_with_disk();
    assert_eq!(fetch_all(&gateway), [true, false, false, false, false]);
    assert_eq!(purge(&gateway, "tag=all"), (200, "{\"removed\":5}".to_owned()));
    gateway.restart_with_disk();
    assert_eq!(fetch_all(&gateway), [false; 5]);
}

#[test]
fn damaged_copy_is_fetched_again() {
    let origin = Origin::with_script(pages);
    let mut gateway = TestGateway::with_rules(origin.address(), RULES);
    get(&gateway, "/damaged", "");
    get(&gateway, "/whole", "");
    get(&gateway, "/large", "");
    gateway.restart_with_disk();
    damage(&data_files(&gateway), b"page /damaged");
    let response = get(&gateway, "/damaged", "");
    assert!(!is_hit(&response) && response.text() == "page /damaged");
    assert!(is_hit(&get(&gateway, "/damaged", "")) && is_hit(&get(&gateway, "/whole", "")));
    assert_eq!(gateway.metric("tidegate_cache_disk_errors_total"), 1.0);
    // The head of the large page has been sent when its damage is found: the response ends early, and the next is whole.
    damage(&data_files(&gateway), &large_page()[1_000_000..1_000_100]);
    let mut client = gateway.connect();
    client.send("GET /large HTTP/1.1\r\nHost: example.com\r\n\r\n");
    let sent = client.read_rest();
    assert!(sent.len() < LARGE && !sent.is_empty(), "{} bytes", sent.len());
    assert!(get(&gateway, "/large", "").body == large_page());
    assert_eq!(gateway.metric("tidegate_cache_disk_errors_total"), 2.0);
}

#[test]
fn unusable_directory_leaves_the_memory() {
    let origin = Origin::with_script(pages);
    let mut gateway = TestGateway::with_rules(origin.address(), RULES);
    let dir = gateway.state_dir().join("cache");
    gateway.restart_after(|| {
        fs::remove_dir_all(&dir).expect("a directory");
        fs::write(&dir, "a file").expect("a file");
    });
    get(&gateway, "/a", "");
    assert!(is_hit(&get(&gateway, "/a", "")));
    assert_eq!(stats(&gateway)["disk"], Value::Null);
    assert!(dir.is_file());
}

#[test]
fn response_that_was_requested_before_a_purge_is_not_stored_after_it() {
    let (origin, arrived, release) = Origin::with_held_responses("/held");
    let rules = "cache: { disk: off }\nroutes: [ { match: \"/**\", cache: { ttl: 1h } } ]\n";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let mut client = gateway.connect();
    client.send("GET /held HTTP/1.1\r\nHost: example.com\r\n\r\n");
    arrived.wait();
    gateway.clock.advance(Duration::from_secs(1));
    assert_eq!(gateway.admin_request("DELETE", "/api/v1/cache?prefix=http://example.com/", "").0, 200);
    release.notify();
    assert_eq!(client.read_response().status, 200);
    release.notify();
    assert!(!is_hit(&get(&gateway, "/held", "")), "the page is fetched again");
    assert!(is_hit(&get(&gateway, "/held", "")));
}

#[test]
fn copy_that_was_validated_before_a_write_does_not_return() {
    let (arrived, arrival) = signal();
    let (release, released) = signal();
    let has_validated = AtomicBool::new(false);
    let origin = Origin::with_script(move |request, connection| {
        if request.method == "POST" {
            connection.read_body(request);
            return connection.reply("204 No Content", "", b"");
        }
        let fields = "Cache-Control: max-age=10\r\nETag: \"1\"\r\n";
        if request.fields.contains_key("if-none-match") {
            if !has_validated.swap(true, Ordering::SeqCst) {
                arrived.notify();
                released.wait();
            }
            return connection.reply("304 Not Modified", fields, b"");
        }
        connection.reply("200 OK", fields, b"page");
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    get(&gateway, "/a", "");
    gateway.clock.advance(Duration::from_secs(11));
    let mut reader = gateway.connect();
    reader.send("GET /a HTTP/1.1\r\nHost: example.com\r\n\r\n");
    arrival.wait();
    gateway.clock.advance(Duration::from_secs(1));
    let mut writer = gateway.connect();
    writer.send("POST /a HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(writer.read_response().status, 204);
    release.notify();
    assert_eq!(reader.read_response().text(), "page");
    let validated = get(&gateway, "/a", "");
    assert_eq!(validated.field("cache-status"), "tidegate; fwd=stale; fwd-status=304; stored", "of before the write");
}

// --- the program itself, killed under load, and on a full disk -----------------------------------------------------

const PAGES: u64 = 120;
const CLIENTS: u64 = 4;

/// Rules of the program: pages have lifetimes of their own.
const PROGRAM_RULES: &str = "\
log: { level: warn }
cache: { memory: 4MiB, max_object: 400KiB, disk: { size: 16MiB } }
routes: [ { match: \"/**\" } ]
";

/// Pages of several sizes, each with a version that a POST increases. Head and body say page and version.
fn versioned_pages() -> Origin {
    let versions = Mutex::new(HashMap::<String, u64>::new());
    Origin::with_script(move |request, connection| {
        let version = {
            let mut versions = versions.lock();
            let version = versions.entry(request.target.clone()).or_default();
            *version += u64::from(request.method == "POST");
            *version
        };
        if request.method == "POST" {
            connection.read_body(request);
            return connection.reply("204 No Content", "", b"");
        }
        let page: u64 = request.target.trim_start_matches("/page/").parse().expect("a number");
        let fields = format!("Cache-Control: max-age=86400\r\nX-Page: {page}\r\nX-Version: {version}\r\n");
        connection.reply("200 OK", &fields, &versioned_page(page, version));
    })
}

fn versioned_page(page: u64, version: u64) -> Vec<u8> {
    let length = [9, 3000, 70_000, 300_000][page as usize % 4];
    let seed = mix(page ^ (version << 32));
    (0..length).map(|position| (seed >> (position % 8 * 8)) as u8 ^ (position >> 3) as u8).collect()
}

/// Sends requests until the gateway is gone; calls `on_response` after each. Fails if a response has the head or body of
/// another page or version. Returns the number of copies among the responses.
fn read_until_killed(address: SocketAddr, seed: u64, on_response: impl Fn()) -> u64 {
    let mut hits = 0;
    for number in 0.. {
        let random = mix(seed.wrapping_add(number));
        let page = random % PAGES;
        let method = if random >> 32 & 15 == 0 { "POST" } else { "GET" };
        let Ok(stream) = TcpStream::connect(address) else { break };
        let mut client = Client::from_stream(stream);
        client.try_send(format!("{method} /page/{page} HTTP/1.1\r\nHost: site\r\nContent-Length: 0\r\n\r\n"));
        let Some(response) = client.response_or_eof(method) else { break };
        if method == "GET" {
            assert_page(&response, page);
            hits += u64::from(is_hit(&response));
        }
        on_response();
    }
    hits
}

fn assert_page(response: &Response, page: u64) {
    assert_eq!((response.status, response.field("x-page")), (200, page.to_string().as_str()));
    let version = response.field("x-version").parse().expect("a number");
    assert!(
        response.body == versioned_page(page, version),
        "the body of another page or version than {page} {version}"
    );
}

fn disk_stats(gateway: &RunningGateway) -> Value {
    let document: Value = serde_json::from_str(&gateway.admin_request("GET", "/api/v1/cache", "")).expect("JSON");
    document["disk"].clone()
}

#[test]
fn killed_process_serves_whole_copies_or_none() {
    let rounds = std::env::var("TIDEGATE_CRASH_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(10);
    let origin = versioned_pages();
    let dir = tempfile::tempdir().expect("temporary directory");
    let (mut hits, mut kept) = (0, 0);
    for round in 0..rounds {
        let gateway = RunningGateway::start(dir.path(), origin.address(), PROGRAM_RULES);
        wait_until("the index is read", || disk_stats(&gateway)["is_loaded"] == true);
        let disk = disk_stats(&gateway);
        assert_eq!(disk["errors"], 0, "round {round}: {disk}");
        kept += disk["entries"].as_u64().expect("a number");
        let (killed, kill) = channel();
        let count = AtomicU64::new(0);
        // Between 20 and 1,000 requests.
        let kill_after = 20 + mix(round) % 980;
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let (killed, count, address) = (killed.clone(), &count, gateway.address);
                    scope.spawn(move || {
                        read_until_killed(address, mix(round * CLIENTS + client), || {
                            if count.fetch_add(1, Ordering::Relaxed) == kill_after {
                                let _ = killed.send(());
                            }
                        })
                    })
                })
                .collect();
            kill.recv_timeout(TIMEOUT).expect("the gateway serves requests");
            gateway.program.signal("KILL");
            hits += readers.into_iter().map(|reader| reader.join().expect("a reader")).sum::<u64>();
        });
        gateway.program.kill();
    }
    assert!(kept > 0 && hits > 0, "{kept} copies survived, {hits} were sent");
    println!("{rounds} kills: {kept} copies survived, {hits} were sent");
}

#[test]
fn full_disk_leaves_the_memory_and_is_used_again_when_it_has_space() {
    let Some(small) = SmallDisk::mount("24m") else { return report_skip("cannot mount a file system") };
    let origin = versioned_pages();
    let gateway = RunningGateway::start(&small.path().join("state"), origin.address(), PROGRAM_RULES);
    let other = small.path().join("other");
    let mut file = OpenOptions::new().append(true).create(true).open(&other).expect("a file");
    while file.write_all(&[0; 4096]).is_ok() {}
    let mut client = Client::connect(gateway.address);
    for page in (0..40).chain(0..40) {
        assert_page(&client.get(&format!("/page/{page}"), ""), page);
    }
    wait_until("errors of the full disk", || disk_stats(&gateway)["errors"].as_u64() > Some(0));
    client.get("/page/0", "");
    assert!(is_hit(&client.get("/page/0", "")), "memory has the page");
    drop(file);
    fs::remove_file(&other).expect("a file");
    for page in 40..60 {
        assert_page(&client.get(&format!("/page/{page}"), ""), page);
    }
    wait_until("new records", || disk_stats(&gateway)["entries"].as_u64() > Some(0));
}
