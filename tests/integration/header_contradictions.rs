//! What header fields show of a client: those of people's browsers contradict nothing that counts, those of programs do.

use crate::support::browser::{Browser, Screen};
use crate::support::client::Client;
use crate::support::crawlers::InstalledClients;
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::tls::Certificates;
use serde_json::Value;

/// Rules that refuse every page of a suspected bot.
const RULES: &str = "
workers: 1
quotas: { api: { limit: 1000, window: { fixed: 24h }, tiers: { bot: [ { above: 0%, shed: 100% } ] } } }
classes: [ { name: bot, when: { kind: suspected_bot } }, { name: person } ]
routes: [ { match: '/item/**', cost: { api: 1 } } ]
";

const CHROME: &str = "User-Agent: Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36";
const EDGE: &str = "User-Agent: Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0";
const FIREFOX: &str = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0";
const SAFARI: &str = "User-Agent: Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Safari/605.1.15";
const WEBVIEW: &str = "User-Agent: Mozilla/5.0 (Linux; Android 15; Pixel 9 Build/BP1A.250505.005; wv) AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/142.0.7444.102 Mobile Safari/537.36";

const CHROME_HINTS: &str = "Sec-CH-UA: \"Chromium\";v=\"142\", \"Google Chrome\";v=\"142\", \"Not_A Brand\";v=\"99\"\r\nSec-CH-UA-Mobile: ?0\r\nSec-CH-UA-Platform: \"Windows\"";
const EDGE_HINTS: &str = "Sec-CH-UA: \"Chromium\";v=\"142\", \"Microsoft Edge\";v=\"142\", \"Not_A Brand\";v=\"99\"\r\nSec-CH-UA-Mobile: ?0\r\nSec-CH-UA-Platform: \"Windows\"";
const BRAVE_HINTS: &str = "Sec-CH-UA: \"Chromium\";v=\"142\", \"Brave\";v=\"142\", \"Not_A Brand\";v=\"99\"\r\nSec-CH-UA-Mobile: ?0\r\nSec-CH-UA-Platform: \"Windows\"";
const WEBVIEW_HINTS: &str = "Sec-CH-UA: \"Chromium\";v=\"142\", \"Android WebView\";v=\"142\", \"Not_A Brand\";v=\"99\"\r\nSec-CH-UA-Mobile: ?1\r\nSec-CH-UA-Platform: \"Android\"\r\nX-Requested-With: com.example.app";
const HEADLESS_HINTS: &str =
    "Sec-CH-UA: \"Chromium\";v=\"142\", \"HeadlessChrome\";v=\"142\", \"Not_A Brand\";v=\"99\"";

const ACCEPT: &str =
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5";
const MODERN: &str = "Accept-Encoding: gzip, deflate, br, zstd";
const OLDER: &str = "Accept-Encoding: gzip, deflate, br";
const UPGRADE: &str = "Upgrade-Insecure-Requests: 1";
const TYPED: &str =
    "Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: document";
const LINKED: &str =
    "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: document";
const FOUND: &str = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\r\nReferer: https://search.example/";
const FROM_HERE: &str = "Referer: https://shop.example/";

/// Field sets as browsers send them over TLS, also behind extensions and proxies that change some.
#[test]
fn people_are_served_whatever_their_browser_and_extensions_send() {
    let gateway = TestGateway::with_rules(Origin::plain().address(), RULES);
    for (name, fields) in [
        ("Chrome", vec![CHROME, CHROME_HINTS, UPGRADE, ACCEPT, TYPED, MODERN]),
        ("Chrome, a link", vec![CHROME, CHROME_HINTS, UPGRADE, ACCEPT, LINKED, FROM_HERE, MODERN]),
        ("Chrome, from a search engine", vec![CHROME, CHROME_HINTS, UPGRADE, ACCEPT, FOUND, MODERN]),
        ("Chrome whose referers an extension removes", vec![CHROME, CHROME_HINTS, UPGRADE, ACCEPT, LINKED, MODERN]),
        (
            "Chrome whose referer an extension sets",
            vec![CHROME, CHROME_HINTS, UPGRADE, ACCEPT, TYPED, FROM_HERE, MODERN],
        ),
        ("Chrome behind a proxy with older encodings", vec![CHROME, CHROME_HINTS, UPGRADE, ACCEPT, TYPED, OLDER]),
        ("Chrome behind a proxy that removes what it does not know", vec![CHROME, UPGRADE, ACCEPT, OLDER]),
        ("Brave with the name of Chrome", vec![CHROME, BRAVE_HINTS, UPGRADE, ACCEPT, TYPED, MODERN]),
        ("Edge", vec![EDGE, EDGE_HINTS, UPGRADE, ACCEPT, TYPED, MODERN]),
        ("Edge with the name of Chrome, by an extension", vec![CHROME, EDGE_HINTS, UPGRADE, ACCEPT, TYPED, MODERN]),
        ("Firefox", vec![FIREFOX, UPGRADE, ACCEPT, TYPED, MODERN]),
        ("Firefox, a link whose referer an extension removes", vec![FIREFOX, UPGRADE, ACCEPT, LINKED, MODERN]),
        ("Safari", vec![SAFARI, ACCEPT, TYPED, OLDER]),
        ("Safari, a link", vec![SAFARI, ACCEPT, LINKED, FROM_HERE, OLDER]),
        ("an app on Android", vec![WEBVIEW, WEBVIEW_HINTS, UPGRADE, ACCEPT, TYPED, MODERN]),
        ("an app on Android, an old WebView", vec![WEBVIEW, UPGRADE, ACCEPT, OLDER]),
    ] {
        assert_eq!(page_status(&gateway, name, &fields), 200, "{name}");
    }
}

