//! Third-party HTTP clients, crawlers and origins, installed by `./test` in `target/clients`.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Timeout of a client, in seconds. A client that exceeds it fails its test.
const TIMEOUT: &str = "300";

/// Directories of the installed clients and of their scripts.
pub struct InstalledClients {
    installed: PathBuf,
    scripts: PathBuf,
}

impl InstalledClients {
    /// Locates the clients. Panics if they are not installed.
    pub fn locate() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let installed = root.join("target/clients");
        assert!(installed.join("installed").exists(), "no clients in {}; run ./test", installed.display());
        Self { installed, scripts: root.join("tests/clients") }
    }

    /// Returns the path of a file of an installed npm package.
    pub fn package(&self, file: &str) -> PathBuf {
        self.installed.join("node_modules").join(file)
    }

    /// Returns the path of an installed program.
    pub fn program(&self, name: &str) -> PathBuf {
        let program = self.installed.join("venv/bin").join(name);
        assert!(program.exists(), "no {name} in {}; run ./test", self.installed.display());
        program
    }

    /// Returns a Scrapy spider that starts at `/page/0`, with additional `settings`.
    pub fn scrapy(&self, address: SocketAddr, settings: &[&str]) -> Command {
        let mut command = self.command("scrapy");
        command.args(["runspider", "--loglevel", "ERROR", "-a", &format!("start=http://{address}/page/0")]);
        command.args(settings.iter().flat_map(|setting| ["-s", setting])).arg(self.scripts.join("spider.py"));
        command
    }

    /// Returns a urllib3 client with `Retry` that fetches `pages` pages one after the other.
    pub fn urllib3(&self, address: SocketAddr, pages: usize) -> Command {
        let mut command = self.command("python");
        command.arg(self.scripts.join("retrying.py")).args([format!("http://{address}"), pages.to_string()]);
        command
    }

    /// Returns a Python script of `tests/clients`.
    pub fn python(&self, script: &str) -> Command {
        let mut command = self.command("python");
        command.arg(self.scripts.join(script));
        command
    }

    /// Returns a got client that fetches `pages` pages, four at a time.
    pub fn got(&self, address: SocketAddr, pages: usize) -> Command {
        let mut command = self.command("node");
        // Node.js searches packages in the working directory only if the script is read from standard input.
        let script = File::open(self.scripts.join("client.mjs")).expect("script is in the repository");
        command.args(["--input-type=module", "-", &format!("http://{address}"), &pages.to_string()]).stdin(script);
        command
    }

    /// Returns a check of dashboards against Grafana's types.
    pub fn dashboard_check(&self, dashboards: &[PathBuf]) -> Command {
        let mut command = self.command("node");
        let script = File::open(self.scripts.join("dashboard.mjs")).expect("script is in the repository");
        command
            .args(["--input-type=module", "-"])
            .arg(self.scripts.join("dashboard.ts"))
            .args(dashboards)
            .stdin(script);
        command
    }

    /// Returns a run of the public tests for caches against `gateway`, whose `origin` is the suite's own server.
    pub fn cache_tests(&self, origin: SocketAddr, gateway: SocketAddr) -> Command {
        let mut command = self.command("node");
        let script = File::open(self.scripts.join("cache_tests.mjs")).expect("script is in the repository");
        command
            .args(["--input-type=module", "-", &origin.port().to_string(), &format!("http://{gateway}")])
            .stdin(script);
        command
    }

    /// Returns Envoy, which replaces the process that starts it.
    pub fn envoy(&self) -> Command {
        Command::new(self.installed.join("venv/bin/envoy"))
    }

    /// Returns a linter of the files in `deploy`.
    pub fn linter(&self, program: &str) -> Command {
        Command::new(self.installed.join("venv/bin").join(program))
    }

    /// Returns a script of `tests/origins` that serves as an origin with `framework`.
    pub fn origin(&self, program: &str, script: &str, framework: &str) -> Command {
        let mut command = Command::new(self.installed.join("venv/bin").join(program));
        command.arg(self.scripts.with_file_name("origins").join(script)).arg(framework).env("MODULES", &self.installed);
        command
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("timeout");
        command.arg(TIMEOUT).arg(self.installed.join("venv/bin").join(program)).current_dir(&self.installed);
        command
    }
}

/// Returns the sorted paths that a client reports as fetched.
pub fn fetched_paths(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let path = |url: &str| url.splitn(4, '/').nth(3).map(|path| format!("/{path}")).expect("a URL");
    let mut pages: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(path).collect();
    pages.sort();
    pages
}
