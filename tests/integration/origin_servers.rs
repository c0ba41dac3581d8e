//! Servers of the origin: TLS, sockets in the file system, several servers, and those that do not respond.

use crate::support::gateway::TestGateway;
use crate::support::nginx::Nginx;
use crate::support::origin::{Origin, OriginConnection, ReceivedRequest, signal};
use crate::support::tls::Certificates;
use crate::support::wait::wait_until;
use std::net::SocketAddr;
use std::time::Duration;

/// nginx that listens with TLS, too, with a certificate for `site.internal`.
struct TlsOrigin {
    _nginx: Nginx,
    plain: SocketAddr,
    port: u16,
    certificates: Certificates,
}

impl TlsOrigin {
    fn start(directives: &str) -> Self {
        Self::with_certificate("server", directives)
    }

    /// Starts it with the certificate `name`.
    fn with_certificate(name: &str, directives: &str) -> Self {
        let certificates = Certificates::new();
        certificates.issue("server", &["site.internal"]);
        certificates.issue("gateway", &["gateway.internal"]);
        let port = Origin::free_address().port();
        let directives = directives.replace("CA", &certificates.path("ca.pem").display().to_string());
        let nginx = Nginx::start(&format!(
            "listen 127.0.0.1:{port} ssl; ssl_certificate {}; ssl_certificate_key {}; {directives}",
            certificates.path(&format!("{name}.pem")).display(),
            certificates.path(&format!("{name}.key")).display()
        ));
        Self { plain: nginx.address, port, _nginx: nginx, certificates }
    }

    /// Returns a gateway with `keys` of its section `origin`, in which DIR is the directory of the certificates.
    fn gateway(&self, keys: &str) -> TestGateway {
        TestGateway::with_rules(self.plain, &self.rules(keys))
    }

    fn rules(&self, keys: &str) -> String {
        let keys = keys.replace("DIR/", &self.certificates.path("").display().to_string());
        format!("origin: {{ url: 'https://127.0.0.1:{}', {keys} }}", self.port)
    }
}

#[test]
fn certificate_of_the_origin_is_verified() {
    let origin = TlsOrigin::start("");
    let page = |gateway: &TestGateway| gateway.connect().get("/page", "");
    let verified = origin.gateway("ca: DIR/ca.pem, server_name: site.internal");
    for _ in 0..5 {
        let response = page(&verified);
        assert_eq!((response.status, response.body.len()), (200, 1 << 20), "also after nginx closed the connection");
    }
    for (keys, error) in [
        ("ca: DIR/ca.pem", "write a name that it has in origin.server_name"),
        ("ca: DIR/ca.pem, server_name: other.internal", "write a name that it has in origin.server_name"),
        ("server_name: site.internal", "UnknownIssuer; write its authority in origin.ca"),
    ] {
        let gateway = origin.gateway(keys);
        assert_eq!(page(&gateway).status, 502, "{keys}");
        let outage = gateway.state()["origin"]["outage"]["last_error"].to_string();
        assert!(outage.contains(error), "{keys}: {outage}");
    }
    assert_eq!(page(&origin.gateway("verify: false")).status, 200);
}

/// The certificate that `openssl req -x509` makes by default.
#[test]
fn self_signed_certificate_of_an_authority_is_accepted_if_it_is_named() {
    let origin = TlsOrigin::with_certificate("ca", "");
    let named = origin.gateway("ca: DIR/ca.pem, server_name: authority.internal");
    assert_eq!(named.connect().get("/page", "").status, 200);
    for (keys, remedy) in [
        ("server_name: authority.internal", "issue one for the server, without CA:TRUE"),
        ("ca: DIR/ca.pem, server_name: site.internal", "write a name that it has in origin.server_name"),
    ] {
        let gateway = origin.gateway(keys);
        assert_eq!(gateway.connect().get("/page", "").status, 502, "{keys}");
        let outage = gateway.state()["origin"]["outage"]["last_error"].to_string();
        assert!(outage.contains(remedy), "{keys}: {outage}");
    }
}

#[test]
fn gateway_shows_its_certificate_to_an_origin_that_asks() {
    let origin = TlsOrigin::start("ssl_client_certificate CA; ssl_verify_client on;");
    let keys = "ca: DIR/ca.pem, server_name: site.internal";
    assert_eq!(origin.gateway(keys).connect().get("/page", "").status, 400);
    let keys = format!("{keys}, certificate: DIR/gateway.pem, key: DIR/gateway.key");
    assert_eq!(origin.gateway(&keys).connect().get("/page", "").status, 200);
}

