//! A real Redis server with its own port and directory, stopped at the end of the test.

use super::wait::wait_for;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub struct RedisServer {
    child: Child,
    pub port: u16,
    dir: tempfile::TempDir,
    options: Vec<String>,
}

impl RedisServer {
    /// Starts a server with the command line `options`.
    pub fn start(options: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        // Another process may take the port between the check and the start of the server.
        let (port, child) = wait_for("redis-server to start on a free port", || {
            let port = free_port();
            spawn(port, dir.path(), &options).map(|child| (port, child))
        });
        Self { child, port, dir, options }
    }

    /// Starts a server on a port that is free, with the command line `options`.
    pub fn start_at(port: u16, options: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let child = wait_for("redis-server to start", || spawn(port, dir.path(), &options));
        Self { child, port, dir, options }
    }

    /// Kills the server and restarts it at the same address, with its saved data.
    pub fn restart(&mut self) {
        self.kill();
        self.child = wait_for("redis-server to start again", || spawn(self.port, self.dir.path(), &self.options));
    }

    /// Kills the server, like `kill -9`.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Suspends or resumes the server process.
    pub fn set_frozen(&self, frozen: bool) {
        let signal = if frozen { "-STOP" } else { "-CONT" };
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "kill {signal}");
    }

    /// Runs `redis-cli` and returns its output.
    pub fn cli(&self, arguments: &[&str]) -> String {
        let output = Command::new("redis-cli").args(["-p", &self.port.to_string()]).args(arguments).output();
        String::from_utf8_lossy(&output.expect("redis-cli is installed").stdout).trim().to_owned()
    }

    /// Like [`Self::cli`], with the password of the default user.
    pub fn cli_with(&self, password: &str, arguments: &[&str]) -> String {
        self.cli(&[&["--no-auth-warning", "-a", password], arguments].concat())
    }

    /// Returns the data directory, which contains a saved `dump.rdb`.
    pub fn data_path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns a port that is currently free.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

/// Starts the server and waits until it is ready. Returns `None` if it exits before, because the port is taken.
fn spawn(port: u16, dir: &Path, options: &[String]) -> Option<Child> {
    let log = dir.join("log");
    // A Sentinel writes what it learns into the file.
    let config = dir.join("redis.conf");
    fs::OpenOptions::new().create(true).append(true).open(&config).expect("file can be written");
    let mut child = Command::new("redis-server")
        .arg(config)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dbfilename", "dump.rdb"])
        .arg("--dir")
        .arg(dir)
        .args(options)
        .stdout(fs::File::create(&log).expect("log file is writable"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run redis-server ({error}); run ./test to install it"));
    let serves = wait_for("redis-server to be ready", || {
        if child.try_wait().is_ok_and(|status| status.is_some()) {
            return Some(false);
        }
        let is_ready = fs::read_to_string(&log).is_ok_and(|log| log.contains("Ready") || log.contains("Sentinel ID"));
        (is_ready && TcpStream::connect(("127.0.0.1", port)).is_ok()).then_some(true)
    });
    serves.then_some(child)
}
