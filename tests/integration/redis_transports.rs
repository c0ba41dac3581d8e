//! A shared ledger over TLS, over a Unix socket, and behind Sentinels: the limit is never exceeded, also when the server
//! fails or another one takes over.

use crate::redis::{LIMIT, lease_error, local_endpoint, spend_limit};
use crate::support::client::Client;
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::redis::RedisServer;
use crate::support::tls::Certificates;
use crate::support::wait::wait_until;
use std::sync::Arc;
use tidegate_engine::clock::Clock;
use tidegate_engine::ledger::redis::{HostPort, RedisAddress, RedisEndpoint};
use tokio_rustls::TlsConnector;

/// A server with TLS, whose certificate an authority of the test has issued for 127.0.0.1.
struct TlsServer {
    certificates: Certificates,
    redis: RedisServer,
    port: u16,
}

impl TlsServer {
    fn start(options: &[&str]) -> Self {
        let certificates = Certificates::new();
        certificates.issue("redis", &["127.0.0.1"]);
        let port = Origin::free_address().port();
        let mut all = tls_options(&certificates, port);
        all.extend(options.iter().map(|&option| option.to_owned()));
        let redis = RedisServer::start(&all.iter().map(String::as_str).collect::<Vec<_>>());
        Self { certificates, redis, port }
    }

    fn endpoint(&self) -> RedisEndpoint {
        RedisEndpoint { tls: Some(connector(&self.certificates)), ..local_endpoint(self.port) }
    }
}

fn tls_options(certificates: &Certificates, port: u16) -> Vec<String> {
    let path = |file| certificates.path(file).display().to_string();
    let files = [
        ("--tls-port", port.to_string()),
        ("--tls-cert-file", path("redis.pem")),
        ("--tls-key-file", path("redis.key")),
        ("--tls-ca-cert-file", path("ca.pem")),
        ("--tls-auth-clients", "no".to_owned()),
        ("--tls-replication", "yes".to_owned()),
    ];
    files.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect()
}

fn connector(certificates: &Certificates) -> TlsConnector {
    TlsConnector::from(Arc::new(certificates.client_config()))
}

#[test]
fn limit_holds_over_tls_when_the_server_loses_its_data() {
    let mut server = TlsServer::start(&[]);
    spend_limit(&server.endpoint(), true, |progress| {
        server.redis.restart();
        progress.wait_for_spent(LIMIT / 2);
        server.redis.cli(&["FLUSHALL"]);
    });
}

#[test]
fn server_without_a_certificate_for_its_address_is_not_used() {
    let server = TlsServer::start(&["--requirepass", "hunter2"]);
    let stranger = RedisEndpoint { tls: Some(connector(&Certificates::new())), ..server.endpoint() };
    let error = lease_error(RedisEndpoint { password: Some("hunter2".into()), ..stranger });
    assert!(error.contains("invalid peer certificate"), "{error}");
    let renamed = RedisAddress::Tcp(HostPort { host: "localhost".into(), port: server.port });
    let error = lease_error(RedisEndpoint { address: renamed, ..server.endpoint() });
    assert!(error.contains("redis at localhost:") && error.contains("not valid for name"), "{error}");
    let error = lease_error(server.endpoint());
    assert!(error.contains("authentication required"), "{error}");
}

#[test]
fn limit_holds_over_a_unix_socket() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("redis.sock");
    let mut redis = RedisServer::start(&["--unixsocket", &path.display().to_string(), "--requirepass", "sesame"]);
    let socket = RedisEndpoint { password: Some("sesame".into()), ..local_endpoint(1) };
    let socket = RedisEndpoint { address: RedisAddress::Unix(path), ..socket };
    spend_limit(&socket, true, |_| redis.restart());
    drop(redis);
    let error = lease_error(socket);
    assert!(error.contains("cannot reach redis at /"), "{error}");
}

/// A primary, a replica, and a Sentinel that makes the replica the primary when this one is gone.
struct Site {
    primary: RedisServer,
    replica: RedisServer,
    sentinel: RedisServer,
    endpoint: RedisEndpoint,
}

