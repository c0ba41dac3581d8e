//! An HTTP/2 client that sends single frames, so that it can violate the protocol.

use super::client::Client;
use super::tls_tunnel::for_http2;
use std::net::{SocketAddr, TcpListener};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A cleartext HTTP/2 connection.
pub struct Http2Client(Client);

/// A received frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Http2Client {
    /// Connects and sends the client preface.
    pub fn connect(address: SocketAddr) -> Self {
        let mut frames = Self::over(Client::connect(for_http2(address)));
        frames.send(SETTINGS, 0, 0, &[]);
        frames
    }

    /// Sends the client preface on a connection. The settings must follow.
    pub fn over(client: Client) -> Self {
        let mut frames = Self(client);
        frames.0.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        frames
    }

    /// Accepts a connection in place of a server, and reads the client preface.
    pub fn accept(listener: &TcpListener) -> Self {
        let mut client = Client::from_stream(listener.accept().expect("a client connects").0);
        assert_eq!(client.take(24).as_deref(), Ok(&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..]));
        Self(client)
    }

    /// Sends one frame. Returns false if the gateway has closed the connection.
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        let length = u32::try_from(payload.len()).expect("payload length fits u32").to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.0.try_send([&head, payload].concat())
    }

    /// Sends a GET request for `/` on `stream`.
    pub fn get(&mut self, stream: u32) -> bool {
        // RFC 7541 appendix A: GET, http and / are in the static table. The authority is a literal.
        let fields = [&[0x82, 0x86, 0x84, 0x41, 11][..], b"example.com"].concat();
        self.send(HEADERS, END_STREAM | END_HEADERS, stream, &fields)
    }

    /// Sends a GET request for `path` on `stream`, with a user agent.
    pub fn get_path(&mut self, stream: u32, path: &str, user_agent: &str) -> bool {
        let literal = |text: &str| [&[u8::try_from(text.len()).expect("short text")], text.as_bytes()].concat();
        // The names of path, authority and user agent are in the static table; none is indexed.
        let path = [&[0x82, 0x86, 0x04][..], &literal(path)].concat();
        let fields = [path, vec![0x01], literal("example.com"), vec![0x0f, 58 - 15], literal(user_agent)];
        self.send(HEADERS, END_STREAM | END_HEADERS, stream, &fields.concat())
    }

    /// Like [`Self::get`], and accepts a content coding.
    pub fn get_with_coding(&mut self, stream: u32, coding: &str) -> bool {
        // The name is in the static table; it is not indexed.
        let coding = [&[0x0f, 1, u8::try_from(coding.len()).expect("short text")], coding.as_bytes()].concat();
        let fields = [&[0x82, 0x86, 0x84, 0x41, 11][..], b"example.com", &coding].concat();
        self.send(HEADERS, END_STREAM | END_HEADERS, stream, &fields)
    }

    /// Sends a request for another protocol on `stream` (RFC 8441).
    pub fn extended_connect(&mut self, stream: u32, protocol: &str) -> bool {
        let literal = |text: &str| [&[u8::try_from(text.len()).expect("short text")], text.as_bytes()].concat();
        // The name of the method is in the static table, that of the protocol is not.
        let method = [&[0x02][..], &literal("CONNECT"), &[0x86, 0x84]].concat();
        let fields = [method, vec![0x41], literal("example.com"), vec![0], literal(":protocol"), literal(protocol)];
        self.send(HEADERS, END_HEADERS, stream, &fields.concat())
    }

    /// Resets `stream`.
    pub fn reset(&mut self, stream: u32) -> bool {
        self.send(RST_STREAM, 0, stream, &8u32.to_be_bytes())
    }

    /// Sends a ping and waits for its echo, after which all earlier frames have been processed.
    pub fn ping(&mut self) {
        assert!(self.send(PING, 0, 0, b"8 bytes."), "gateway reads");
        self.wait_for_frame(|frame| frame.kind == PING && frame.flags == ACK);
    }

    /// Returns the next frame, or `None` at the end of the connection.
    pub fn next(&mut self) -> Option<Frame> {
        let head = self.0.take(9).ok()?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], flags: head[4], stream, payload: self.0.take(length).ok()? })
    }

    /// Reads to the first frame that matches.
    pub fn wait_for_frame(&mut self, predicate: impl Fn(&Frame) -> bool) -> Frame {
        loop {
            let frame = self.next().expect("frame before the end of the connection");
            if predicate(&frame) {
                return frame;
            }
        }
    }

    /// Reads all frames to the end of the connection.
    pub fn read_rest(&mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.next()).collect()
    }
}
