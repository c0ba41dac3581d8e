//! nginx as the origin: it closes connections, serves ranges and revalidations, and logs the requests it receives.
//! `./test` installs it.

use crate::support::gateway::TestGateway;
use crate::support::wait::wait_until;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// An nginx process on its own port, killed at the end of the test.
struct Nginx {
    process: Child,
    address: SocketAddr,
    dir: TempDir,
}

impl Nginx {
    /// Serves a page of 1 MiB and closes each connection after three requests.
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
        let root = dir.path().display();
        std::fs::write(dir.path().join("page"), vec![b'x'; 1 << 20]).expect("page is writable");
        let config = format!(
            "daemon off; master_process off; pid {root}/pid; error_log {root}/error.log; \nevents {{}}\nhttp {{\n\
             access_log {root}/access.log; keepalive_requests 3;\n\
             client_body_temp_path {root}/b; proxy_temp_path {root}/p; fastcgi_temp_path {root}/f;\n\
             uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n\
             server {{ listen {address}; root {root}; }} }}\n"
        );
        std::fs::write(dir.path().join("nginx.conf"), config).expect("configuration is writable");
        let program = ["/usr/sbin/nginx", "/usr/bin/nginx"].into_iter().find(|path| Path::new(path).exists());
        let process = Command::new(program.expect("nginx is not installed; run ./test"))
            .arg("-c")
            .arg(dir.path().join("nginx.conf"))
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx starts");
        wait_until("nginx to listen", || TcpStream::connect(address).is_ok());
        Self { process, address, dir }
    }

    /// Returns the number of page requests that nginx has logged.
    fn logged_page_requests(&self) -> usize {
        let log = std::fs::read_to_string(self.dir.path().join("access.log")).unwrap_or_default();
        log.lines().filter(|line| line.contains("/page")).count()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn origin_keepalive_closes_are_invisible_to_clients() {
    let nginx = Nginx::start();
    let gateway = TestGateway::with_rules(
        nginx.address,
        "quotas: { api: { limit: 1000, window: { fixed: 24h } } }\nroutes: [ { match: /page, cost: { api: 1 } } ]",
    );
    let mut client = gateway.connect();
    for _ in 0..30 {
        let response = client.get("/page", "");
        assert_eq!((response.status, response.body.len()), (200, 1 << 20));
    }
    let tag = client.get("/page", "").field("etag").to_owned();
    assert_eq!(client.get("/page", &format!("If-None-Match: {tag}\r\n")).status, 304);
    let partial = client.get("/page", "Range: bytes=10-19\r\n");
    assert_eq!((partial.status, partial.body.len(), partial.field("content-range")), (206, 10, "bytes 10-19/1048576"));
    client.send("HEAD /page HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response_to("HEAD").field("content-length"), "1048576");
    assert_eq!(client.get("/missing", "").status, 404);
    assert_eq!(gateway.counters(), (34.0, 0.0));
    // nginx logs a request after it has sent the response, which the client may have read before.
    wait_until("nginx to have logged all page requests", || nginx.logged_page_requests() == 34);
}
