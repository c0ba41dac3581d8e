//! Certificates from an ACME server: a real Pebble, which validates domains at the ports of the gateway.

use crate::support::acme_server::{AcmeServer, LIFETIME_DAYS};
use crate::support::client::Client;
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::program::run_with_env;
use crate::support::redis::RedisServer;
use crate::support::tls::{Certificates, try_connect};
use crate::support::wait::{wait_for, wait_until};
use rustls::{ClientConfig, RootCertStore};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tidegate_engine::clock::Clock;

const SITE: &str = "example.com";
const SHOP: &str = "shop.example.com";
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Longer than the backoff after a server that does not respond.
const BACKOFF: Duration = Duration::from_secs(60);
/// Nothing listens there: a privileged port that only a gateway with a capability has.
const CLOSED_PORT: u16 = 1;

/// A gateway, and the server of its certificate.
struct Site {
    server: AcmeServer,
    gateway: TestGateway,
    _origin: Origin,
}

impl Site {
    /// Starts a gateway with a TLS listener, the last one. `listeners` are the others, and `tls` further keys; the server is
    /// stopped.
    fn new(listeners: &str, tls: &str) -> Self {
        let (server, origin) = (AcmeServer::stopped(&[SITE, SHOP]), Origin::plain());
        let gateway = start_gateway(&server, &origin, listeners, tls, "");
        Self { server, gateway, _origin: origin }
    }

    fn tls_address(&self) -> SocketAddr {
        tls_address(&self.gateway)
    }

    /// Starts the server and advances the clock until the gateway has a certificate. Returns its authority.
    fn order(&mut self, http: u16, tls: u16, variables: &[(&str, &str)]) -> RootCertStore {
        self.server.start(http, tls, variables);
        let roots = self.server.roots();
        wait_until("a certificate", || {
            if !self.serves(&roots) {
                self.gateway.clock.advance(BACKOFF);
            }
            self.serves(&roots)
        });
        roots
    }

    fn serves(&self, roots: &RootCertStore) -> bool {
        self.certificate(roots).is_some()
    }

    fn certificate(&self, roots: &RootCertStore) -> Option<Vec<u8>> {
        certificate(&self.gateway, roots)
    }

    fn failures(&self) -> f64 {
        self.gateway.metric("tidegate_acme_failures_total{domain=\"example.com\"}")
    }

    fn notes(&self) -> String {
        self.gateway.state()["notes"].to_string()
    }

    fn files(&self) -> Vec<PathBuf> {
        let dir = fs::read_dir(self.gateway.state_dir().join("acme")).expect("a directory");
        let mut files: Vec<PathBuf> = dir.map(|entry| entry.expect("an entry").path()).collect();
        files.sort();
        files
    }
}

fn start_gateway(server: &AcmeServer, origin: &Origin, listeners: &str, tls: &str, rules: &str) -> TestGateway {
    start_gateway_with(&server.yaml(&[SITE, SHOP]), origin, listeners, tls, rules)
}

/// Starts a gateway with the section `acme`.
fn start_gateway_with(acme: &str, origin: &Origin, listeners: &str, tls: &str, rules: &str) -> TestGateway {
    let listen = format!("listen: [{listeners} {{ address: '127.0.0.1:0', tls: {{ {acme}{tls} }} }}]");
    // The server dates certificates by the system's clock.
    let clock = Clock::manual(Clock::system().now());
    TestGateway::with_clock(origin.address(), &format!("hosts: [{SITE}, {SHOP}]\n{listen}\n{rules}"), clock)
}

fn tls_address(gateway: &TestGateway) -> SocketAddr {
    *gateway.addresses().last().expect("a listener")
}

/// Returns the certificate that the gateway presents, if it is valid.
fn certificate(gateway: &TestGateway, roots: &RootCertStore) -> Option<Vec<u8>> {
    let stream = TcpStream::connect(tls_address(gateway)).expect("gateway listens");
    let mut client = try_connect(stream, SHOP, &client_config(roots)).ok()?;
    let certificate = client.stream().conn.peer_certificates()?.first()?;
    Some(certificate.to_vec())
}

fn client_config(roots: &RootCertStore) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("provider supports TLS 1.2 and 1.3")
        .with_root_certificates(roots.clone())
        .with_no_client_auth();
    Arc::new(config)
}

const REDIRECT: &str = "{ address: '127.0.0.1:0', redirect: https },";