#[test]
fn reload_with_an_invalid_file_keeps_the_origin() {
    let origin = TlsOrigin::start("");
    let keys = "ca: DIR/ca.pem, server_name: site.internal";
    let gateway = origin.gateway(keys);
    let reload = || gateway.reload(origin.plain, &origin.rules(keys));
    let file = origin.certificates.path("ca.pem");
    let authority = std::fs::read(&file).expect("the file is there");
    std::fs::write(&file, "nothing").expect("file is writable");
    let error = reload().expect_err("the file has no certificate");
    assert!(
        error.starts_with("origin.ca: ")
            && error.ends_with("ca.pem contains no certificate; write the authorities of the origin in PEM"),
        "{error}"
    );
    std::fs::remove_file(&file).expect("the file is there");
    let error = reload().expect_err("the file is missing");
    assert!(error.starts_with("origin.ca: cannot read "), "{error}");
    assert_eq!(gateway.connect().get("/page", "").status, 200);
    // Another authority is used from the next connection on.
    std::fs::copy(Certificates::new().path("ca.pem"), &file).expect("file is writable");
    reload().expect("the file is valid");
    assert_eq!(gateway.connect().get("/page", "").status, 502);
    std::fs::write(&file, authority).expect("file is writable");
    reload().expect("the file is valid");
    assert_eq!(gateway.connect().get("/page", "").status, 200);
}

#[test]
fn socket_in_the_file_system_is_an_origin() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let socket = dir.path().join("site.sock");
    let nginx = Nginx::start(&format!("listen unix:{};", socket.display()));
    let rules = format!("origin: {{ url: 'unix:{}' }}", socket.display());
    let gateway = TestGateway::with_rules(nginx.address, &rules);
    let mut client = gateway.connect();
    for _ in 0..5 {
        assert_eq!(client.get("/page", "").status, 200);
    }
    assert_eq!(gateway.state()["origin"]["authority"], format!("unix:{}", socket.display()));
    drop(nginx);
    assert_eq!(client.get("/page", "").status, 502);
}

fn rules_for(servers: &[&Origin], keys: &str) -> String {
    let urls: Vec<_> = servers.iter().map(|server| format!("'http://{}'", server.address())).collect();
    format!("workers: 1\norigin: {{ urls: [{}], {keys} }}", urls.join(", "))
}

#[test]
fn request_goes_to_the_server_with_the_fewest_in_flight() {
    let (sender, receiver) = signal();
    let (sender, receiver) = (sender, parking_lot::Mutex::new(receiver));
    let busy = Origin::with_script(move |_, connection| {
        receiver.lock().wait();
        connection.reply("200 OK", "", b"busy");
    });
    let idle = Origin::plain();
    let gateway = TestGateway::with_rules(idle.address(), &rules_for(&[&busy, &idle], ""));
    let mut waiting = gateway.connect();
    // Requests take turns while both servers have none in flight: one of the first two is sent to the busy server.
    for _ in 0..2 {
        if busy.received_requests().is_empty() {
            waiting = gateway.connect();
            waiting.send("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n");
            wait_until("the request to be received", || {
                busy.received_requests().len() + idle.received_requests().len() > 0
            });
            if busy.received_requests().is_empty() {
                waiting.response_to("GET");
            }
        }
    }
    let before = idle.received_requests().len();
    for _ in 0..6 {
        assert_eq!(gateway.connect().get("/", "").body, b"hello");
    }
    assert_eq!((busy.received_requests().len(), idle.received_requests().len()), (1, before + 6));
    sender.notify();
    assert_eq!(waiting.response_to("GET").body, b"busy");
    let servers = gateway.state()["origin"]["servers"].clone();
    assert_eq!((&servers[0]["healthy"], &servers[0]["in_flight"]), (&true.into(), &0.into()), "{servers}");
}

#[test]
fn server_that_refuses_connections_costs_no_request_and_is_tried_again_later() {
    let server = Origin::plain();
    let later = Origin::free_address();
    let rules = format!(
        "workers: 1\norigin: {{ urls: ['http://{later}', 'http://{}'], health: {{ eject_for: 10s }} }}",
        server.address()
    );
    let gateway = TestGateway::with_rules(server.address(), &rules);
    for _ in 0..12 {
        assert_eq!(gateway.connect().get("/", "").status, 200, "the request was not sent, and is sent to the other");
    }
    let ejected = gateway.state()["origin"]["servers"][0].clone();
    assert_eq!((&ejected["healthy"], &ejected["failures"]), (&false.into(), &3.into()), "{ejected}");
    assert_eq!(gateway.metric(&format!("tidegate_origin_server_up{{server=\"http://{later}\"}}")), 0.0);
    // One request tries it after the ejection, and the others do not.
    gateway.clock.advance(Duration::from_secs(11));
    for _ in 0..5 {
        assert_eq!(gateway.connect().get("/", "").status, 200);
    }
    let ejected = gateway.state()["origin"]["servers"][0].clone();
    assert_eq!((&ejected["healthy"], &ejected["failures"]), (&false.into(), &4.into()), "{ejected}");
}

