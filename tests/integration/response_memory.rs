//! The memory of responses that clients do not read is what their connections are charged for.

use crate::support::client::Client;
use crate::support::frames::{HEADERS, Http2Client, SETTINGS, WINDOW_UPDATE};
use crate::support::origin::Origin;
use crate::support::running_gateway::RunningGateway;
use crate::support::wait::wait_until;
use socket2::{Domain, Socket, Type};
use std::net::SocketAddr;

const MIB: usize = 1024 * 1024;
const KIB: usize = 1024;
const MEMORY: &str = "tidegate_client_connection_memory_bytes";
/// Requests that wait for their client at once.
const REQUESTS: usize = 180;
const LARGEST_WINDOW: u32 = (1 << 31) - 1;
/// Streams of a connection.
const STREAMS: usize = 90;
/// What is not charged in proportion: spare buffers, copies of the cache, and what the allocator keeps.
const UNCHARGED: usize = 32 * MIB;

/// Has the allocator return at once what is free, and not after a second.
const RETURNS_MEMORY: [(&str, &str); 1] = [("MIMALLOC_PURGE_DELAY", "0")];

const RULES: &str = "
log: { access: off, level: warn }
clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }
cache: { memory: 16MiB, max_object: 2MiB, disk: off }
compression: { codings: [zstd] }
limits:
  memory: 1GiB
  first_byte_timeout: 1h
  header_timeout: 1h
  keep_alive_timeout: 1h
  response_write_timeout: 1h
  min_rate: 0B
quotas: { api: { limit: 1, window: { fixed: 24h } } }
routes: [{ match: \"/refused/**\", cost: { api: 1 } }, { match: \"/**\" }]
";

/// A kind of body.
#[derive(Clone, Copy, Debug)]
enum Body {
    /// From the origin, in one piece.
    Relayed,
    /// From the origin, larger than any buffer.
    RelayedLarge,
    /// From the cache, where others displace it.
    Stored,
    /// From the cache, compressed.
    Form,
    /// One that the gateway made.
    Own,
    Robots,
}

impl Body {
    fn path(self, number: usize) -> String {
        match self {
            Self::Relayed => format!("/page/{number}"),
            Self::RelayedLarge => format!("/large/{number}"),
            Self::Stored | Self::Form => format!("/stored/{number}"),
            Self::Own => format!("/refused/{number}"),
            Self::Robots => "/robots.txt".to_owned(),
        }
    }

    fn coding(self) -> &'static str {
        if let Self::Form = self { "zstd" } else { "identity" }
    }
}

/// How a client that does not read has the response sent.
#[derive(Clone, Copy, Debug)]
enum Transport {
    Http1,
    /// Over HTTP/2, with this window for each stream.
    Http2(u32),
}

const TRANSPORTS: [Transport; 4] =
    [Transport::Http1, Transport::Http2(0), Transport::Http2(1), Transport::Http2(LARGEST_WINDOW)];

fn origin() -> Origin {
    // Text that compresses to three quarters.
    let mut state = 1_u32;
    let mut letter = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b'A' + (state >> 26) as u8
    };
    let text: Vec<u8> = std::iter::repeat_with(&mut letter).take(2 * MIB).collect();
    Origin::with_script(move |request, connection| {
        let (fields, length) = match request.target.split('/').nth(1) {
            Some("page") => ("", 381 * KIB),
            Some("large") => ("", 2 * MIB),
            Some("stored") => ("Cache-Control: public, max-age=600\r\nContent-Type: text/plain\r\n", MIB),
            _ => ("Cache-Control: max-age=600\r\nContent-Type: text/plain\r\n", 400 * KIB),
        };
        connection.reply("200 OK", fields, &text[..length]);
    })
}

/// Connects a client whose system receives little that it does not read.
fn connect_reader(to: SocketAddr) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4 * 1024).expect("socket option can be set");
    socket.connect(&to.into()).expect("gateway listens");
    Client::from_stream(socket.into())
}

fn open_streams(to: SocketAddr, window: u32) -> Http2Client {
    const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
    const DEFAULT: u32 = (1 << 16) - 1;
    let mut http2 = Http2Client::over(connect_reader(to));
    http2.send(SETTINGS, 0, 0, &[&INITIAL_WINDOW_SIZE[..], &window.to_be_bytes()].concat());
    http2.send(WINDOW_UPDATE, 0, 0, &(LARGEST_WINDOW - DEFAULT).to_be_bytes());
    http2
}