#[test]
fn certificate_is_ordered_by_http_on_a_listener_that_redirects() {
    let mut site = Site::new(REDIRECT, "");
    let http = site.gateway.address().port();
    let roots = site.order(http, CLOSED_PORT, &[]);
    let stream = TcpStream::connect(site.tls_address()).expect("gateway listens");
    let mut client = try_connect(stream, SITE, &client_config(&roots)).expect("handshake succeeds");
    assert_eq!(client.get("/item", "").status, 200);
    let requests = "tidegate_requests_total{class=\"other\",verdict=\"admitted\",reason=\"\"}";
    assert_eq!(site.gateway.metric(requests), 1.0, "a validation is no request of a client");
    // A token that is not pending is a request like any other.
    let mut plain = Client::connect(site.gateway.address());
    plain.send(format!("GET /.well-known/acme-challenge/x HTTP/1.1\r\nHost: {SITE}\r\n\r\n"));
    assert_eq!(plain.read_response().status, 301);

    let expiry = site.gateway.metric("tidegate_certificate_expiry_timestamp_seconds{domain=\"example.com\"}");
    let now = Clock::system().now().seconds() as f64;
    assert!((expiry - now - LIFETIME_DAYS as f64 * 86400.0).abs() < 86400.0, "{expiry}");
    for file in site.files() {
        assert_eq!(fs::metadata(&file).expect("a file").mode() & 0o777, 0o600, "{}", file.display());
    }
}

#[test]
fn certificate_is_ordered_by_a_handshake_where_client_certificates_are_required() {
    let authority = Certificates::new();
    let ca = authority.path("ca.pem");
    let mut site = Site::new("", &format!(", client_ca: {}, client_certificates: required", ca.display()));
    let tls = site.tls_address().port();
    let roots = site.order(CLOSED_PORT, tls, &[]);
    assert!(site.serves(&roots));
}

#[test]
fn other_challenge_is_tried_where_the_first_one_fails() {
    let mut site = Site::new(REDIRECT, "");
    let tls = site.tls_address().port();
    site.order(CLOSED_PORT, tls, &[]);
}

#[test]
fn server_that_starts_later_is_asked_again_and_handshakes_are_refused_until_then() {
    let mut site = Site::new(REDIRECT, "");
    wait_until("the first attempt", || site.failures() == 1.0);
    let notes = site.notes();
    let found = "listen[1].tls.acme: no new certificate for example.com: the ACME server https://localhost:";
    assert!(notes.contains(found), "{notes}");
    assert!(notes.contains("its handshakes are refused; next attempt in 3"), "{notes}");
    assert!(!site.serves(&RootCertStore::empty()));
    site.order(site.gateway.address().port(), CLOSED_PORT, &[]);
    assert!(!site.notes().contains("no new certificate"));
}

#[test]
fn server_that_is_none_or_unknown_is_named_with_what_would_do() {
    let (mut server, origin) = (AcmeServer::stopped(&[SITE, SHOP]), Origin::plain());
    server.start(CLOSED_PORT, CLOSED_PORT, &[]);
    let acme = server.yaml(&[SITE, SHOP]);
    let (without_ca, _) = acme.rsplit_once(", ca:").expect("the server has an authority of its own");
    for (acme, remedy) in [
        (acme.replace("/dir'", "/none'"), "/none is not the directory of an ACME server ("),
        (format!("{without_ca} }}"), "UnknownIssuer; write the authority of its own certificate in acme.ca"),
    ] {
        let gateway = start_gateway_with(&acme, &origin, "", "", "");
        wait_until("the first attempt", || {
            gateway.metric("tidegate_acme_failures_total{domain=\"example.com\"}") == 1.0
        });
        let notes = gateway.state()["notes"].to_string();
        assert!(notes.contains(remedy), "{notes}");
    }
}

#[test]
fn restart_orders_nothing() {
    let mut site = Site::new(REDIRECT, "");
    let roots = site.order(site.gateway.address().port(), CLOSED_PORT, &[]);
    let (certificate, files) = (site.certificate(&roots), site.files());
    site.server.stop();
    site.gateway.restart();
    assert_eq!(site.certificate(&roots), certificate);
    site.gateway.clock.advance(DAY);
    assert_eq!((site.failures(), site.files()), (0.0, files));
}

#[test]
fn certificate_is_renewed_after_two_thirds_of_its_lifetime() {
    let mut site = Site::new(REDIRECT, "");
    let roots = site.order(site.gateway.address().port(), CLOSED_PORT, &[]);
    let first = site.certificate(&roots);
    site.gateway.clock.advance(DAY * 59);
    assert_eq!(site.certificate(&roots), first);
    site.gateway.clock.advance(DAY * 5);
    wait_until("another certificate", || site.certificate(&roots).is_some_and(|other| Some(other) != first));
}

