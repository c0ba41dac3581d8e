//! A client that speaks HTTP/2 frame by frame, so that it can misbehave.

use super::client::Client;
use std::net::SocketAddr;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// One cleartext HTTP/2 connection.
pub struct Frames(Client);

/// One frame as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frames {
    /// Connects and says what an HTTP/2 client says first.
    pub fn connect(address: SocketAddr) -> Self {
        let mut frames = Self(Client::connect(address));
        frames.0.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        frames.send(SETTINGS, 0, 0, &[]);
        frames
    }

    /// Sends one frame; false when the gate no longer reads.
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        let length = u32::try_from(payload.len()).expect("a small payload").to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.0.try_send([&head, payload].concat())
    }

    /// Asks for `/` on `stream`.
    pub fn get(&mut self, stream: u32) -> bool {
        // RFC 7541 appendix A: GET, http and / are in the static table; the authority is a literal.
        let fields = [&[0x82, 0x86, 0x84, 0x41, 11][..], b"example.com"].concat();
        self.send(HEADERS, END_STREAM | END_HEADERS, stream, &fields)
    }

    /// Takes back the request on `stream`.
    pub fn reset(&mut self, stream: u32) -> bool {
        self.send(RST_STREAM, 0, stream, &8u32.to_be_bytes())
    }

    /// Sends a ping and waits for its echo: all that was sent before has been seen.
    pub fn ping(&mut self) {
        assert!(self.send(PING, 0, 0, b"anybody?"), "the gate reads");
        self.until(|frame| frame.kind == PING && frame.flags == ACK);
    }

    /// The next frame, or `None` at the end of the connection.
    pub fn next(&mut self) -> Option<Frame> {
        let head = self.0.take(9).ok()?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], flags: head[4], stream, payload: self.0.take(length).ok()? })
    }

    /// Reads up to the first frame that fits.
    pub fn until(&mut self, fits: impl Fn(&Frame) -> bool) -> Frame {
        loop {
            let frame = self.next().expect("the frame that is waited for, not the end of the connection");
            if fits(&frame) {
                return frame;
            }
        }
    }

    /// All that comes until the end of the connection.
    pub fn rest(&mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.next()).collect()
    }
}
