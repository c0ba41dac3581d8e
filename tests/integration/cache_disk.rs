//! The cache on disk before a scripted origin: what survives a restart, what does not, and what becomes of damaged files.

use crate::support::client::Response;
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, OriginConnection, ReceivedRequest};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

const RULES: &str = "\
workers: 1
cache: { disk: { size: 256MiB } }
routes:
  - { match: \"/**\" }
";

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

/// Restarts the gateway, and waits until its files are known.
fn restart(gateway: &mut TestGateway) {
    gateway.restart();
    while stats(gateway)["disk"]["is_loaded"] != true {
        std::thread::yield_now();
    }
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
    restart(&mut gateway);
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
    restart(&mut gateway);
    assert_eq!(fetch_all(&gateway), [true; 5]);
    restart(&mut gateway);
    for path in ["/b", "/c"] {
        let mut client = gateway.connect();
        client.send(format!("POST {path} HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1\r\n\r\nx"));
        assert_eq!(client.read_response().status, 204);
    }
    let purge =
        |gateway: &TestGateway, query: &str| gateway.admin_request("DELETE", &format!("/api/v1/cache?{query}"), "");
    assert_eq!(purge(&gateway, "url=http://example.com/d"), (200, "{\"removed\":1}".to_owned()), "not in memory");
    assert_eq!(purge(&gateway, "prefix=http://example.com/shop/"), (200, "{\"removed\":1}".to_owned()));
    restart(&mut gateway);
    assert_eq!(fetch_all(&gateway), [true, false, false, false, false]);
    assert_eq!(purge(&gateway, "tag=all"), (200, "{\"removed\":5}".to_owned()));
    restart(&mut gateway);
    assert_eq!(fetch_all(&gateway), [false; 5]);
}

#[test]
fn damaged_copy_is_fetched_again() {
    let origin = Origin::with_script(pages);
    let mut gateway = TestGateway::with_rules(origin.address(), RULES);
    get(&gateway, "/damaged", "");
    get(&gateway, "/whole", "");
    get(&gateway, "/large", "");
    restart(&mut gateway);
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