#[test]
fn refused_renewal_keeps_the_certificate_and_repeats_what_the_server_says() {
    let mut site = Site::new(REDIRECT, "");
    let roots = site.order(site.gateway.address().port(), CLOSED_PORT, &[]);
    let first = site.certificate(&roots).expect("a certificate");
    let failures = site.failures();
    site.server.names().set_addresses(SHOP, &[]);
    site.gateway.clock.advance(DAY * 65);
    wait_until("a failure", || site.failures() > failures);
    let notes = site.notes();
    assert!(notes.contains("HTTP-01: shop.example.com: "), "{notes}");
    assert!(notes.contains("TLS-ALPN-01: ") && notes.contains("keeping the previous certificate"), "{notes}");
    assert_eq!(site.certificate(&roots), Some(first.clone()));
    site.server.names().set_addresses(SHOP, &["127.0.0.1"]);
    wait_for("another certificate", || {
        site.gateway.clock.advance(Duration::from_secs(600));
        site.certificate(&roots).filter(|other| *other != first)
    });
}

#[test]
fn server_that_rejects_nonces_and_has_forgotten_the_account_issues_in_the_end() {
    let mut site = Site::new(REDIRECT, "");
    let http = site.gateway.address().port();
    let faults = [("PEBBLE_WFE_NONCEREJECT", "50"), ("PEBBLE_AUTHZREUSE", "100")];
    site.order(http, CLOSED_PORT, &faults);
    site.server.stop();
    site.gateway.clock.advance(DAY * 65);
    site.order(http, CLOSED_PORT, &faults);
}

#[test]
fn damaged_files_are_replaced_or_named() {
    let mut site = Site::new(REDIRECT, "");
    let http = site.gateway.address().port();
    let roots = site.order(http, CLOSED_PORT, &[]);
    let [account, certificate] = site.files().try_into().expect("an account and a certificate");
    let clock = site.gateway.clock.clone();
    site.server.stop();
    site.gateway.restart_after(|| {
        fs::write(&account, "garbage").expect("file can be written");
        fs::write(&certificate, "garbage").expect("file can be written");
    });
    wait_until("the first attempt", || site.failures() > 0.0);
    let notes = site.notes();
    assert!(notes.contains("account-") && notes.contains("remove the file to create another account"), "{notes}");
    assert!(!site.serves(&roots));
    fs::remove_file(&account).expect("file can be removed");
    clock.advance(BACKOFF);
    let http = site.gateway.address().port();
    site.order(http, CLOSED_PORT, &[]);
}

#[test]
fn handshake_for_a_challenge_that_is_not_pending_is_refused() {
    let mut site = Site::new(REDIRECT, "");
    let roots = site.order(site.gateway.address().port(), CLOSED_PORT, &[]);
    let handshake = |protocols: &[&str]| {
        let mut config = ClientConfig::clone(&client_config(&roots));
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(site.tls_address()).expect("gateway listens");
        try_connect(stream, SITE, &Arc::new(config)).map(|_| ()).map_err(|error| error.to_string())
    };
    let refused = handshake(&["acme-tls/1"]).expect_err("no challenge is pending");
    assert!(refused.contains("NoApplicationProtocol"), "{refused}");
    assert_eq!(handshake(&["acme-tls/1", "http/1.1"]), Ok(()), "a client of the site is served");
}

/// A gateway whose certificate for a wildcard is ordered by DNS records, which a script writes.
struct WildcardSite {
    server: AcmeServer,
    gateway: TestGateway,
    /// Directory with the script, and in `records` a file for each name.
    directory: TempDir,
    _origin: Origin,
}

/// Appends or removes one line of a file, and notes the call.
const WORKING_HOOK: &str = r#"
echo "$2 $3 $4" >>"$1/calls"
file=$1/records/$3
case $2 in
set) echo "$4" >>"$file" ;;
remove)
    grep -Fvx -e "$4" "$file" >"$file.rest"
    mv "$file.rest" "$file"
    [ -s "$file" ] || rm "$file"
    ;;
esac"#;

