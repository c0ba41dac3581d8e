//! A real Redis of a test's own: on a port of its own, in a folder of its own, gone with the test.

use super::wait::wait_for;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub struct RedisServer {
    child: Child,
    pub port: u16,
    folder: tempfile::TempDir,
    options: Vec<String>,
}

impl RedisServer {
    /// Starts one with `options` of its command line.
    pub fn start(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        // Another process may take the port between the look and the server's start.
        let (port, child) = wait_for("redis-server to start on a free port", || {
            let port = free_port();
            spawn(port, folder.path(), &options).map(|child| (port, child))
        });
        Self { child, port, folder, options }
    }

    /// Kills it and starts it again at the same place, with what it had saved.
    pub fn restart(&mut self) {
        self.kill();
        self.child = wait_for("redis-server to start again", || spawn(self.port, self.folder.path(), &self.options));
    }

    /// As `kill -9` does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops it in its tracks, or lets it go on.
    pub fn freeze(&self, frozen: bool) {
        let signal = if frozen { "-STOP" } else { "-CONT" };
        let done = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(done.is_ok_and(|status| status.success()), "kill {signal}");
    }

    /// What `redis-cli` answers.
    pub fn cli(&self, words: &[&str]) -> String {
        let told = Command::new("redis-cli").args(["-p", &self.port.to_string()]).args(words).output();
        String::from_utf8_lossy(&told.expect("redis-cli comes with the server").stdout).trim().to_owned()
    }

    /// Its folder, where a saved `dump.rdb` lies.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that nobody listens on at this moment.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

/// Starts the server and waits until it serves; `None` if it ends before, because the port is taken.
fn spawn(port: u16, folder: &Path, options: &[String]) -> Option<Child> {
    let log = folder.join("log");
    let mut child = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dbfilename", "dump.rdb"])
        .arg("--dir")
        .arg(folder)
        .args(options)
        .stdout(fs::File::create(&log).expect("a log"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("redis-server does not run ({error}); ./test installs it"));
    let serves = wait_for("redis-server to be ready", || {
        if child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return Some(false);
        }
        let is_ready = fs::read_to_string(&log).is_ok_and(|log| log.contains("Ready"));
        (is_ready && TcpStream::connect(("127.0.0.1", port)).is_ok()).then_some(true)
    });
    serves.then_some(child)
}
