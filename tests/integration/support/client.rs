//! An HTTP/1.1 client that sends bytes unchanged and parses responses strictly.

use super::{TIMEOUT, report};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An HTTP/1.1 connection, over TCP or over a stream on it.
pub struct Client<S = TcpStream> {
    stream: S,
    buffer: Vec<u8>,
    /// Counter of complete responses, if the test gateway needs it.
    response_count: Option<Arc<AtomicU64>>,
}

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    /// Fields by lower-case name. Several lines with one name are joined by a comma.
    pub fields: BTreeMap<String, String>,
    pub body: Vec<u8>,
    pub trailers: BTreeMap<String, String>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        Self::from_stream(TcpStream::connect(address).expect("server listens"))
    }

    /// Creates a client on an open connection.
    pub fn from_stream(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(TIMEOUT)).expect("timeout can be set");
        stream.set_write_timeout(Some(TIMEOUT)).expect("timeout can be set");
        stream.set_nodelay(true).expect("socket option can be set");
        Self::over(stream)
    }

    /// Shuts down the write direction.
    pub fn finish_sending(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Closes the connection with a reset.
    pub fn reset(self) {
        let socket = socket2::Socket::from(self.stream);
        socket.set_linger(Some(std::time::Duration::ZERO)).expect("socket option can be set");
    }
}

impl<S: Read + Write> Client<S> {
    /// Creates a client on an open stream with timeouts.
    pub fn over(stream: S) -> Self {
        Self { stream, buffer: Vec::new(), response_count: None }
    }

    /// Returns the stream.
    pub fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Counts complete responses in `counter`.
    pub fn with_response_counter(self, counter: &Arc<AtomicU64>) -> Self {
        Self { response_count: Some(Arc::clone(counter)), ..self }
    }

    /// Sends bytes unchanged.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        report::record_sent(bytes.as_ref());
        self.stream.write_all(bytes.as_ref()).expect("gateway reads");
        self
    }

    /// Sends bytes to a gateway that may have closed the connection. Returns false if it has.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        report::record_sent(bytes.as_ref());
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Sends a GET request for `path` with `fields`, each ended by CRLF, and reads the response.
    pub fn get(&mut self, path: &str, fields: &str) -> Response {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: example.com\r\n{fields}\r\n"));
        self.read_response()
    }

    /// Reads the response to any method except HEAD.
    pub fn read_response(&mut self) -> Response {
        self.response_to("GET")
    }

    /// Reads the response to `method`.
    pub fn response_to(&mut self, method: &str) -> Response {
        let mut response = self.head();
        while matches!(response.status, 100 | 102..200) {
            response = self.head();
        }
        let has_no_body = method == "HEAD" || matches!(response.status, 204 | 304);
        if has_no_body {
            return self.complete_response(response);
        }
        if response.fields.get("transfer-encoding").is_some_and(|coding| coding == "chunked") {
            self.read_chunked(&mut response);
        } else if let Some(length) = response.fields.get("content-length") {
            let length = length.parse().expect("a length");
            response.body =
                self.take(length).unwrap_or_else(|received| panic!("truncated after {received} of {length} bytes"));
        } else {
            response.body = self.read_rest();
        }
        self.complete_response(response)
    }

    /// Reads the response to `method`, which must have a length. Returns `None` if the connection ends before the
    /// response.
    pub fn response_or_eof(&mut self, method: &str) -> Option<Response> {
        let mut response = self.head_or_eof()?;
        if method != "HEAD" && !matches!(response.status, 204 | 304) {
            response.body = self.take(response.field("content-length").parse().expect("a length")).ok()?;
        }
        Some(self.complete_response(response))
    }

    fn complete_response(&self, response: Response) -> Response {
        report::record_received(&response);
        if let Some(counter) = &self.response_count {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        response
    }

    /// Reads one response head, including informational ones.
    pub fn head(&mut self) -> Response {
        self.head_or_eof().expect("response before the end of the connection")
    }

    fn head_or_eof(&mut self) -> Option<Response> {
        let head = String::from_utf8(self.read_through(b"\r\n\r\n")?).expect("head is UTF-8");
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("valid status line");
        Some(Response { status, fields: parse_fields(lines), body: Vec::new(), trailers: BTreeMap::new() })
    }

    /// Reads to the end of the connection.
    pub fn read_rest(&mut self) -> Vec<u8> {
        while self.fill() {}
        std::mem::take(&mut self.buffer)
    }

    /// Reads `length` bytes. Returns the number of bytes read if the connection ends before.
    pub fn take(&mut self, length: usize) -> Result<Vec<u8>, usize> {
        while self.buffer.len() < length {
            if !self.fill() {
                return Err(self.buffer.len());
            }
        }
        Ok(self.buffer.drain(..length).collect())
    }

    /// Returns true if the gateway has closed the connection and no bytes remain.
    pub fn is_closed(&mut self) -> bool {
        self.buffer.is_empty() && !self.fill()
    }

    fn read_chunked(&mut self, response: &mut Response) {
        loop {
            let line = self.read_through(b"\r\n").expect("chunk size line");
            let line = String::from_utf8(line).expect("chunk size is UTF-8");
            let size =
                usize::from_str_radix(line.trim().split(';').next().unwrap_or(""), 16).expect("hexadecimal chunk size");
            if size == 0 {
                break;
            }
            response.body.extend(
                self.take(size).unwrap_or_else(|received| panic!("truncated after {received} bytes of a chunk")),
            );
            assert_eq!(self.take(2).expect("end of the chunk"), b"\r\n");
        }
        let mut lines = Vec::new();
        loop {
            let line = self.read_through(b"\r\n").expect("end of the trailers");
            if line == b"\r\n" {
                break;
            }
            lines.push(String::from_utf8(line).expect("trailers are UTF-8"));
        }
        response.trailers = parse_fields(lines.iter().map(String::as_str));
    }

    fn read_through(&mut self, delimiter: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.windows(delimiter.len()).position(|window| window == delimiter) {
                return Some(self.buffer.drain(..at + delimiter.len()).collect());
            }
            if !self.fill() {
                return None;
            }
        }
    }

    fn fill(&mut self) -> bool {
        let mut block = [0; 16 * 1024];
        match self.stream.read(&mut block) {
            Ok(0) => false,
            Ok(length) => {
                self.buffer.extend_from_slice(&block[..length]);
                true
            }
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => false,
            Err(error) => panic!("no response in time: {error}"),
        }
    }
}

impl Response {
    /// Returns a field, or an empty string.
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

/// Collects header lines in a map. Lines with one name are joined.
pub fn parse_fields<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeMap<String, String> {
    let mut fields: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        fields
            .entry(name.to_ascii_lowercase())
            .and_modify(|joined| *joined += &format!(", {}", value.trim()))
            .or_insert_with(|| value.trim().to_owned());
    }
    fields
}