impl WildcardSite {
    /// Starts a gateway with the script `hook`, and the server.
    fn new(hook: &str) -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        fs::create_dir(directory.path().join("records")).expect("directory can be created");
        write_hook(&directory, hook);
        let (mut server, origin) = (AcmeServer::stopped(&[]), Origin::plain());
        server.names().serve_texts_of(&directory.path().join("records"));
        server.start(CLOSED_PORT, CLOSED_PORT, &[]);
        let path = directory.path().display();
        let hook = format!("acme: {{ hook: [sh, {path}/hook, {path}],");
        let acme = server.yaml(&["'*.example.com'", SITE]).replace("acme: {", &hook);
        let gateway = start_gateway_with(&acme, &origin, REDIRECT, "", "");
        Self { server, gateway, directory, _origin: origin }
    }

    fn wait_for_certificate(&self, previous: Option<&[u8]>) -> Vec<u8> {
        let roots = self.server.roots();
        wait_for("a certificate", || {
            let found = certificate(&self.gateway, &roots).filter(|found| Some(&found[..]) != previous);
            if found.is_none() {
                self.gateway.clock.advance(BACKOFF);
            }
            found
        })
    }

    /// Waits until the last attempt failed. Returns what the gateway says of it.
    fn wait_for_failure(&self) -> String {
        wait_for("a failure", || {
            let notes = self.gateway.state()["notes"].to_string();
            notes.contains("no new certificate for *.example.com: ").then_some(notes)
        })
    }

    fn calls(&self) -> Vec<(String, String)> {
        let calls = fs::read_to_string(self.directory.path().join("calls")).expect("the hook was called");
        let call = |line: &str| {
            let (call, value) = line.rsplit_once(' ').expect("an action, a name and a value");
            (call.to_owned(), value.to_owned())
        };
        calls.lines().map(call).collect()
    }

    fn has_records(&self) -> bool {
        fs::read_dir(self.directory.path().join("records")).expect("a directory").next().is_some()
    }
}

fn write_hook(directory: &TempDir, text: &str) {
    let (new, file) = (directory.path().join("new"), directory.path().join("hook"));
    fs::write(&new, text).and_then(|()| fs::rename(new, file)).expect("file can be written");
}

#[test]
fn wildcard_is_ordered_and_renewed_by_dns_records_that_are_removed() {
    let site = WildcardSite::new(WORKING_HOOK);
    let first = site.wait_for_certificate(None);
    let roots = site.server.roots();
    for (host, is_served) in [(SITE, true), ("any.example.com", true), ("a.b.example.com", false)] {
        let stream = TcpStream::connect(tls_address(&site.gateway)).expect("gateway listens");
        assert_eq!(try_connect(stream, host, &client_config(&roots)).is_ok(), is_served, "{host}");
    }
    assert!(!site.has_records(), "all are removed");
    let calls = site.calls();
    let [names, values] = [0, 1].map(|part| {
        calls.iter().map(|(call, value)| if part == 0 { call.clone() } else { value.clone() }).collect::<Vec<_>>()
    });
    let (set, remove) = ("set _acme-challenge.example.com", "remove _acme-challenge.example.com");
    assert_eq!(names, [set, set, remove, remove], "two domains have one name");
    assert_eq!(values[..2], values[2..]);
    assert_ne!(values[0], values[1]);
    let notes = site.gateway.state()["notes"].to_string();
    assert!(!notes.contains("acme") && !notes.contains("no certificate"), "{notes}");

    site.gateway.clock.advance(DAY * 65);
    site.wait_for_certificate(Some(&first));
    assert!(site.calls().len() > 4 && !site.has_records());
}

#[test]
fn hook_that_fails_is_named_with_what_it_printed_and_called_again() {
    let floods = "head -c 5000000 /dev/zero | tr '\\0' x";
    for (hook, expected) in [
        (
            "echo 'no such zone' >&2; exit 3",
            "exit status: 3; run it by hand as the user of the gateway; it printed: no such zone",
        ),
        (floods, "ended because it has printed more than 1048576 bytes; it printed: xxx"),
        ("kill -9 $$", "signal: 9 (SIGKILL); run it by hand"),
        // The server says what is missing.
        ("exit 0", "the command must end after all name servers have the record"),
    ] {
        let site = WildcardSite::new(hook);
        let notes = site.wait_for_failure();
        assert!(notes.contains(expected) && notes.contains("its handshakes are refused; next attempt in "), "{notes}");
        write_hook(&site.directory, WORKING_HOOK);
        wait_until("the next attempt", || {
            site.gateway.clock.advance(BACKOFF * 10);
            certificate(&site.gateway, &site.server.roots()).is_some()
        });
    }
}

