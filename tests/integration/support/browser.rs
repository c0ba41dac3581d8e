//! Headless Chromium, controlled over two pipes by the DevTools protocol.

use super::TIMEOUT;
use super::wait::Deadline;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// A browser with one open page.
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    last_id: u64,
    /// Events received while waiting for a response.
    events: Vec<Value>,
    _home: tempfile::TempDir,
}

/// Size and type of a screen.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    pub width: u32,
    pub scheme: &'static str,
}

/// Result of opening a page.
#[derive(Debug)]
pub struct OpenedPage {
    /// Messages of the page's console and of the browser's log.
    pub messages: Vec<String>,
    /// URLs of all requests.
    pub requests: Vec<String>,
}

impl Browser {
    /// Starts the installed Chromium. Panics if there is none.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Like [`Self::start`], with more options.
    pub fn start_with(options: &[&str]) -> Self {
        let program = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|program| {
            let status = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        });
        Self::start_program(program.expect("chromium is not installed; run ./test"), options)
    }

    fn start_program(program: &str, options: &[&str]) -> Self {
        let home = tempfile::tempdir().expect("temporary directory");
        // Chromium reads commands from descriptor 3 and writes messages to descriptor 4. Only local files are opened,
        // so the sandbox, which does not work as root, is not needed.
        let script = "exec \"$0\" --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
                      --disable-background-networking --disable-component-update --hide-scrollbars \
                      --remote-debugging-pipe --user-data-dir=\"$1\" \"${@:2}\" about:blank 3<&0 4>&1 0</dev/null 1>&2";
        let mut child = Command::new("bash")
            .args(["-c", script, program])
            .arg(home.path())
            .args(options)
            .env("HOME", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("shell is installed");
        let commands = child.stdin.take().expect("pipe is open");
        let output = BufReader::new(child.stdout.take().expect("pipe is open"));
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for message in output.split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("message is JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser =
            Self { child, commands, messages: receiver, session: None, last_id: 0, events: Vec::new(), _home: home };
        let target = browser.send_command("Target.createTarget", &json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = browser.send_command("Target.attachToTarget", &json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Network", "Runtime", "Log"] {
            browser.send_command(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Opens a local file.
    pub fn open(&mut self, file: &Path, screen: Screen) -> OpenedPage {
        self.open_url(&format!("file://{}", file.display()), screen)
    }

    /// Opens a page.
    pub fn open_url(&mut self, url: &str, screen: Screen) -> OpenedPage {
        let size =
            json!({ "width": screen.width, "height": 800, "deviceScaleFactor": 1, "mobile": screen.width < 600 });
        self.send_command("Emulation.setDeviceMetricsOverride", &size);
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": screen.scheme }] });
        self.send_command("Emulation.setEmulatedMedia", &scheme);
        self.events.clear();
        self.send_command("Page.navigate", &json!({ "url": url }));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.messages.recv_timeout(TIMEOUT).expect("page did not load in time");
            self.events.push(event);
        }
        self.activity()
    }

    /// Returns what happened since the page was opened.
    pub fn activity(&self) -> OpenedPage {
        let events_of = |method: &'static str| self.events.iter().filter(move |event| event["method"] == method);
        let logged_events =
            ["Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Network.loadingFailed"];
        OpenedPage {
            messages: logged_events.into_iter().flat_map(events_of).map(|event| event["params"].to_string()).collect(),
            requests: events_of("Network.requestWillBeSent")
                .map(|event| event["params"]["request"]["url"].as_str().unwrap_or_default().to_owned())
                .collect(),
        }
    }

    /// Waits until an expression on the page is true. The page may load another one meanwhile.
    pub fn wait_until(&mut self, expression: &str) {
        let check = format!(
            "new Promise((resolve) => {{ const check = () => (({expression}) ? resolve(true) : setTimeout(check, 20)); \
             check(); }})"
        );
        let params = json!({ "expression": check, "returnByValue": true, "awaitPromise": true });
        loop {
            let response = self.try_command("Runtime.evaluate", &params);
            if response["error"]["message"] == "Inspected target navigated or closed" {
                continue;
            }
            let result = &response["result"];
            assert!(response["error"].is_null() && result["exceptionDetails"].is_null(), "{expression}: {response}");
            return;
        }
    }

    /// Evaluates an expression on the page; waits for a promise.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let response = self.send_command("Runtime.evaluate", &params);
        assert!(response["exceptionDetails"].is_null(), "{expression}: {response}");
        response["result"]["value"].clone()
    }

    /// Returns a screenshot of the whole page, in base64.
    pub fn screenshot(&mut self) -> String {
        let params = json!({ "captureBeyondViewport": true });
        self.send_command("Page.captureScreenshot", &params)["data"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns the page printed on A4 as PDF, in base64.
    pub fn print_to_pdf(&mut self) -> String {
        let params = json!({ "paperWidth": 8.27, "paperHeight": 11.69, "printBackground": false });
        self.send_command("Page.printToPDF", &params)["data"].as_str().unwrap_or_default().to_owned()
    }

    fn send_command(&mut self, method: &str, params: &Value) -> Value {
        let response = self.try_command(method, params);
        assert!(response["error"].is_null(), "{method}: {response}");
        response["result"].clone()
    }

    /// Sends a command and returns its response, which has a `result` or an `error`.
    fn try_command(&mut self, method: &str, params: &Value) -> Value {
        self.last_id += 1;
        let mut command = json!({ "id": self.last_id, "method": method, "params": params });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).expect("browser is running");
        // One deadline for all messages: events of a page that is alive come without end.
        let deadline = Deadline::from_now();
        loop {
            let message = self.messages.recv_timeout(deadline.left());
            let message = message.unwrap_or_else(|_| panic!("no response to {method} {params} in time"));
            if message["id"] == self.last_id {
                return message;
            }
            self.events.push(message);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
