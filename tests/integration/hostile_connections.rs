//! Connections that hold memory, together and beside people's.

use crate::support::client::Client;
use crate::support::frames::{HEADERS, Http2Client, SETTINGS, WINDOW_UPDATE};
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::running_gateway::RunningGateway;
use crate::support::wait::wait_until;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};
use std::net::SocketAddr;
use std::time::Duration;
use tidegate_engine::clock::Clock;

const MIB: usize = 1024 * 1024;
const CONNECTIONS: &str = "tidegate_client_connections";
const MEMORY: &str = "tidegate_client_connection_memory_bytes";
const QUEUE_LENGTH: &str = "tidegate_queue_length{scope=\"default\"}";
const SHED: &str = "tidegate_client_connections_shed_total";

/// Nothing times out, so that all connections are open at once on a slow machine, too.
const RULES: &str = "
log: { access: off, level: warn }
clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }
limits:
  memory: 512MiB
  max_connections: 12000
  first_byte_timeout: 1h
  header_timeout: 1h
  keep_alive_timeout: 1h
  request_body_timeout: 1h
  response_write_timeout: 1h
  min_rate: 0B
quotas: { api: { limit: 1000000, window: { fixed: 24h } } }
scopes: { default: { concurrency: 64 } }
routes: [{ match: \"/upload\", stream: true }, { match: \"/**\", cost: { api: 1 } }]
";

/// Starts an origin whose `/` and `/large` are larger than the system's buffers of a small reader.
fn origin() -> Origin {
    let page = vec![b'x'; MIB / 4];
    Origin::with_script(move |request, connection| match request.target.as_str() {
        "/page" => connection.reply("200 OK", "", b"page"),
        _ => connection.reply("200 OK", "", &page),
    })
}

/// Connects a client whose system receives little that it does not read.
fn connect_reader(to: SocketAddr) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4 * 1024).expect("socket option can be set");
    socket.connect(&to.into()).expect("gateway listens");
    Client::from_stream(socket.into())
}

/// Address of a client, one of many.
fn forwarded_for(client: usize) -> String {
    format!("10.{}.{}.1", client / 256, client % 256)
}

/// Connects over HTTP/2 with the largest windows, requests `/` several times, and reads nothing.
fn open_windows(to: SocketAddr, client: usize) -> Http2Client {
    const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
    const LARGEST: u32 = (1 << 31) - 1;
    const DEFAULT: u32 = (1 << 16) - 1;
    const END_OF_REQUEST: u8 = 5;
    let mut http2 = Http2Client::over(connect_reader(to));
    http2.send(SETTINGS, 0, 0, &[&INITIAL_WINDOW_SIZE[..], &LARGEST.to_be_bytes()].concat());
    http2.send(WINDOW_UPDATE, 0, 0, &(LARGEST - DEFAULT).to_be_bytes());
    let address = forwarded_for(client);
    // RFC 7541 appendix A: GET, http and / are in the static table. The other fields are literals.
    let mut fields = [&[0x82, 0x86, 0x84, 0x41, 11][..], b"example.com", &[0, 15], b"x-forwarded-for"].concat();
    fields.push(u8::try_from(address.len()).expect("short address"));
    fields.extend_from_slice(address.as_bytes());
    for stream in [1, 3, 5, 7] {
        http2.send(HEADERS, END_OF_REQUEST, stream, &fields);
    }
    http2
}

/// Resident memory of the gateway, in bytes.
fn resident(gateway: &RunningGateway) -> usize {
    let path = format!("/proc/{}/status", gateway.program.process_id());
    let status = std::fs::read_to_string(path).expect("gateway runs");
    let kibibytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    kibibytes.and_then(|text| text.parse::<usize>().ok()).expect("resident memory is stated") * 1024
}

/// Returns a fifth of ten thousand connections, or of what the limit of open files allows beside the other tests. Raises
/// the soft limit. Fails below a tenth.
fn connections_of_each_kind() -> usize {
    const OF_OTHER_TESTS: u64 = 2000;
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files }).expect("limit can be raised");
    let available = files.maximum.unwrap_or(u64::MAX).saturating_sub(OF_OTHER_TESTS) / 5;
    assert!(available >= 200, "the limit of open files is too low: {files:?}");
    available.min(2000) as usize
}

/// Requests a page as many people. Prints the longest time.
fn probe(gateway: &RunningGateway, people: usize) {
    let (clock, mut longest) = (Clock::system(), Duration::ZERO);
    for person in 0..people {
        let started_at = clock.monotonic_now();
        let mut client = Client::connect(gateway.address);
        let response = client.get("/page", &format!("X-Forwarded-For: 192.0.2.{person}\r\n"));
        assert_eq!(response.status, 200, "person {person}");
        longest = longest.max(clock.monotonic_now().saturating_duration_since(started_at));
    }
    println!("{people} people were served, the last after {longest:?}; resident: {} MiB", resident(gateway) / MIB);
}

