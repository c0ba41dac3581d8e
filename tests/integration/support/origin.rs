//! A scripted origin that controls every byte and records the requests received.

use super::TIMEOUT;
use super::client::parse_fields;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Script of the origin's response to a request.
pub type Script = dyn Fn(&ReceivedRequest, &mut OriginConnection) + Send + Sync;

/// A listening origin.
pub struct Origin {
    address: SocketAddr,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    connections: Arc<Mutex<usize>>,
}

/// A request as the origin received it.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub method: String,
    pub target: String,
    pub fields: BTreeMap<String, String>,
    pub head: String,
}

/// The origin's side of a connection.
pub struct OriginConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
    is_closed: bool,
}

impl ReceivedRequest {
    /// Returns a field, or an empty string.
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

impl Origin {
    /// Starts an origin that responds to all requests with a small page.
    pub fn plain() -> Self {
        Self::with_script(|_, connection| connection.reply("200 OK", "", b"hello"))
    }

    /// Starts an origin that answers preflights, and all other requests with a small page.
    pub fn with_cors() -> Self {
        const ANSWER: &str = "Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Methods: GET\r\n";
        Self::with_script(|request, connection| match request.method.as_str() {
            "OPTIONS" => connection.reply("200 OK", ANSWER, b""),
            _ => connection.reply("200 OK", "", b"hello"),
        })
    }

    /// Starts an origin that runs `script` for each request, before the request body is read.
    pub fn with_script(script: impl Fn(&ReceivedRequest, &mut OriginConnection) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("socket is bound");
        let (received, connections) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let origin = Self { address, received: Arc::clone(&received), connections: Arc::clone(&connections) };
        let script: Arc<Script> = Arc::new(script);
        // The thread ends with the process. Tests are short, and no other process has the port.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                *connections.lock() += 1;
                let (script, received) = (Arc::clone(&script), Arc::clone(&received));
                std::thread::spawn(move || OriginConnection::new(stream).serve(&*script, &received));
            }
        });
        origin
    }

    /// Starts an origin that responds with a small page, at `held` only after the test notifies it. Returns the origin,
    /// the signal that it received that request, and the control that releases the response.
    pub fn with_held_responses(held: &'static str) -> (Self, SignalReceiver, SignalSender) {
        let (arrival_sender, arrival) = signal();
        let (release, release_receiver) = signal();
        let origin = Self::with_script(move |request, connection| {
            if request.target == held {
                arrival_sender.notify();
                release_receiver.wait();
            }
            connection.reply("200 OK", "", b"hello");
        });
        (origin, arrival, release)
    }

    /// Returns an address for a server that is started later. No other test gets its port meanwhile: a socket that does
    /// not listen keeps it, and leaves it to a server, which has the same option.
    pub fn free_address() -> SocketAddr {
        bind_without_listening(true)
    }

    /// Returns an address without a listener. No other test gets its port: a socket that does not listen keeps it.
    pub fn unreachable() -> SocketAddr {
        bind_without_listening(false)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns all requests received.
    pub fn received_requests(&self) -> Vec<ReceivedRequest> {
        self.received.lock().clone()
    }

    /// Returns the last request received.
    pub fn last_request(&self) -> ReceivedRequest {
        self.received_requests().pop().expect("origin received a request")
    }

    /// Returns the number of accepted connections.
    pub fn connections(&self) -> usize {
        *self.connections.lock()
    }
}

impl OriginConnection {
    fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("socket option can be set");
        Self { stream, buffer: Vec::new(), is_closed: false }
    }

    fn serve(mut self, script: &Script, received: &Mutex<Vec<ReceivedRequest>>) {
        while !self.is_closed {
            let Some(head) = self.read_through(b"\r\n\r\n") else { return };
            let head = String::from_utf8_lossy(&head).into_owned();
            let mut parts = head.split(' ');
            let request = ReceivedRequest {
                method: parts.next().unwrap_or("").to_owned(),
                target: parts.next().unwrap_or("").to_owned(),
                fields: parse_fields(head.lines().skip(1)),
                head: head.clone(),
            };
            received.lock().push(request.clone());
            script(&request, &mut self);
        }
    }

    /// Sends bytes unchanged. Returns false if the gateway has closed the connection.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Sends a complete response.
    pub fn reply(&mut self, status: &str, fields: &str, body: &[u8]) {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{fields}\r\n", body.len());
        self.send([head.as_bytes(), body].concat());
    }

    /// Reads the request body, with `Content-Length` or chunked.
    pub fn read_body(&mut self, request: &ReceivedRequest) -> Vec<u8> {
        if let Some(length) = request.fields.get("content-length") {
            return self.take(length.parse().expect("a length"));
        }
        let mut body = Vec::new();
        if !request.fields.contains_key("transfer-encoding") {
            return body;
        }
        loop {
            let Some(line) = self.read_through(b"\r\n") else { return body };
            let line = String::from_utf8_lossy(&line).into_owned();
            let size = usize::from_str_radix(line.trim(), 16).expect("hexadecimal chunk size");
            if size == 0 {
                let trailers = self.read_through(b"\r\n").unwrap_or_default();
                if trailers != b"\r\n" {
                    self.read_through(b"\r\n");
                }
                return body;
            }
            body.extend(self.take(size));
            self.take(2);
        }
    }

    /// Reads `length` bytes, or fewer if the connection ends.
    pub fn take(&mut self, length: usize) -> Vec<u8> {
        while self.buffer.len() < length && self.fill() {}
        self.buffer.drain(..length.min(self.buffer.len())).collect()
    }

    /// Waits until the gateway closes the connection. Returns true if it did.
    pub fn expect_eof(&mut self) -> bool {
        while self.fill() {}
        self.is_closed = true;
        true
    }

    /// Closes the connection.
    pub fn close(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        self.is_closed = true;
    }

    /// Resets the connection.
    pub fn reset(&mut self) {
        // With a linger of zero, the following close sends a reset. Systems without the option close normally.
        let _ = socket2::SockRef::from(&self.stream).set_linger(Some(std::time::Duration::ZERO));
        self.is_closed = true;
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
            Ok(length @ 1..) => {
                self.buffer.extend_from_slice(&block[..length]);
                true
            }
            _ => false,
        }
    }
}

/// Creates a signal between a test and its origin: a sender and a receiver.
pub fn signal() -> (SignalSender, SignalReceiver) {
    let (sender, receiver) = channel();
    (SignalSender(sender), SignalReceiver(Arc::new(Mutex::new(receiver))))
}

/// Sender of a signal.
#[derive(Clone)]
pub struct SignalSender(Sender<()>);

/// Receiver of a signal.
#[derive(Clone)]
pub struct SignalReceiver(Arc<Mutex<Receiver<()>>>);

impl SignalSender {
    pub fn notify(&self) {
        let _ = self.0.send(());
    }
}

impl SignalReceiver {
    /// Returns true if the signal was already sent.
    pub fn is_notified(&self) -> bool {
        self.0.lock().try_recv().is_ok()
    }

    pub fn wait(&self) {
        self.0.lock().recv_timeout(TIMEOUT).expect("no signal in time");
    }
}

/// Binds a socket for the rest of the process, and returns its address. Servers may listen at it with `is_shared`.
fn bind_without_listening(is_shared: bool) -> SocketAddr {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_reuse_address(is_shared).expect("socket option can be set");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
    let address = socket.local_addr().ok().and_then(|address| address.as_socket()).expect("a bound socket");
    std::mem::forget(socket);
    address
}