#[test]
fn record_that_cannot_be_removed_is_named_and_prevents_no_certificate() {
    let hook = format!("[ $2 != remove ] || {{ echo read-only; exit 1; }}\n{WORKING_HOOK}");
    let site = WildcardSite::new(&hook);
    site.wait_for_certificate(None);
    let notes = site.gateway.state()["notes"].to_string();
    assert!(notes.contains("listen[1].tls.acme.hook: TXT _acme-challenge.example.com "), "{notes}");
    assert!(notes.contains("it printed: read-only") && notes.contains("; remove it by hand"), "{notes}");
}

#[test]
fn check_names_a_hook_that_cannot_be_run() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let file = directory.path().join("tidegate.yaml");
    let check = |hook: &str| {
        let acme = format!("acme: {{ domains: ['*.example.com'], hook: {hook} }}");
        let listen = format!("listen: {{ address: '127.0.0.1:0', tls: {{ {acme} }} }}");
        fs::write(&file, format!("origin: http://127.0.0.1:1\n{listen}\n")).expect("file can be written");
        run_with_env(&["check", &file.display().to_string()], b"", &[])
    };
    for (hook, expected) in [
        ("[./none, a]", "none: No such file or directory (os error 2); write the path of a program, or a name in PATH"),
        ("./tidegate.yaml", "tidegate.yaml is not executable; run chmod +x "),
        ("sh -c", "found no program sh -c in PATH; write its path, and arguments as further items of the list"),
    ] {
        let outcome = check(hook);
        assert_eq!(outcome.code, 2, "{}", outcome.errors);
        let (location, error) = outcome.errors.split_once("listen.tls.acme.hook: ").expect("the key");
        assert!(location.contains("tidegate.yaml:2:") && error.contains(expected), "{}", outcome.errors);
    }
    let outcome = check("sh");
    assert_eq!((outcome.code, outcome.errors.as_str()), (0, ""));
    assert!(
        outcome
            .output
            .contains("*.example.com from https://acme-v02.api.letsencrypt.org/directory by DNS records of sh")
    );
}

/// Two gateways of one site, with one Redis server, behind a load balancer that the ACME server asks.
struct SharedSite {
    redis: RedisServer,
    server: AcmeServer,
    gateways: [TestGateway; 2],
    _origin: Origin,
}

impl SharedSite {
    fn new(listeners: &str) -> Self {
        Self::with_secrets(listeners, ["0123456789abcdef"; 2].map(Some))
    }

    /// Like [`Self::new`], with the secret of each gateway.
    fn with_secrets(listeners: &str, secrets: [Option<&str>; 2]) -> Self {
        let (redis, server, origin) = (RedisServer::start(&[]), AcmeServer::stopped(&[SITE, SHOP]), Origin::plain());
        let gateways = secrets.map(|secret| {
            let secret = secret.map(|secret| format!(", certificate_secret: {secret}")).unwrap_or_default();
            let rules = format!("ledger: {{ redis: {{ url: 'redis://127.0.0.1:{}'{secret} }} }}", redis.port);
            start_gateway(&server, &origin, listeners, "", &rules)
        });
        Self { redis, server, gateways, _origin: origin }
    }

    /// Starts the server, which validates at the gateway `asked`.
    fn start(&mut self, asked: usize) -> RootCertStore {
        let gateway = &self.gateways[asked];
        self.server.start(gateway.address().port(), tls_address(gateway).port(), &[]);
        self.server.roots()
    }

    /// Waits until both gateways present the same certificate, other than `previous`.
    fn wait_for_certificate(&self, roots: &RootCertStore, previous: &Option<Vec<u8>>) -> Option<Vec<u8>> {
        wait_for("the same certificate on both gateways", || {
            let [first, second] = self.gateways.each_ref().map(|gateway| certificate(gateway, roots));
            (first.is_some() && first == second && first != *previous).then_some(first)
        })
    }

    fn failures(&self) -> f64 {
        let failures = "tidegate_acme_failures_total{domain=\"example.com\"}";
        self.gateways.iter().map(|gateway| gateway.metric(failures)).sum()
    }
}

