//! Section `limits`.

use crate::scalars::{CountLimit, Size, Span};
use crate::section::{any, at_least, between, positive, section};
use std::num::NonZeroUsize;
use std::time::Duration;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

section! {
    /// Connection, size and time limits. The defaults suit most sites.
    pub struct Limits {
        /// Maximum number of client connections, at least 1; further ones are closed.
        max_connections: usize = 10_000 => u32, positive;
        /// Maximum number of client connections per address or IPv6 prefix (clients.ipv6_prefix); further ones are
        /// closed. The default does not hold for trusted proxies and loopback addresses, from which many clients
        /// arrive. 0 is no limit.
        max_connections_per_address: Option<NonZeroUsize> = NonZeroUsize::new(512) => CountLimit, any;
        /// Memory for client connections, with their requests and responses in progress; at least 16MiB. Above it, the
        /// connections that occupy most are closed. Checked four times a second. Default a quarter of the memory that
        /// the machine, or the control group of the process, has.
        memory: Option<u64> = None => Size, at_least(16 * MIB, 256 * MIB);
        /// Time until the first byte on a new connection, more than 0.
        first_byte_timeout: Duration = secs(10) => Span, positive;
        /// Time for the TLS handshake of a new connection, more than 0.
        handshake_timeout: Duration = secs(5) => Span, positive;
        /// Time to receive the PROXY protocol header of a new connection, more than 0.
        proxy_header_timeout: Duration = secs(5) => Span, positive;
        /// Maximum number of TLS handshakes in progress on one thread, at least 1; further connections are closed.
        max_handshakes: usize = 1000 => u32, positive;
        /// Maximum number of TLS handshakes in progress per address or IPv6 prefix; further connections are closed. 0
        /// is no limit; there is none for trusted proxies.
        max_handshakes_per_address: Option<NonZeroUsize> = NonZeroUsize::new(100) => CountLimit, any;
        /// Time to receive a request head, more than 0.
        head_timeout("header_timeout"): Duration = secs(10) => Span, positive;
        /// Idle time between two requests of a connection, more than 0.
        keep_alive_timeout: Duration = secs(60) => Span, positive;
        /// Longest pause within a request body, more than 0.
        request_body_timeout: Duration = secs(30) => Span, positive;
        /// Longest time for which a client does not read its response, more than 0. What the kernel holds for a client,
        /// about 100 KiB, is not seen: one that reads less than that in this time may be disconnected.
        response_write_timeout: Duration = secs(30) => Span, positive;
        /// Maximum size of a request head, 8KiB to 1MiB; larger ones receive 431.
        max_head_size("max_header_size"): usize = 32 * 1024 => Size, between(8 * KIB, MIB);
        /// Maximum number of header fields of a request, at least 1; more receive 431.
        max_headers: usize = 100 => u16, positive;
        /// Maximum number of header fields of a response of the origin; one with more is a failure of the origin, and
        /// the client receives 502. At least 1. A change applies to new connections to the origin.
        max_response_headers: usize = 256 => u16, positive;
        /// Maximum size of a request body; larger ones receive 413.
        max_body_size: u64 = 64 * MIB => Size, any;
        /// Part of a request body that is received into memory before the request takes slots; the rest is received
        /// into an unnamed file in state_dir. Routes with stream: true receive neither.
        buffer_body: usize = 64 * 1024 => Size, any;
        /// Maximum size of all files with bodies together: request bodies beyond buffer_body, and responses that were
        /// received ahead of slow clients. One client has a quarter of it. Further request bodies receive 503, and
        /// further slow clients occupy their slots.
        buffer_disk: u64 = 1024 * MIB => Size, any;
        /// Least average rate per second, after 10 seconds, of a request body, and, beyond its first 128 KiB, of a
        /// response for which the client lets the gateway wait. Slower request bodies receive 408; slower readers are
        /// disconnected. 0B is no limit.
        min_rate: u64 = 500 => Size, any;
        /// Number of requests after which a connection is closed gracefully, at least 1.
        max_requests_per_connection: u32 = 10_000 => u32, positive;
        /// Maximum number of concurrent requests on one HTTP/2 connection, at least 1.
        http2_max_concurrent_streams: u32 = 100 => u32, positive;
        /// Maximum number of clients whose buckets are kept in memory, at least 1. When they are reached, new clients
        /// share one bucket per class. A change takes effect at the next start.
        max_tracked_clients: usize = 1_000_000 => u32, positive;
        /// Maximum number of values of a header or cookie (bucket key) that one address may send within an hour, each
        /// as a client of its own; at least 1. Further values count as the client of the address.
        max_credentials_per_address: NonZeroUsize = nonzero(256) => u32, positive;
        /// Time for requests in flight to finish at shutdown, more than 0. Idle connections stay open for a tenth of
        /// it, because a request may be on its way.
        drain_timeout: Duration = secs(10) => Span, positive;
        /// Maximum number of upgraded connections, such as WebSockets, at least 1. Each holds a connection to the
        /// origin, beyond origin.max_connections. Further upgrades receive 503.
        max_upgrades: usize = 1024 => u32, positive;
        /// Maximum number of upgraded connections per address, IPv6 per clients.ipv6_prefix, at least 1. Further
        /// upgrades receive 503.
        max_upgrades_per_address: NonZeroUsize = nonzero(100) => u32, positive;
        /// Time without a byte in either direction after which an upgraded connection, such as a WebSocket, is closed,
        /// more than 0.
        upgrade_idle_timeout: Duration = secs(600) => Span, positive;
        /// Maximum time of an upgraded connection, more than 0.
        upgrade_timeout: Duration = secs(24 * 60 * 60) => Span, positive;
        /// True if an upgraded connection keeps the slots of its request in its scopes; otherwise they are free once
        /// the origin has upgraded it.
        upgrade_holds_slots: bool = false => bool, any;
    }
    derived {
        /// The file names `max_connections_per_address`, so that it holds for trusted proxies and the machine itself, too.
        limits_local_connections: bool = false;
    }
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn nonzero(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).expect("not zero")
}