impl Site {
    fn start(certificates: Option<&Certificates>, password: &str) -> Self {
        let ports = [Origin::free_address().port(), Origin::free_address().port(), Origin::free_address().port()];
        let server = |port: u16, options: &[&str]| {
            let mut all = certificates.map(|files| tls_options(files, port)).unwrap_or_default();
            all.extend(options.iter().map(|&option| option.to_owned()));
            let port = if certificates.is_some() { Origin::free_address().port() } else { port };
            RedisServer::start_at(port, &all.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let [primary_port, replica_port, sentinel_port] = ports;
        let access = ["--requirepass", password, "--masterauth", password];
        let primary = server(primary_port, &access);
        let monitored = primary_port.to_string();
        let replica = server(replica_port, &[&access[..], &["--replicaof", "127.0.0.1", &monitored]].concat());
        wait_until("the replica to have the data", || {
            replica.cli_with(password, &["INFO", "replication"]).contains("master_link_status:up")
        });
        let sentinel = server(sentinel_port, &["--sentinel", "--requirepass", password]);
        let ask = |words: &[&str]| sentinel.cli_with(password, &[&["SENTINEL"], words].concat());
        assert_eq!(ask(&["MONITOR", "site", "127.0.0.1", &monitored, "1"]), "OK");
        for (option, value) in
            [("auth-pass", password), ("down-after-milliseconds", "500"), ("failover-timeout", "2000")]
        {
            assert_eq!(ask(&["SET", "site", option, value]), "OK");
        }
        wait_until("the Sentinel to know the replica", || {
            ask(&["REPLICAS", "site"]).contains(&replica_port.to_string())
        });
        let down = HostPort { host: "127.0.0.1".into(), port: Origin::free_address().port() };
        let sentinels = vec![down, HostPort { host: "127.0.0.1".into(), port: sentinel_port }];
        let endpoint = RedisEndpoint {
            address: RedisAddress::Sentinel { sentinels, primary: "site".into() },
            tls: certificates.map(connector),
            password: Some(password.to_owned()),
            ..local_endpoint(1)
        };
        Self { primary, replica, sentinel, endpoint }
    }
}

/// The first Sentinel is gone, too.
#[test]
fn limit_holds_when_a_sentinel_makes_another_server_the_primary() {
    let certificates = Certificates::new();
    certificates.issue("redis", &["127.0.0.1"]);
    for certificates in [None, Some(&certificates)] {
        let mut site = Site::start(certificates, "sesame");
        spend_limit(&site.endpoint, true, |_| site.primary.kill());
        assert!(site.replica.cli_with("sesame", &["ROLE"]).starts_with("master"));
        let known = site.sentinel.cli_with("sesame", &["SENTINEL", "MASTERS"]);
        assert!(known.contains("site"), "{known}");
    }
}

#[test]
fn name_that_the_sentinel_does_not_know_is_an_error() {
    let site = Site::start(None, "sesame");
    let RedisAddress::Sentinel { sentinels, .. } = &site.endpoint.address else { panic!("not behind Sentinels") };
    let address = RedisAddress::Sentinel { sentinels: sentinels[1..].to_vec(), primary: "other".into() };
    let error = lease_error(RedisEndpoint { address, ..site.endpoint.clone() });
    assert!(error.contains("this Sentinel knows no primary other"), "{error}");
}

/// The whole way from the file of the settings.
#[test]
fn gateway_reaches_its_ledger_by_each_kind_of_url() {
    let server = TlsServer::start(&["--unixsocket", "redis.sock"]);
    let origin = Origin::plain();
    let socket = server.redis.data_path().join("redis.sock");
    let tls =
        format!("url: 'rediss://127.0.0.1:{}', ca: {}", server.port, server.certificates.path("ca.pem").display());
    for redis in [tls, format!("url: 'unix:{}'", socket.display())] {
        let rules = format!(
            "ledger: {{ redis: {{ {redis} }} }}\n\
             quotas: {{ q: {{ limit: 3, window: {{ fixed: 24h }} }} }}\n\
             routes: [{{ match: '/**', cost: {{ q: 1 }} }}]"
        );
        let gateway = TestGateway::with_clock(origin.address(), &rules, Clock::system());
        let mut client = Client::connect(gateway.address());
        wait_until("a lease", || client.get("/page", "").status == 200);
        server.redis.cli(&["FLUSHALL"]);
    }
}