#[test]
fn ten_thousand_hostile_connections_change_nothing_for_people() {
    const LIMIT: usize = 512 * MIB;
    let of_each_kind = connections_of_each_kind();
    let dir = tempfile::tempdir().expect("temporary directory");
    let origin = origin();
    let gateway = RunningGateway::start(dir.path(), origin.address(), RULES);
    let idle = resident(&gateway);
    probe(&gateway, 50);

    let connect = |_: usize| Client::connect(gateway.address);
    let silent: Vec<Client> = (0..of_each_kind).map(connect).collect();
    let heads = (0..of_each_kind).map(connect).map(|mut client| {
        client.send(format!("GET /page HTTP/1.1\r\nHost: a\r\nCookie: {}", "a".repeat(8000)));
        client
    });
    let heads: Vec<Client> = heads.collect();
    let bodies = (0..of_each_kind).map(|number| {
        let (mut client, address) = (connect(number), forwarded_for(number));
        let head =
            format!("POST /page HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {address}\r\nContent-Length: 1000000\r\n");
        client.send(format!("{head}\r\n{}", "b".repeat(20_000)));
        client
    });
    let bodies: Vec<Client> = bodies.collect();
    probe(&gateway, 50);
    let readers = (0..of_each_kind).map(|number| {
        let (mut client, address) = (connect_reader(gateway.address), forwarded_for(number));
        client.send(format!("GET /large HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {address}\r\n\r\n"));
        client
    });
    let readers: Vec<Client> = readers.collect();
    let windows: Vec<Http2Client> =
        (0..of_each_kind).map(|number| open_windows(gateway.address, of_each_kind + number)).collect();

    wait_until("all connections to be open", || gateway.metric(CONNECTIONS) >= (5 * of_each_kind) as f64);
    wait_until("their requests to be answered", || {
        gateway.metric("tidegate_origin_inflight{scope=\"default\"}") + gateway.metric(QUEUE_LENGTH) == 0.0
    });
    probe(&gateway, 50);
    let (memory, resident) = (gateway.metric(MEMORY), resident(&gateway));
    println!("{} MiB are charged; resident: {} MiB, before: {} MiB", memory as usize / MIB, resident / MIB, idle / MIB);
    assert!(memory <= LIMIT as f64, "{memory} bytes are charged");
    assert!(resident - idle <= LIMIT, "resident: {resident} bytes, before: {idle}");
    assert_eq!(gateway.metric(SHED), 0.0, "the limit is not reached");

    drop((silent, heads, bodies, readers, windows));
    wait_until("memory to be free", || gateway.metric(MEMORY) < 0.1 * MIB as f64);
    assert_eq!(gateway.metric("tidegate_quota_reserved{quota=\"api\"}"), 0.0);
    probe(&gateway, 50);
}

#[test]
fn buffer_for_a_part_of_the_http2_preface_is_charged() {
    let origin = origin();
    let gateway = TestGateway::with_rules(origin.address(), "limits: { first_byte_timeout: 1h, header_timeout: 1h }");
    let _silent = gateway.connect();
    wait_until("the silent client to be charged", || gateway.metric(MEMORY) > 0.0);
    let silent = gateway.metric(MEMORY);
    let mut client = gateway.connect();
    client.send("P");
    wait_until("the buffer to be charged, too", || gateway.metric(MEMORY) >= 2.0 * silent + 8192.0);
}

#[test]
fn connections_that_occupy_most_memory_are_closed_first() {
    const LIMIT: f64 = 16.0 * MIB as f64;
    let origin = origin();
    let rules =
        "workers: 1\nlimits: { memory: 16MiB, max_header_size: 1MiB, header_timeout: 1h, first_byte_timeout: 1h }";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let mut person = gateway.connect();
    assert_eq!(person.get("/page", "").status, 200);
    let mut hostile: Vec<Client> = (0..40).map(|_| gateway.connect()).collect();
    for client in &mut hostile {
        client.send("GET / HTTP/1.1\r\nHost: a\r\nCookie: ").try_send(vec![b'a'; 900_000]);
    }
    wait_until("connections to be closed", || gateway.metric(SHED) >= 10.0 && gateway.metric(MEMORY) <= LIMIT);
    assert_eq!(person.get("/page", "").status, 200, "the connection is open, because it occupies little");
    assert!(gateway.metric(SHED) < 40.0, "no more are closed than necessary");
}