/// Requests `path` on a stream.
fn request(http2: &mut Http2Client, stream: usize, path: &str, coding: &str) {
    const END_OF_REQUEST: u8 = 5;
    let literal = |text: &str| [&[u8::try_from(text.len()).expect("short text")], text.as_bytes()].concat();
    // RFC 7541 appendix A: GET and http are in the static table, and the names of path, authority and accept-encoding.
    let fields =
        [vec![0x82, 0x86, 0x04], literal(path), vec![0x01], literal("a"), vec![0x0f, 1], literal(coding)].concat();
    http2.send(HEADERS, END_OF_REQUEST, u32::try_from(2 * stream + 1).expect("few streams"), &fields);
}

/// Resident memory of the gateway, in bytes.
fn resident(gateway: &RunningGateway) -> usize {
    let path = format!("/proc/{}/status", gateway.program.process_id());
    let status = std::fs::read_to_string(path).expect("gateway runs");
    let kibibytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    kibibytes.and_then(|text| text.parse::<usize>().ok()).expect("resident memory is stated") * KIB
}

/// Has the cache store the page of `number`, and its compressed form.
fn store(gateway: &RunningGateway, body: Body, number: usize) {
    let (mut client, path) = (Client::connect(gateway.address), body.path(number));
    assert_eq!(client.get(&path, "").status, 200);
    if let Body::Form = body {
        wait_until("the form", || client.get(&path, "Accept-Encoding: zstd\r\n").field("content-encoding") == "zstd");
    }
}

/// Compares the growth with the charge, while responses wait.
fn check(body: Body, transport: Transport, origin: &Origin) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let gateway = RunningGateway::start_with_env(dir.path(), origin.address(), "127.0.0.1:0", RULES, &RETURNS_MEMORY);
    let is_stored = matches!(body, Body::Stored | Body::Form);
    // Fills the cache, and the buffers of the thread.
    (0..20).for_each(|number| store(&gateway, Body::Stored, 1000 + number));
    let before = resident(&gateway);
    let (mut readers, mut connections) = (Vec::new(), Vec::new());
    // Each form takes a moment.
    let requests = if let Body::Form = body { REQUESTS / 3 } else { REQUESTS };
    for number in 0..requests {
        if is_stored {
            store(&gateway, body, number);
        }
        let path = body.path(number);
        match transport {
            Transport::Http1 => {
                let mut reader = connect_reader(gateway.address);
                reader.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {}\r\n\r\n", body.coding()));
                readers.push(reader);
            }
            Transport::Http2(window) => {
                if number % STREAMS == 0 {
                    connections.push(open_streams(gateway.address, window));
                }
                let connection = connections.last_mut().expect("connected above");
                request(connection, number % STREAMS, &path, body.coding());
            }
        }
    }
    let charge = || gateway.metric(MEMORY) as usize;
    // The system takes pages of the gateway that have a window.
    let is_taken = matches!((body, transport), (Body::Own, Transport::Http2(LARGEST_WINDOW)));
    let least = if is_taken { requests / STREAMS } else { requests } * 4 * KIB;
    wait_until("all responses to be charged", || charge() >= least);
    let growth = || resident(&gateway).saturating_sub(before);
    println!("{body:?} over {transport:?}: {} MiB are charged; grew by {} MiB", charge() / MIB, growth() / MIB);
    // What is displaced is in memory until it is written into a file, and charged meanwhile.
    wait_until("what is occupied to be charged", || growth() <= 2 * charge() + UNCHARGED);
    println!("{body:?} over {transport:?}: {} MiB are charged; grew by {} MiB", charge() / MIB, growth() / MIB);
}

/// Over all transports.
fn check_all(body: Body) {
    let origin = origin();
    TRANSPORTS.into_iter().for_each(|transport| check(body, transport, &origin));
}

#[test]
fn memory_of_pages_that_nobody_reads_is_charged() {
    check_all(Body::Relayed);
    check_all(Body::RelayedLarge);
}

#[test]
fn memory_of_displaced_copies_that_nobody_reads_is_charged() {
    check_all(Body::Stored);
}

#[test]
fn memory_of_displaced_forms_that_nobody_reads_is_charged() {
    check_all(Body::Form);
}

#[test]
fn memory_of_own_pages_that_nobody_reads_is_charged() {
    check_all(Body::Own);
    check_all(Body::Robots);
}
