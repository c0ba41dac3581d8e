//! A real ACME server (Pebble) with its own ports and name server, stopped at the end of the test.

use super::name_server::NameServer;
use super::origin::Origin;
use super::tls::Certificates;
use super::wait::wait_for;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

/// Lifetime of its certificates, in days.
pub const LIFETIME_DAYS: u64 = 90;

/// An ACME server that can be started and stopped.
pub struct AcmeServer {
    /// Signs the certificate of the server itself.
    certificates: Certificates,
    names: NameServer,
    port: u16,
    management_port: u16,
    child: Option<Child>,
}

impl AcmeServer {
    /// Chooses the port of a server that is not running yet. It resolves `domains` to this machine.
    pub fn stopped(domains: &[&str]) -> Self {
        let (certificates, names) = (Certificates::new(), NameServer::start());
        certificates.issue("server", &["localhost"]);
        for domain in domains {
            names.set_addresses(domain, &["127.0.0.1"]);
        }
        Self { certificates, names, port: Origin::free_address().port(), management_port: 0, child: None }
    }

    /// Returns the YAML that orders a certificate for `domains`.
    pub fn yaml(&self, domains: &[&str]) -> String {
        format!(
            "acme: {{ domains: [{}], contact: 'mailto:ops@example.com', directory: 'https://localhost:{}/dir', ca: {} }}",
            domains.join(", "),
            self.port,
            self.certificates.path("ca.pem").display()
        )
    }

    /// Starts the server. It validates domains at the ports `http` and `tls`, and runs with these variables.
    pub fn start(&mut self, http: u16, tls: u16, variables: &[(&str, &str)]) {
        assert!(self.child.is_none(), "the server is stopped");
        // Another process may hold a port for a while.
        self.child = Some(wait_for("pebble to start", || {
            self.management_port = Origin::free_address().port();
            self.spawn(http, tls, variables)
        }));
    }

    fn spawn(&self, http: u16, tls: u16, variables: &[(&str, &str)]) -> Option<Child> {
        let config = json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{}", self.port),
            "managementListenAddress": format!("127.0.0.1:{}", self.management_port),
            "certificate": self.certificates.path("server.pem"),
            "privateKey": self.certificates.path("server.key"),
            "httpPort": http,
            "tlsPort": tls,
            "certificateValidityPeriod": LIFETIME_DAYS * 24 * 3600,
        } });
        let path = self.certificates.path("pebble.json");
        fs::write(&path, config.to_string()).expect("file can be written");
        let mut child = Command::new("pebble")
            .args(["-config", path.to_str().expect("UTF-8"), "-dnsserver", &self.names.address().to_string()])
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_WFE_NONCEREJECT", "0")
            .env("PEBBLE_AUTHZREUSE", "0")
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run pebble ({error}); run ./test to install it"));
        let serves = wait_for("pebble to listen", || {
            if child.try_wait().is_ok_and(|status| status.is_some()) {
                return Some(false);
            }
            let listens = |port| TcpStream::connect(("127.0.0.1", port)).is_ok();
            (listens(self.port) && listens(self.management_port)).then_some(true)
        });
        serves.then_some(child)
    }

    /// Stops the server. When it starts again, it has forgotten all accounts.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Returns the authority of the certificates that the running server issues.
    pub fn roots(&self) -> RootCertStore {
        let address = SocketAddr::from(([127, 0, 0, 1], self.management_port));
        let response = self.certificates.connect(address, "localhost").get("/roots/0", "");
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&response.body).expect("a root")).expect("valid root");
        roots
    }

    /// Returns the names that the server resolves.
    pub fn names(&self) -> &NameServer {
        &self.names
    }
}

impl Drop for AcmeServer {
    fn drop(&mut self) {
        self.stop();
    }
}
