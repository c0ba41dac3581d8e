//! A gateway as a process of its own, on real time.

use super::program::Program;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use tempfile::TempDir;

/// The real program that serves.
pub struct RunningGateway {
    pub program: Program,
    pub address: SocketAddr,
    admin: SocketAddr,
    _config_dir: TempDir,
}

impl RunningGateway {
    /// Starts the program with `rules`, on free ports.
    pub fn start(state_dir: &Path, origin: SocketAddr, rules: &str) -> Self {
        Self::start_at(state_dir, origin, "127.0.0.1:0", rules)
    }

    /// Like [`Self::start`], with the listener `listen`.
    pub fn start_at(state_dir: &Path, origin: SocketAddr, listen: &str, rules: &str) -> Self {
        Self::start_with_env(state_dir, origin, listen, rules, &[])
    }

    /// Like [`Self::start_at`], with variables of the environment.
    pub fn start_with_env(
        state_dir: &Path,
        origin: SocketAddr,
        listen: &str,
        rules: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        let config_dir = tempfile::tempdir().expect("temporary directory");
        let file = config_dir.path().join("gate.yaml");
        // As for the gateways of this process.
        let classes = if rules.contains("classes:") { "" } else { "classes: []\n" };
        let yaml = format!(
            "listen: {listen}\nadmin: {{ listen: \"127.0.0.1:0\" }}\nstate_dir: {}\nworkers: 2\n\
             origin: {{ url: \"http://{origin}\" }}\n{classes}{rules}",
            state_dir.display(),
        );
        std::fs::write(&file, yaml).expect("file is writable");
        let mut program = Program::start_with_env(&["serve", "--config", &file.display().to_string()], environment);
        let ready = program.read_line();
        let mut addresses = ready.split("://").skip(1).map(|rest| {
            let address = rest.split([' ', ',']).next().unwrap_or_default();
            address.parse::<SocketAddr>().unwrap_or_else(|_| panic!("no address in {ready:?}"))
        });
        let (address, _, admin) = (addresses.next(), addresses.next(), addresses.next());
        Self {
            program,
            address: address.expect("gateway listens"),
            admin: admin.expect("admin listener is ready"),
            _config_dir: config_dir,
        }
    }

    /// Sends one request to the admin listener and returns the body of the response.
    pub fn admin_request(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.admin).expect("admin listener is running");
        let (host, length) = (self.admin, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("gateway reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("gateway responds");
        response.split_once("\r\n\r\n").expect("HTTP response").1.to_owned()
    }

    /// Returns one exported sample.
    pub fn metric(&self, name: &str) -> f64 {
        *self.samples(&format!("{name} ")).first().unwrap_or_else(|| panic!("{name} is not exported"))
    }

    /// Returns the exported samples whose lines start with `prefix`.
    pub fn samples(&self, prefix: &str) -> Vec<f64> {
        let text = self.admin_request("GET", "/metrics", "");
        let lines = text.lines().filter(|line| line.starts_with(prefix));
        lines.map(|line| line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")).collect()
    }
}
