//! nginx as an origin. `./test` installs it.

use super::origin::Origin;
use super::wait::wait_until;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// An nginx process on its own port, killed at the end of the test.
pub struct Nginx {
    process: Child,
    pub address: SocketAddr,
    dir: TempDir,
}

impl Nginx {
    /// Starts nginx with the directives `server` of its only server, which serves `page`, a file of 1 MiB. It closes each
    /// connection after three requests.
    pub fn start(server: &str) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let address = Origin::free_address();
        let root = dir.path().display();
        std::fs::write(dir.path().join("page"), vec![b'x'; 1 << 20]).expect("page is writable");
        let config = format!(
            "daemon off; master_process off; pid {root}/pid; error_log {root}/error.log; \nevents {{}}\nhttp {{\n\
             access_log {root}/access.log; keepalive_requests 3;\n\
             client_body_temp_path {root}/b; proxy_temp_path {root}/p; fastcgi_temp_path {root}/f;\n\
             uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n\
             server {{ listen {address}; root {root}; {server} }} }}\n"
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
    pub fn logged_page_requests(&self) -> usize {
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
