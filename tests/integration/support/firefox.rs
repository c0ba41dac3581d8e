//! Headless Firefox, controlled by the Marionette protocol: JSON arrays, each preceded by its length and a colon.

use super::TIMEOUT;
use super::wait::wait_until;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// Settings without which a new profile asks servers of Mozilla, or asks for HTTPS first.
const SETTINGS: &[(&str, &str)] = &[
    ("marionette.port", "0"),
    ("app.normandy.enabled", "false"),
    ("app.update.disabledForTesting", "true"),
    ("browser.region.update.enabled", "false"),
    ("browser.safebrowsing.update.enabled", "false"),
    ("browser.search.update", "false"),
    ("browser.startup.homepage_override.mstone", "\"ignore\""),
    ("browser.startup.page", "0"),
    ("datareporting.policy.dataSubmissionEnabled", "false"),
    ("dom.security.https_first", "false"),
    ("dom.security.https_first_pbm", "false"),
    ("extensions.systemAddon.update.enabled", "false"),
    ("extensions.update.enabled", "false"),
    ("media.gmp-manager.updateEnabled", "false"),
    ("network.captive-portal-service.enabled", "false"),
    ("network.connectivity-service.enabled", "false"),
    ("services.settings.server", "\"data:,\""),
];

/// A browser with one window and a new profile.
pub struct Firefox {
    child: Child,
    connection: BufReader<TcpStream>,
    last_id: u64,
    _profile: tempfile::TempDir,
}

impl Firefox {
    /// Starts the installed Firefox with further settings. Panics if there is none.
    pub fn start_with(settings: &[(&str, &str)]) -> Self {
        let profile = tempfile::tempdir().expect("temporary directory");
        let mut lines = String::new();
        for (name, value) in SETTINGS.iter().chain(settings) {
            writeln!(lines, "user_pref(\"{name}\", {value});").expect("a string takes it");
        }
        std::fs::write(profile.path().join("user.js"), lines).expect("profile is writable");
        let child = Command::new("firefox-esr")
            .args(["--headless", "--marionette", "--no-remote", "--profile"])
            .arg(profile.path())
            .env("HOME", profile.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("firefox-esr is not installed; run ./test");
        let port_file = profile.path().join("MarionetteActivePort");
        let port = || std::fs::read_to_string(&port_file).ok()?.trim().parse::<u16>().ok();
        wait_until("Firefox to listen for commands", || port().is_some());
        let stream = TcpStream::connect(("127.0.0.1", port().expect("just read"))).expect("Firefox listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("socket is open");
        let mut firefox = Self { child, connection: BufReader::new(stream), last_id: 0, _profile: profile };
        firefox.receive();
        let timeouts = json!({ "implicit": TIMEOUT.as_millis(), "pageLoad": TIMEOUT.as_millis() });
        firefox
            .command("WebDriver:NewSession", &json!({ "capabilities": { "alwaysMatch": { "timeouts": timeouts } } }));
        firefox
    }

    /// Opens a page.
    pub fn open_url(&mut self, url: &str) {
        self.command("WebDriver:Navigate", &json!({ "url": url }));
    }

    /// Waits for a link on the page, follows the first one, and waits for its page.
    pub fn follow_link(&mut self) {
        let found = self.command("WebDriver:FindElement", &json!({ "using": "css selector", "value": "a" }));
        let link = found["value"].as_object().and_then(|element| element.values().next()).cloned();
        self.command("WebDriver:ElementClick", &json!({ "id": link.expect("an element has an id") }));
    }

    /// Sends a command and returns its result. Panics if Firefox reports an error.
    fn command(&mut self, name: &str, parameters: &Value) -> Value {
        self.last_id += 1;
        let message = json!([0, self.last_id, name, parameters]).to_string();
        let framed = format!("{}:{message}", message.len());
        self.connection.get_mut().write_all(framed.as_bytes()).expect("Firefox runs");
        let mut answer = self.receive();
        assert!(answer[1] == self.last_id && answer[2].is_null(), "{name} {parameters}: {answer}");
        answer[3].take()
    }

    fn receive(&mut self) -> Value {
        let mut length = Vec::new();
        self.connection.read_until(b':', &mut length).expect("Firefox answers in time");
        let length = std::str::from_utf8(&length).ok().and_then(|text| text.strip_suffix(':')?.parse().ok());
        let mut message = vec![0; length.expect("a message begins with its length")];
        self.connection.read_exact(&mut message).expect("Firefox runs");
        serde_json::from_slice(&message).expect("message is JSON")
    }
}

impl Drop for Firefox {
    fn drop(&mut self) {
        // Its child processes end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
