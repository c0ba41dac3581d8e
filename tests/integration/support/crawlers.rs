//! Clients that other people wrote, as `./test` installs them in `target/clients`.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Seconds after which a client is ended, and its test has failed.
const TIMEOUT: &str = "300";

/// Where their programs are.
pub struct Crawlers {
    installed: PathBuf,
    scripts: PathBuf,
}

impl Crawlers {
    /// Finds them. Panics where they are not installed.
    pub fn installed() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let installed = root.join("target/clients");
        assert!(installed.join("installed").exists(), "no clients in {}; ./test installs them", installed.display());
        Self { installed, scripts: root.join("tests/clients") }
    }

    /// A Scrapy spider that begins at `/page/0`, with `settings` beside Scrapy's own.
    pub fn scrapy(&self, site: SocketAddr, settings: &[&str]) -> Command {
        let mut command = self.command("scrapy");
        command.args(["runspider", "--loglevel", "ERROR", "-a", &format!("start=http://{site}/page/0")]);
        command.args(settings.iter().flat_map(|setting| ["-s", setting])).arg(self.scripts.join("spider.py"));
        command
    }

    /// urllib3 with its `Retry`, which fetches so many pages one after another.
    pub fn urllib3(&self, site: SocketAddr, pages: usize) -> Command {
        let mut command = self.command("python");
        command.arg(self.scripts.join("retrying.py")).args([format!("http://{site}"), pages.to_string()]);
        command
    }

    /// got, which fetches so many pages, four at a time.
    pub fn got(&self, site: SocketAddr, pages: usize) -> Command {
        let mut command = self.command("node");
        // Node.js looks for packages where it is started only if the script has no place of its own.
        let script = File::open(self.scripts.join("client.mjs")).expect("it is in the repository");
        command.args(["--input-type=module", "-", &format!("http://{site}"), &pages.to_string()]).stdin(script);
        command
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("timeout");
        command.arg(TIMEOUT).arg(self.installed.join("venv/bin").join(program)).current_dir(&self.installed);
        command
    }
}

/// The paths that a client says it got, in order.
pub fn pages(told: &Output) -> Vec<String> {
    assert!(told.status.success(), "{}: {}", told.status, String::from_utf8_lossy(&told.stderr));
    let path = |url: &str| url.splitn(4, '/').nth(3).map(|path| format!("/{path}")).expect("a URL");
    let mut pages: Vec<String> = String::from_utf8_lossy(&told.stdout).lines().map(path).collect();
    pages.sort();
    pages
}