/// The first order is that of any of the two. Then only one is due, and the server asks the other one.
#[test]
fn gateways_with_one_redis_order_once_and_answer_for_each_other() {
    for listeners in [REDIRECT, ""] {
        let mut site = SharedSite::new(listeners);
        let roots = site.start(0);
        site.gateways.iter().for_each(|gateway| gateway.clock.advance(BACKOFF));
        let first = wait_for("a certificate", || {
            site.gateways.iter().for_each(|gateway| gateway.clock.advance(BACKOFF));
            certificate(&site.gateways[0], &roots)
        });
        assert_eq!(site.wait_for_certificate(&roots, &None), Some(first.clone()));
        // Only a gateway that orders has an account.
        let accounts = site.gateways.iter().flat_map(|gateway| {
            let dir = fs::read_dir(gateway.state_dir().join("acme")).expect("a directory");
            dir.filter(|entry| {
                entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("account"))
            })
        });
        assert_eq!(accounts.count(), 1);
        let key = site.redis.cli(&["--scan", "--pattern", "*:certificate:*"]);
        let stored = site.redis.cli(&["HGETALL", &key]);
        assert!(stored.contains("pem") && !stored.contains("PRIVATE KEY"), "{stored}");

        site.server.stop();
        let roots = site.start(1);
        site.gateways[0].clock.advance(DAY * 65);
        site.wait_for_certificate(&roots, &Some(first));
    }
}

/// The same for gateways whose secrets differ: none can use the certificate of the other.
#[test]
fn gateways_without_a_secret_order_each_and_share_no_key() {
    for secrets in [[None, None], [Some("0123456789abcdef"), Some("fedcba9876543210")]] {
        let mut site = SharedSite::with_secrets(REDIRECT, secrets);
        let roots = site.start(0);
        let certificates = wait_for("a certificate of each", || {
            site.gateways.iter().for_each(|gateway| gateway.clock.advance(BACKOFF));
            let [first, second] = site.gateways.each_ref().map(|gateway| certificate(gateway, &roots));
            first.zip(second)
        });
        assert_ne!(certificates.0, certificates.1);
        let key = site.redis.cli(&["--scan", "--pattern", "*:certificate:*"]);
        let stored = site.redis.cli(&["HGETALL", &key]);
        assert!(!stored.contains("PRIVATE KEY") && !stored.contains("BEGIN CERTIFICATE"), "{stored}");
        assert_eq!(stored.contains("pem"), secrets[0].is_some(), "{stored}");
    }
}

#[test]
fn gateway_that_joins_orders_nothing() {
    let mut site = SharedSite::new(REDIRECT);
    let roots = site.start(0);
    wait_for("a certificate", || {
        site.gateways.iter().for_each(|gateway| gateway.clock.advance(BACKOFF));
        certificate(&site.gateways[0], &roots)
    });
    let certificate = site.wait_for_certificate(&roots, &None);
    site.server.stop();
    site.gateways[1].restart_after(|| ());
    assert_eq!(site.wait_for_certificate(&roots, &None), certificate, "from its file");
    let dir = site.gateways[1].state_dir().join("acme");
    site.gateways[1].restart_after(|| fs::remove_dir_all(&dir).expect("directory can be removed"));
    assert_eq!(site.wait_for_certificate(&roots, &None), certificate, "from the other gateway");
    // A server that lost its data gets it back.
    site.redis.cli(&["FLUSHALL"]);
    let key = "*:certificate:*";
    wait_until("the certificate to be stored again", || !site.redis.cli(&["--scan", "--pattern", key]).is_empty());
}

#[test]
fn failure_of_one_gateway_holds_back_the_other() {
    let site = SharedSite::new(REDIRECT);
    let notes = || site.gateways.each_ref().map(|gateway| gateway.state()["notes"].to_string());
    wait_until("both know the failure", || {
        let notes = notes();
        let has = |found: &str| {
            let found = format!("no new certificate for example.com: {found}the ACME server https://localhost:");
            notes.iter().any(|note| note.contains(&found))
        };
        has("another gateway: ") && has("")
    });
    assert_eq!(site.failures(), 1.0);
}

#[test]
fn no_gateway_orders_while_it_cannot_ask_the_others() {
    let mut site = SharedSite::new(REDIRECT);
    wait_until("a failure", || site.failures() > 0.0);
    site.redis.kill();
    let roots = site.start(0);
    site.gateways.iter().for_each(|gateway| gateway.clock.advance(BACKOFF));
    wait_until("both to be due", || {
        let notes = site.gateways.each_ref().map(|gateway| gateway.state()["notes"].to_string());
        notes.iter().all(|note| note.contains("no new certificate for example.com: cannot reach redis"))
    });
    assert!(site.gateways.iter().all(|gateway| certificate(gateway, &roots).is_none()));
    site.redis.restart();
    wait_for("a certificate", || {
        site.gateways.iter().for_each(|gateway| gateway.clock.advance(BACKOFF));
        certificate(&site.gateways[0], &roots)
    });
}