#[test]
fn server_that_stops_costs_no_request_on_its_idle_connections() {
    let (stopping, server) = (Nginx::start(""), Origin::plain());
    let urls = format!("['http://{}', 'http://{}']", stopping.address, server.address());
    let gateway = TestGateway::with_rules(server.address(), &format!("workers: 1\norigin: {{ urls: {urls} }}"));
    let get_pages = |count| (0..count).for_each(|_| assert_eq!(gateway.connect().get("/page", "").status, 200));
    get_pages(12);
    let before = server.received_requests().len();
    assert!((1..12).contains(&before), "both servers have connections: {before}");
    drop(stopping);
    get_pages(6);
    assert_eq!(server.received_requests().len(), before + 6);
}

#[test]
fn server_that_stops_responding_is_ejected_until_it_responds() {
    let fails = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let failing = {
        let fails = std::sync::Arc::clone(&fails);
        Origin::with_script(move |_, connection| match fails.load(std::sync::atomic::Ordering::SeqCst) {
            true => connection.close(),
            false => connection.reply("200 OK", "", b"back"),
        })
    };
    let healthy = Origin::plain();
    let rules = rules_for(&[&failing, &healthy], "health: { max_failures: 2, eject_for: 10s }");
    let gateway = TestGateway::with_rules(healthy.address(), &rules);
    let post = || {
        let mut client = gateway.connect();
        client.send("POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0\r\n\r\n");
        let status = client.response_to("POST").status;
        gateway.clock.advance(Duration::from_millis(100));
        status
    };
    let failed = (0..20).filter(|_| post() == 502).count();
    assert_eq!(failed, 2, "a request that may have arrived is not sent again");
    fails.store(false, std::sync::atomic::Ordering::SeqCst);
    gateway.clock.advance(Duration::from_secs(11));
    assert!((0..20).all(|_| post() == 200));
    assert_eq!(gateway.state()["origin"]["servers"][0]["healthy"], true);
    assert!(failing.received_requests().len() > 5, "both servers take requests again");
}

#[test]
fn burst_of_requests_that_no_server_responds_to_ejects_none() {
    let script = |request: &ReceivedRequest, connection: &mut OriginConnection| match request.target.as_str() {
        "/close" => connection.close(),
        _ => connection.reply("200 OK", "", b"page"),
    };
    let (one, other) = (Origin::with_script(script), Origin::with_script(script));
    let gateway = TestGateway::with_rules(one.address(), &rules_for(&[&one, &other], ""));
    let status_of = |path: &str| {
        let mut client = gateway.connect();
        client.send(format!("POST {path} HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0\r\n\r\n"));
        client.response_to("POST").status
    };
    for _ in 0..3 {
        assert!((0..20).all(|_| status_of("/close") == 502));
        // The others get their responses from both.
        assert!((0..4).all(|_| status_of("/page") == 200));
        gateway.clock.advance(Duration::from_secs(1));
    }
    let servers = gateway.state()["origin"]["servers"].clone();
    assert!(servers.as_array().expect("two servers").iter().all(|server| server["healthy"] == true), "{servers}");
}

#[test]
fn all_servers_are_tried_if_none_responds() {
    let (one, other) = (Origin::unreachable(), Origin::unreachable());
    let rules = format!("origin: {{ urls: ['http://{one}', 'http://{other}'] }}");
    let gateway = TestGateway::with_rules(one, &rules);
    assert!((0..10).all(|_| gateway.connect().get("/", "").status == 502));
}

#[test]
fn active_check_ejects_a_server_that_no_request_has_met() {
    let sick = Origin::with_script(|request, connection| match request.target.as_str() {
        "/healthz" => connection.reply("503 Service Unavailable", "", b""),
        _ => connection.reply("200 OK", "", b"sick"),
    });
    let healthy = Origin::plain();
    let keys = "health: { max_failures: 1, check: { path: /healthz, interval: 1s } }";
    let gateway = TestGateway::with_rules(healthy.address(), &rules_for(&[&sick, &healthy], keys));
    wait_until("the check to eject the server", || gateway.state()["origin"]["servers"][0]["healthy"] == false);
    assert!((0..5).all(|_| gateway.connect().get("/", "").body == b"hello"));
    assert_eq!(gateway.state()["origin"]["servers"][0]["last_error"], "check: status 503 Service Unavailable");
    assert_eq!(sick.last_request().fields["host"], sick.address().to_string());
}
