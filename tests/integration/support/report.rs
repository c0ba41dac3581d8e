//! Report printed for a failed test: the last request and response of its thread, and the ends of the logs of the
//! gateways that the thread started.

use super::client::Response;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Once;
use tracing_subscriber::fmt::MakeWriter;

/// Number of printed lines of each log.
const MAX_PRINTED_LINES: usize = 20;
/// Number of printed bytes of a request or body.
const MAX_PRINTED_BYTES: usize = 2000;
/// Number of buffered lines of the gateways' own logs, for all tests of this process.
const MAX_BUFFERED_LINES: usize = 200;

thread_local! {
    static TRACE: RefCell<ThreadTrace> = RefCell::default();
}

/// Traffic of one thread, and the gateways that it started.
#[derive(Default)]
struct ThreadTrace {
    request: Vec<u8>,
    response: Option<Response>,
    access_logs: Vec<PathBuf>,
}

static GATEWAY_LOG: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// Records bytes that this thread sent to a gateway.
pub fn record_sent(bytes: &[u8]) {
    install_panic_hook();
    TRACE.with_borrow_mut(|trace| {
        if trace.response.take().is_some() {
            trace.request.clear();
        }
        let space = MAX_PRINTED_BYTES.saturating_sub(trace.request.len());
        trace.request.extend_from_slice(&bytes[..bytes.len().min(space)]);
    });
}

/// Records a response that this thread received.
pub fn record_received(response: &Response) {
    TRACE.with_borrow_mut(|trace| trace.response = Some(response.clone()));
}

/// Records the access log of a gateway that this thread started.
pub fn record_access_log(path: &Path) {
    install_panic_hook();
    TRACE.with_borrow_mut(|trace| trace.access_logs.push(path.to_owned()));
}

/// Installs a panic hook that prints the thread's trace.
fn install_panic_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_thread_names(true).with_writer(LogBuffer);
        // Another test of this process may have set a subscriber. Then the gateways' own logs are not in the report.
        let _ = subscriber.with_max_level(tracing::Level::WARN).try_init();
        let next = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            next(info);
            TRACE.with_borrow(|trace| eprint!("{}", trace.render_trace()));
        }));
    });
}

impl ThreadTrace {
    fn render_trace(&self) -> String {
        let mut text = String::new();
        if !self.request.is_empty() {
            let _ = writeln!(text, "--- last request\n{}", String::from_utf8_lossy(&self.request).trim_end());
        }
        if let Some(Response { status, fields, body, trailers }) = &self.response {
            let _ = writeln!(text, "--- last response\n{status}");
            for (name, value) in fields.iter().chain(trailers) {
                let _ = writeln!(text, "{name}: {value}");
            }
            let excerpt = &body[..body.len().min(MAX_PRINTED_BYTES)];
            let _ = writeln!(text, "\n{}", String::from_utf8_lossy(excerpt));
        }
        for path in &self.access_logs {
            let log = std::fs::read_to_string(path).unwrap_or_default();
            let _ = writeln!(text, "--- end of {}", path.display());
            last_lines(log.lines()).for_each(|line| _ = writeln!(text, "{line}"));
        }
        let gateway_log = GATEWAY_LOG.lock();
        if !gateway_log.is_empty() {
            let _ = writeln!(text, "--- end of the logs of all gateways of this process");
            last_lines(gateway_log.iter()).for_each(|line| _ = writeln!(text, "{}", line.trim_end()));
        }
        text
    }
}

fn last_lines<T>(lines: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let mut lines: VecDeque<T> = lines.collect();
    lines.drain(..lines.len().saturating_sub(MAX_PRINTED_LINES));
    lines.into_iter()
}

/// Buffers log lines in memory.
struct LogBuffer;

impl io::Write for LogBuffer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut buffer = GATEWAY_LOG.lock();
        if buffer.len() == MAX_BUFFERED_LINES {
            buffer.pop_front();
        }
        buffer.push_back(String::from_utf8_lossy(line).into_owned());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LogBuffer {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}

#[test]
fn a_failed_check_prints_request_response_and_logs() {
    let gateway = super::gateway::TestGateway::with_rules(super::origin::Origin::plain().address(), "");
    gateway.connect().get("/shown-in-the-report", "X-Asked: yes\r\n");
    super::wait::wait_until("the log line of the request", || {
        TRACE.with_borrow(ThreadTrace::render_trace).contains("\"path\":\"/shown-in-the-report\"")
    });
    let report = TRACE.with_borrow(ThreadTrace::render_trace);
    for expected in
        ["--- last request\nGET /shown-in-the-report HTTP/1.1", "X-Asked: yes", "--- last response\n200", "hello"]
    {
        assert!(report.contains(expected), "{expected:?} is missing in:\n{report}");
    }
}