#[test]
fn two_values_that_no_browser_sends_together_are_refused_at_once() {
    let gateway = TestGateway::with_rules(Origin::plain().address(), RULES);
    for (name, fields) in [
        (
            "Edge's hints with Chrome's name, and a typed address with a referer",
            vec![CHROME, EDGE_HINTS, UPGRADE, ACCEPT, TYPED, FROM_HERE, MODERN],
        ),
        (
            "Chrome's hints with Edge's name, and the same",
            vec![EDGE, CHROME_HINTS, UPGRADE, ACCEPT, TYPED, FROM_HERE, MODERN],
        ),
        (
            "an automated browser under another name, and the same",
            vec![CHROME, HEADLESS_HINTS, UPGRADE, ACCEPT, TYPED, FROM_HERE, MODERN],
        ),
    ] {
        assert_eq!(page_status(&gateway, name, &fields), 429, "{name}");
    }
}

#[test]
fn programs_in_the_name_of_chrome_get_the_expected_verdicts() {
    let clients = InstalledClients::locate();
    let statuses = |client: &str, pages: &str| {
        let gateway = TestGateway::with_rules(Origin::plain().address(), RULES);
        let url = format!("http://{}", gateway.address());
        let output = clients.python("imitating.py").args([client, &url, pages]).output().expect("program runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let statuses = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>();
        (statuses, gateway.read_log())
    };
    let (httpx, log) = statuses("httpx", "3");
    assert_eq!(httpx, ["429"; 3], "the name of a browser, and nothing else of it");
    assert!(evidence(&log[0]).contains("behavior:browser_name_only"), "{}", log[0]);
    // Its fields are those of Chrome: only what it does, and sessions, show it.
    let (curl_cffi, log) = statuses("curl_cffi", "3");
    assert_eq!(curl_cffi, ["200"; 3]);
    let values = (&log[0]["kind"], &log[0]["hints_brand"], &log[0]["fetch_site"], log[0].get("zstd"));
    assert_eq!(values, (&"human".into(), &"Google Chrome".into(), &"none".into(), None), "{}", log[0]);
}

/// A fresh profile each time, so that nothing but the request itself says who sent it. Headless Chromium names itself; under the name
/// of another version, its hints still state its own.
#[test]
fn headless_chromium_shows_its_version_under_another_name() {
    const OTHER: &str = "--user-agent=Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36";
    let certificates = Certificates::new();
    let listen =
        format!("listen: {{ address: '127.0.0.1:0', tls: {{ {} }} }}\n", certificates.issue("site", &["localhost"]));
    for (user_agent, expected) in [(None, ("declared_bot", None)), (Some(OTHER), ("human", Some(60)))] {
        let gateway = TestGateway::with_rules(Origin::plain().address(), &format!("{RULES}{listen}"));
        let options: Vec<&str> = ["--ignore-certificate-errors"].into_iter().chain(user_agent).collect();
        let mut browser = Browser::start_with(&options);
        let url = format!("https://localhost:{}/item/1", gateway.address().port());
        browser.open_url(&url, Screen { width: 1200, scheme: "light" });
        drop(browser);
        let log = gateway.read_log();
        let line = log.iter().find(|line| line["path"] == "/item/1").expect("the page was requested");
        assert_eq!((line["kind"].as_str(), line["bot_score"].as_u64()), (Some(expected.0), expected.1), "{line}");
    }
}

/// Returns the status of a page request over TLS from an address of its own.
fn page_status(gateway: &TestGateway, name: &str, fields: &[&str]) -> u16 {
    let address = name.bytes().fold(0_u16, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let [high, low] = address.to_be_bytes();
    let head = format!(
        "GET /item/1 HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 203.{high}.{low}.7\r\nX-Forwarded-Proto: https\r\n\
         {}\r\n\r\n",
        fields.join("\r\n")
    );
    let mut client: Client = gateway.connect();
    client.send(head).read_response().status
}

fn evidence(line: &Value) -> String {
    line["evidence"].to_string()
}
