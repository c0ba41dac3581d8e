//! TLS in front of the gateway: handshakes, certificates, limits, and what the scheme changes.

use crate::support::client::Client;
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::tls::{Certificates, try_connect};
use crate::support::wait::wait_until;
use rustls::HandshakeKind;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const SITE: &str = "example.com";

/// Starts a gateway with a plain listener and one with TLS. `tls` are the keys of the latter, `rules` further YAML.
fn start(origin: &Origin, tls: &str, rules: &str) -> (TestGateway, SocketAddr) {
    let listen = format!("listen: [127.0.0.1:0, {{ address: '127.0.0.1:0', tls: {{ {tls} }} }}]");
    let gateway = TestGateway::with_rules(origin.address(), &format!("{listen}\n{rules}"));
    let address = gateway.addresses()[1];
    (gateway, address)
}

fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).expect("gateway listens")
}

/// Advances the clock until the gateway has closed the connection.
fn advance_until_closed(gateway: &TestGateway, stream: &mut TcpStream, step: Duration) {
    stream.set_nonblocking(true).expect("socket option can be set");
    wait_until("the gateway to close the connection", || {
        gateway.clock.advance(step);
        match stream.read(&mut [0; 64]) {
            Ok(length) => length == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    });
}

#[test]
fn curl_is_served_by_http2_and_http1() {
    let (certificates, origin) = (Certificates::new(), Origin::plain());
    let (gateway, address) = start(&origin, &certificates.issue("site", &[SITE]), "");
    for (option, version, via) in [("--http2", "2", "2.0 "), ("--http1.1", "1.1", "1.1 ")] {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--output", "/dev/null", "--write-out", "%{http_version} %{http_code}"])
            .args([option, "--cacert", certificates.path("ca.pem").to_str().expect("UTF-8")])
            .args(["--resolve", &format!("{SITE}:{}:127.0.0.1", address.port())])
            .arg(format!("https://{SITE}:{}/item", address.port()))
            .output()
            .expect("curl is installed: apt-get install curl");
        let (result, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(result, format!("{version} 200"), "{option}: {errors}");
        let request = origin.last_request();
        assert!(request.field("via").starts_with(via), "{option}");
        assert_eq!(request.field("x-forwarded-proto"), "https", "{option}");
    }
    gateway.wait_for_metric("tidegate_tls_handshakes_total{result=\"full\"}", 2.0);
}

#[test]
fn response_larger_than_all_buffers_arrives_whole_and_ends_with_close_notify() {
    let body: Vec<u8> = (0..3_000_000u32).map(|index| (index % 251) as u8).collect();
    let sent = body.clone();
    let origin = Origin::with_script(move |_, connection| connection.reply("200 OK", "", &sent));
    let certificates = Certificates::new();
    let (_gateway, address) = start(&origin, &certificates.issue("site", &[SITE]), "");
    let mut client = certificates.connect(address, SITE);
    assert!(client.get("/item", "").body == body);
    assert!(client.get("/item", "Connection: close\r\n").body == body);
    assert!(client.read_rest().is_empty(), "an end without close_notify would be an error");
}

#[test]
fn certificate_is_chosen_by_name() {
    let (certificates, origin) = (Certificates::new(), Origin::plain());
    let pairs = [("site", SITE), ("shop", "shop.example"), ("wildcard", "*.shop.example")]
        .map(|(name, domain)| format!("{{ {} }}", certificates.issue(name, &[domain])));
    let (_gateway, address) = start(&origin, &format!("certificates: [{}]", pairs.join(", ")), "");
    for (domain, name) in [(SITE, "site"), ("shop.example", "shop"), ("www.shop.example", "wildcard")] {
        assert_eq!(certificates.common_name_at(address, domain).expect("a valid certificate"), name);
    }
    for unknown in ["elsewhere.example", "a.www.shop.example"] {
        let error = certificates.common_name_at(address, unknown).expect_err("the certificate of another site");
        assert!(error.to_string().contains("not valid for name"), "{error}");
    }
}

#[test]
fn changed_certificate_is_used_and_a_bad_one_is_not() {
    let (certificates, origin) = (Certificates::new(), Origin::plain());
    let (gateway, address) = start(&origin, &certificates.issue("site", &[SITE]), "");
    let domains_served = |domain| certificates.common_name_at(address, domain).is_ok();
    assert!(domains_served(SITE));
    let mut open = certificates.connect(address, SITE);

    certificates.issue("site", &["new.example"]);
    gateway.reload_files();
    assert!(domains_served("new.example") && !domains_served(SITE));
    assert_eq!(open.get("/item", "").status, 200, "open connections stay");
    assert_eq!(gateway.metric("tidegate_certificate_stale{domain=\"new.example\"}"), 0.0);

    fs::write(certificates.path("site.key"), "garbage").expect("file can be written");
    gateway.reload_files();
    assert!(domains_served("new.example"));
    assert_eq!(gateway.metric("tidegate_certificate_stale{domain=\"new.example\"}"), 1.0);
    let notes = gateway.state()["notes"].to_string();
    assert!(notes.contains("listen[1].tls.key") && notes.contains("contains no private key"), "{notes}");

    certificates.issue("site", &[SITE]);
    gateway.reload_files();
    assert!(domains_served(SITE));
    assert!(gateway.metric("tidegate_certificate_expiry_timestamp_seconds{domain=\"example.com\"}") > 1.8e9);
}

#[test]
fn host_without_a_certificate_is_named() {
    let (certificates, origin) = (Certificates::new(), Origin::plain());
    let tls = certificates.issue("site", &[SITE, "*.shop.example"]);
    let hosts = format!("hosts: [{SITE}, a.shop.example, shop.example, '*.shop.example', '*.example.org', 127.0.0.1]");
    let (gateway, _) = start(&origin, &tls, &hosts);
    let notes = gateway.state()["notes"].to_string();
    for host in ["shop.example", "*.example.org"] {
        assert!(
            notes.contains(&format!("no certificate has the name {host}: browsers refuse it over https")),
            "{notes}"
        );
    }
    assert_eq!(notes.matches("no certificate").count(), 2, "{notes}");
}

#[test]
fn reload_reads_certificates_at_once_and_is_refused_with_a_bad_one() {
    let (certificates, origin) = (Certificates::new(), Origin::plain());
    let pair = certificates.issue("site", &[SITE]);
    let (gateway, address) = start(&origin, &pair, "");
    let listen = gateway.yaml().lines().find(|line| line.starts_with("listen:")).expect("a listener").to_owned();
    certificates.issue("site", &["new.example"]);
    gateway.reload(origin.address(), &listen).expect("valid files");
    assert!(certificates.common_name_at(address, "new.example").is_ok());
    fs::remove_file(certificates.path("site.pem")).expect("file can be removed");
    let error = gateway.reload(origin.address(), &listen).expect_err("the next start would fail");
    assert!(error.contains("listen[1].tls.certificate") && error.contains("cannot be read"), "{error}");
    assert!(certificates.common_name_at(address, "new.example").is_ok(), "the previous pair stays in use");
}

#[test]
fn client_that_does_not_read_ends_at_the_write_timeout() {
    let origin = Origin::with_script(|_, connection| connection.reply("200 OK", "", &vec![b'a'; 64 << 20]));
    let certificates = Certificates::new();
    let rules = "limits: { response_write_timeout: 5s, min_rate: 0B, buffer_disk: 0B }";
    let (gateway, address) = start(&origin, &certificates.issue("site", &[SITE]), rules);
    let mut client = certificates.connect(address, SITE);
    client.send("GET /item HTTP/1.1\r\nHost: example.com\r\n\r\n");
    assert_eq!(client.head().status, 200);
    wait_until("the gateway to close the connection", || {
        gateway.clock.advance(Duration::from_secs(1));
        gateway.metric("tidegate_client_connections") == 0.0
    });
}

#[test]
fn memory_of_connections_includes_that_of_tls() {
    const MAX_AT_REST: f64 = 12.0 * 1024.0;
    let (certificates, origin) = (Certificates::new(), Origin::plain());
    let (gateway, address) = start(&origin, &certificates.issue("site", &[SITE]), "workers: 1");
    let memory = || gateway.metric("tidegate_client_connection_memory_bytes");
    let mut plain = gateway.connect();
    plain.get("/item", "");
    // A request in progress takes 8 KiB and a read buffer in addition.
    wait_until("the memory of a plain connection at rest", || (1.0..=MAX_AT_REST).contains(&memory()));
    drop(plain);
    wait_until("the plain connection to be closed", || memory() == 0.0);
    let mut client = certificates.connect(address, SITE);
    client.get("/item", "");
    wait_until("the memory of a connection with TLS", || memory() >= MAX_AT_REST + 16.0 * 1024.0);
}

#[test]
fn sessions_are_resumed_on_every_worker_and_after_a_renewal() {
    let (certificates, origin) = (Certificates::new(), Origin::plain());
    let (gateway, address) = start(&origin, &certificates.issue("site", &[SITE]), "workers: 4");
    for versions in [&rustls::version::TLS13, &rustls::version::TLS12].map(|version| [version]) {
        let with_session = certificates.client_config();
        let mut config = rustls::ClientConfig::builder_with_provider(Arc::clone(with_session.crypto_provider()))
            .with_protocol_versions(&versions)
            .expect("supported version")
            .with_root_certificates(certificates.roots())
            .with_no_client_auth();
        config.resumption = rustls::client::Resumption::in_memory_sessions(16);
        let config = Arc::new(config);
        let handshake = || {
            let mut client = try_connect(connect(address), SITE, &config).expect("handshake succeeds");
            // The tickets of TLS 1.3 arrive with the response.
            assert_eq!(client.get("/item", "").status, 200);
            client.stream().conn.handshake_kind()
        };
        assert_eq!(handshake(), Some(HandshakeKind::Full));
        for _ in 0..16 {
            assert_eq!(handshake(), Some(HandshakeKind::Resumed));
        }
        certificates.issue("site", &[SITE]);
        gateway.reload_files();
        assert_eq!(handshake(), Some(HandshakeKind::Resumed));
    }
    gateway.wait_for_metric("tidegate_tls_handshakes_total{result=\"resumed\"}", 34.0);
}

#[test]
fn versions_before_1_2_are_refused() {
    let (certificates, origin) = (Certificates::new(), Origin::plain());
    let (gateway, address) = start(&origin, &certificates.issue("site", &[SITE]), "");
    let suites = [0xc0, 0x13, 0xc0, 0x09, 0x00, 0x2f];
    let extensions = [0, 10, 0, 4, 0, 2, 0, 29, 0, 11, 0, 2, 1, 0, 0, 13, 0, 4, 0, 2, 4, 1];
    let mut hello = vec![3, 2];
    hello.extend([7; 32]);
    hello.extend([0, 0, suites.len() as u8].iter().chain(&suites).chain(&[1, 0, 0, extensions.len() as u8]));
    hello.extend(extensions);
    let mut record = vec![22, 3, 1, 0, hello.len() as u8 + 4, 1, 0, 0, hello.len() as u8];
    record.extend(hello);
    let mut stream = connect(address);
    stream.set_read_timeout(Some(crate::support::TIMEOUT)).expect("timeout can be set");
    stream.write_all(&record).expect("gateway reads");
    let mut alert = Vec::new();
    let _ = stream.read_to_end(&mut alert);
    const PROTOCOL_VERSION: u8 = 70;
    assert_eq!((alert.first(), alert.last()), (Some(&21), Some(&PROTOCOL_VERSION)), "{alert:?}");
    gateway.wait_for_metric("tidegate_tls_handshakes_total{result=\"failed\"}", 1.0);
}

#[test]
fn incomplete_handshake_ends_at_its_timeout() {
    let (certificates, origin) = (Certificates::new(), Origin::plain());
    let rules = "workers: 1\nlimits: { handshake_timeout: 5s, first_byte_timeout: 1s }";
    let (gateway, address) = start(&origin, &certificates.issue("site", &[SITE]), rules);
    let slow = connect(address);
    gateway.advance_and_sweep(Duration::from_secs(4));
    let mut slow = try_connect(slow, SITE, &Arc::new(certificates.client_config())).expect("it is in time");
    assert_eq!(slow.get("/item", "").status, 200);

    for first_bytes in [&b""[..], b"\x16", b"\x16\x03\x01\x01\x00\x01"] {
        let mut stream = connect(address);
        stream.write_all(first_bytes).expect("gateway reads");
        advance_until_closed(&gateway, &mut stream, Duration::from_secs(1));
    }
    gateway.wait_for_metric("tidegate_tls_handshakes_total{result=\"failed\"}", 3.0);
}

#[test]
fn silent_client_after_the_handshake_ends_at_the_first_byte_timeout() {
    let (certificates, origin) = (Certificates::new(), Origin::plain());
    let rules = "workers: 1\nlimits: { handshake_timeout: 1h, first_byte_timeout: 1s }";
    let (gateway, address) = start(&origin, &certificates.issue("site", &[SITE]), rules);
    let mut client = certificates.connect(address, SITE);
    advance_until_closed(&gateway, &mut client.stream().sock, Duration::from_secs(1));
}

#[test]
fn handshakes_in_progress_are_bounded_per_thread_and_per_address() {
    let (certificates, origin) = (Certificates::new(), Origin::plain());
    let pair = certificates.issue("site", &[SITE]);
    for limit in ["max_handshakes: 2", "max_handshakes_per_address: 2"] {
        let rules =
            format!("workers: 1\nlimits: {{ {limit}, handshake_timeout: 1h }}\nclients: {{ address_from: peer }}");
        let (gateway, address) = start(&origin, &pair, &rules);
        let (first, _second) = (connect(address), connect(address));
        assert!(Client::connect(address).is_closed(), "{limit}");
        assert_eq!(gateway.metric("tidegate_tls_handshakes_total{result=\"refused\"}"), 1.0, "{limit}");
        let first = try_connect(first, SITE, &Arc::new(certificates.client_config()));
        assert_eq!(first.expect("it has a slot").get("/item", "").status, 200, "{limit}");
        let mut another = certificates.connect(address, SITE);
        assert_eq!(another.get("/item", "").status, 200, "{limit}: a completed handshake frees its slot");
    }
}

#[test]
fn proxies_have_no_limit_of_handshakes_per_address() {
    let (certificates, origin) = (Certificates::new(), Origin::plain());
    let rules = "workers: 1\nlimits: { max_handshakes_per_address: 1 }";
    let (_gateway, address) = start(&origin, &certificates.issue("site", &[SITE]), rules);
    let _silent = connect(address);
    assert_eq!(certificates.connect(address, SITE).get("/item", "").status, 200);
}

#[test]
fn plain_http_on_the_tls_port_is_told_so() {
    let (certificates, origin) = (Certificates::new(), Origin::plain());
    let (gateway, address) = start(&origin, &certificates.issue("site", &[SITE]), "");
    let response = Client::connect(address).get("/item", "");
    assert_eq!((response.status, response.field("content-type")), (400, "text/plain"));
    assert_eq!(response.text(), "This port requires TLS: write https:// instead of http://\n");
    let mut garbage = Client::connect(address);
    garbage.send([0, 1, 2, 3]);
    assert!(garbage.is_closed());
    gateway.wait_for_metric("tidegate_tls_handshakes_total{result=\"failed\"}", 2.0);
    assert!(origin.received_requests().is_empty());
}

#[test]
fn scheme_is_that_of_the_connection_unless_a_trusted_proxy_says_otherwise() {
    let (certificates, origin) = (Certificates::new(), Origin::plain());
    let pair = certificates.issue("site", &[SITE]);
    for (clients, sent, forwarded) in [
        ("address_from: peer", "", "https"),
        ("address_from: peer", "X-Forwarded-Proto: http\r\n", "https"),
        ("address_from: x-forwarded-for, trusted_proxies: [127.0.0.1]", "X-Forwarded-Proto: http\r\n", "http"),
        ("address_from: x-forwarded-for, trusted_proxies: [127.0.0.1]", "", "https"),
    ] {
        let (_gateway, address) = start(&origin, &pair, &format!("clients: {{ {clients} }}"));
        assert_eq!(certificates.connect(address, SITE).get("/item", sent).status, 200);
        assert_eq!(origin.last_request().field("x-forwarded-proto"), forwarded, "{clients}, {sent:?}");
    }
}

#[test]
fn https_and_http_are_cached_apart() {
    let origin = Origin::with_script(|request, connection| {
        let scheme = request.field("x-forwarded-proto").to_owned();
        connection.reply("200 OK", "Cache-Control: max-age=600\r\n", scheme.as_bytes());
    });
    let certificates = Certificates::new();
    let rules = "cache: {}\nroutes: [{ match: /** }]";
    let (gateway, address) = start(&origin, &certificates.issue("site", &[SITE]), rules);
    for _ in 0..2 {
        assert_eq!(certificates.connect(address, SITE).get("/item", "").text(), "https");
        assert_eq!(gateway.connect().get("/item", "").text(), "http");
    }
    assert_eq!(origin.received_requests().len(), 2);
}

#[test]
fn hsts_is_added_over_tls_only_and_never_twice() {
    let origin = Origin::with_script(|request, connection| {
        let fields = match request.target.as_str() {
            "/own" => "Strict-Transport-Security: max-age=1; includeSubDomains\r\n",
            _ => "",
        };
        connection.reply("200 OK", fields, b"");
    });
    let certificates = Certificates::new();
    let tls = format!("{}, hsts: 365d", certificates.issue("site", &[SITE]));
    let (gateway, address) = start(&origin, &tls, "hosts: [example.com]");
    const FIELD: &str = "strict-transport-security";
    let mut client = certificates.connect(address, SITE);
    assert_eq!(client.get("/item", "").field(FIELD), "max-age=31536000");
    assert_eq!(client.get("/own", "").field(FIELD), "max-age=1; includeSubDomains");
    client.send("GET / HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n");
    let rejection = client.read_response();
    assert_eq!((rejection.status, rejection.field(FIELD)), (421, "max-age=31536000"));
    assert_eq!(gateway.connect().get("/item", "").field(FIELD), "");
}

#[test]
fn redirect_leads_to_the_same_url_of_own_hosts_only() {
    let (certificates, origin) = (Certificates::new(), Origin::plain());
    let pair = certificates.issue("site", &[SITE]);
    let rules = format!(
        "hosts: [{SITE}, '*.shop.example']\n\
         listen:\n\
         - {{ address: '127.0.0.1:0', redirect: https }}\n\
         - {{ address: '127.0.0.1:0', tls: {{ {pair} }} }}\n\
         - {{ address: '127.0.0.1:0', redirect: 'https:443' }}\n\
         quotas: {{ api: {{ limit: 1, window: {{ fixed: 24h }} }} }}\n\
         routes: [{{ match: /**, cost: {{ api: 1 }} }}]"
    );
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let [own_port, https, usual_port] = gateway.addresses() else { panic!("three listeners") };
    let ask = |address: &SocketAddr, request: &str| {
        let mut client = Client::connect(*address);
        let response = client.send(request).response_to(request.split(' ').next().expect("a method"));
        (response.status, response.field("location").to_owned())
    };
    let get =
        |address, target: &str, host: &str| ask(address, &format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let port = https.port();
    for (target, host, location) in [
        ("/item?a=1&b=%20", "example.com", format!("https://example.com:{port}/item?a=1&b=%20")),
        ("/", "WWW.Shop.Example.:8080", format!("https://www.shop.example:{port}/")),
        ("//evil.com/", "example.com", format!("https://example.com:{port}//evil.com/")),
        ("http://example.com/x", "evil.com", format!("https://example.com:{port}/x")),
    ] {
        assert_eq!(get(own_port, target, host), (301, location));
    }
    assert_eq!(get(usual_port, "/a", SITE), (301, "https://example.com/a".into()));
    for host in ["evil.com", "example.com.evil.com", "127.0.0.1"] {
        assert_eq!(get(own_port, "/item", host), (421, String::new()), "{host}");
    }
    assert_eq!(get(own_port, "http://evil.com/x", SITE), (421, String::new()));
    let post = format!("POST /form HTTP/1.1\r\nHost: {SITE}\r\nContent-Length: 3\r\n\r\na=b");
    assert_eq!(ask(own_port, &post), (308, format!("https://example.com:{port}/form")));
    let head = format!("HEAD /item HTTP/1.1\r\nHost: {SITE}\r\n\r\n");
    assert_eq!(ask(own_port, &head), (301, format!("https://example.com:{port}/item")));
    assert!(origin.received_requests().is_empty());
    assert_eq!(gateway.counters(), (0.0, 0.0), "redirects cost nothing");
}

#[test]
fn client_certificates_are_verified() {
    let (certificates, origin) = (Certificates::new(), Origin::plain());
    let pair = certificates.issue("site", &[SITE]);
    certificates.issue("partner", &["partner.example"]);
    let foreign = Certificates::new();
    foreign.issue("stranger", &["stranger.example"]);
    let mut stranger = certificates.client_config_with("partner");
    stranger.client_auth_cert_resolver = foreign.client_config_with("stranger").client_auth_cert_resolver;
    for (mode, accepts_none) in [("required", false), ("optional", true)] {
        let authority = certificates.path("ca.pem");
        let tls = format!("{pair}, client_ca: {}, client_certificates: {mode}", authority.display());
        let (_gateway, address) = start(&origin, &tls, "");
        let is_served = |config: rustls::ClientConfig| {
            // In TLS 1.3 the client learns only after its handshake that it was refused.
            let client = try_connect(connect(address), SITE, &Arc::new(config)).ok();
            client.is_some_and(|mut client| {
                client.try_send(format!("GET /item HTTP/1.1\r\nHost: {SITE}\r\nConnection: close\r\n\r\n"));
                let mut response = Vec::new();
                client.stream().read_to_end(&mut response).is_ok() && response.starts_with(b"HTTP/1.1 200")
            })
        };
        assert!(is_served(certificates.client_config_with("partner")), "{mode}");
        assert_eq!(is_served(certificates.client_config()), accepts_none, "{mode}");
        assert!(!is_served(stranger.clone()), "{mode}");
    }
}

#[test]
fn certificate_of_a_client_decides_its_class() {
    let (certificates, origin) = (Certificates::new(), Origin::plain());
    let pair = certificates.issue("site", &[SITE]);
    certificates.issue("partner", &["api.partner.example"]);
    certificates.issue("other", &["api.other.example"]);
    let authority = certificates.path("ca.pem");
    let tls = format!("{pair}, client_ca: {}, client_certificates: optional", authority.display());
    let rules = "workers: 1\nclasses: [{ name: partner, when: { certificate: '*.partner.example' } }, { name: other, when: {} }]";
    let (gateway, address) = start(&origin, &tls, rules);
    let mut expected = Vec::new();
    for (config, class) in [
        (certificates.client_config_with("partner"), "partner"),
        (certificates.client_config_with("other"), "other"),
        (certificates.client_config(), "other"),
    ] {
        let mut client = try_connect(connect(address), SITE, &Arc::new(config)).expect("handshake succeeds");
        assert_eq!(client.get("/item", "").status, 200);
        assert_eq!(origin.last_request().field("x-tidegate-class"), class);
        expected.push(class);
    }
    assert_eq!(gateway.connect().get("/item", "").status, 200);
    assert_eq!(origin.last_request().field("x-tidegate-class"), "other", "a client without TLS has no certificate");
    let log = gateway.read_log();
    let classes: Vec<_> = log[..3].iter().map(|line| line["class"].as_str().expect("a class")).collect();
    assert_eq!(classes, expected);
    let has_certificate = |line: &serde_json::Value| line["evidence"].to_string().contains("\"certificate\"");
    assert_eq!(log.iter().map(has_certificate).collect::<Vec<_>>(), [true, false, false, false]);
}
