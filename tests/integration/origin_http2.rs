//! Origins that are sent requests over HTTP/2: with prior knowledge, by ALPN, and gRPC.

use crate::support::client::Client;
use crate::support::crawlers::InstalledClients;
use crate::support::frames::{GOAWAY, HEADERS, Http2Client, SETTINGS};
use crate::support::gateway::TestGateway;
use crate::support::http2_origin::{Exchange, Http2Origin};
use crate::support::nginx::Nginx;
use crate::support::origin::{Origin, signal};
use crate::support::tls::Certificates;
use crate::support::wait::wait_until;
use bytes::Bytes;
use h2::Reason;
use parking_lot::Mutex;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Barrier;

const USED: &str = "tidegate_quota_used{quota=\"api\"}";

fn gateway(origin: SocketAddr) -> TestGateway {
    TestGateway::with_rules(origin, &rules(origin, ""))
}

/// Returns rules with further `keys` of the section `origin`.
fn rules(origin: SocketAddr, keys: &str) -> String {
    format!(
        "workers: 1\norigin: {{ url: 'http://{origin}', http2: true, {keys} }}\n\
         quotas: {{ api: {{ limit: 100, window: {{ calendar: day, zone: UTC }} }} }}\n\
         scopes: {{ default: {{ concurrency: 500 }} }}\nlimits: {{ first_byte_timeout: 1s }}\n\
         routes: [{{ match: /small }}, {{ match: /stream/**, stream: true, cost: {{ api: 1 }} }}, {{ match: /**, cost: {{ api: 1 }} }}]\n"
    )
}

fn send_requests(gateway: &TestGateway, count: usize) -> Vec<Client> {
    let send = |number| {
        let mut client = gateway.connect();
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: example.com\r\n\r\n"));
        client
    };
    (0..count).map(send).collect()
}

#[test]
fn requests_at_once_share_a_connection() {
    let arrived = Arc::new(Barrier::new(20));
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let origin = Http2Origin::with_script(move |exchange| {
        seen.lock().push(exchange.request.clone());
        let arrived = Arc::clone(&arrived);
        async move {
            arrived.wait().await;
            exchange.reply(200, "page");
        }
    });
    let gateway = gateway(origin.address);
    for mut client in send_requests(&gateway, 20) {
        let response = client.read_response();
        assert_eq!((response.status, response.text().as_str()), (200, "page"));
    }
    assert_eq!(origin.connections(), 1);
    for head in &*heads.lock() {
        let uri = &head.uri;
        assert_eq!((uri.scheme_str(), uri.authority().map(|host| host.as_str())), (Some("http"), Some("example.com")));
        for field in ["host", "connection", "content-length", "transfer-encoding"] {
            assert!(!head.headers.contains_key(field), "{field}: {head:?}");
        }
        assert_eq!(head.headers["x-forwarded-proto"], "http");
    }
    assert_eq!(gateway.metric(USED), 20.0);
}

#[test]
fn requests_beyond_the_streams_of_a_connection_take_another() {
    for (max_streams, connections) in [(4, 2), (u32::MAX, 1)] {
        let arrived = Arc::new(Barrier::new(6));
        let origin = Http2Origin::with_max_streams(max_streams, move |exchange| {
            let arrived = Arc::clone(&arrived);
            async move {
                if exchange.request.uri.path() != "/first" {
                    arrived.wait().await;
                }
                exchange.reply(200, "page");
            }
        });
        let gateway = gateway(origin.address);
        // From then on, the gateway knows the settings of the origin.
        assert_eq!(gateway.connect().get("/first", "").status, 200);
        for mut client in send_requests(&gateway, 6) {
            assert_eq!(client.read_response().status, 200);
        }
        assert_eq!(origin.connections(), connections, "with {max_streams} streams");
    }
}

#[test]
fn request_that_the_origin_did_not_process_is_sent_again() {
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let origin = Http2Origin::with_script(move |mut exchange| {
        let is_first = counted.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            match is_first {
                true => exchange.response.send_reset(Reason::REFUSED_STREAM),
                false => exchange.reply(200, "page"),
            }
        }
    });
    let gateway = gateway(origin.address);
    let mut client = gateway.connect();
    assert_eq!(
        client.send("POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0\r\n\r\n").read_response().status,
        200
    );
    assert_eq!((tries.load(Ordering::Relaxed), gateway.metric(USED)), (2, 1.0));
}

#[test]
fn refused_body_is_sent_again_if_it_is_in_memory_and_costs_nothing_otherwise() {
    for (path, status, used) in [("/", 200, 1.0), ("/stream/upload", 502, 0.0)] {
        let tries = Arc::new(AtomicUsize::new(0));
        let origin = Http2Origin::with_script(move |mut exchange| {
            let is_first = tries.fetch_add(1, Ordering::Relaxed) == 0;
            async move {
                if is_first {
                    return exchange.response.send_reset(Reason::REFUSED_STREAM);
                }
                assert_eq!(exchange.read_body().await.as_deref(), Some(&b"body"[..]));
                exchange.reply(200, "page");
            }
        });
        let gateway = gateway(origin.address);
        let mut client = gateway.connect();
        client.send(format!("POST {path} HTTP/1.1\r\nHost: example.com\r\nContent-Length: 4\r\n\r\nbody"));
        assert_eq!((client.read_response().status, gateway.metric(USED)), (status, used), "{path}");
    }
}

#[test]
fn reset_of_an_upload_is_a_failure_of_the_origin() {
    let origin = Http2Origin::with_script(move |mut exchange| async move {
        exchange.response.send_reset(Reason::INTERNAL_ERROR);
    });
    let gateway = gateway(origin.address);
    let mut client = gateway.connect();
    client.send("POST /stream/upload HTTP/1.1\r\nHost: example.com\r\nContent-Length: 10\r\n\r\npart");
    assert_eq!(client.read_response().status, 502);
    assert!(gateway.state()["origin"]["outage"].is_object(), "{}", gateway.state()["origin"]);
}

#[test]
fn upload_that_the_origin_does_not_take_times_out() {
    let (filled, is_filled) = signal();
    let origin = Http2Origin::with_script(move |mut exchange| {
        let filled = filled.clone();
        async move {
            // Leaves the window of the stream (RFC 9113 section 6.9.2) as it is once it is full.
            let mut received = 0;
            while received < 65_535 {
                received += exchange.body.data().await.expect("a part").expect("an open stream").len();
            }
            filled.notify();
            std::future::pending::<()>().await;
        }
    });
    let gateway = TestGateway::with_rules(origin.address, &rules(origin.address, "response_timeout: 1s"));
    let mut client = gateway.connect();
    client.send("POST /stream/upload HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1000000\r\n\r\n");
    client.send(vec![b'x'; 500_000]);
    // All of it has left the client: nothing waits for it.
    is_filled.wait();
    wait_until("the timeout", || {
        gateway.clock.advance(Duration::from_millis(1500));
        gateway.state()["origin"]["outage"].is_object()
    });
    assert_eq!(client.read_response().status, 504);
}

#[test]
fn trailers_of_requests_are_left_out() {
    let origin = Http2Origin::with_script(move |mut exchange| async move {
        assert!(!exchange.request.headers.contains_key("trailer"));
        assert_eq!(exchange.read_body().await.as_deref(), Some(&b"body"[..]));
        assert!(exchange.body.trailers().await.is_ok_and(|trailers| trailers.is_none()));
        exchange.reply(200, "page");
    });
    let gateway = gateway(origin.address);
    for path in ["/", "/stream/upload"] {
        let mut client = gateway.connect();
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
             4\r\nbody\r\n0\r\nX-Sum: 1\r\nX-Tidegate-Operator: googlebot\r\n\r\n"
        ));
        assert_eq!(client.read_response().status, 200, "{path}");
    }
}

/// nginx ends a connection for a field of more than 8 KiB.
#[test]
fn large_head_has_a_connection_of_its_own() {
    let h2c = Origin::free_address();
    let nginx =
        Nginx::start(&format!("listen {h2c} http2; keepalive_requests 1000; large_client_header_buffers 2 8k;"));
    let gateway = TestGateway::with_rules(nginx.address, &rules(h2c, ""));
    let page = |gateway: &TestGateway| gateway.connect().get("/page", "");
    assert_eq!(page(&gateway).status, 200);
    let mut slow = gateway.connect();
    slow.send("GET /page HTTP/1.1\r\nHost: example.com\r\n\r\n");
    for _ in 0..5 {
        let response = gateway.connect().get("/page", &format!("X-Large: {}\r\n", "a~".repeat(8 * 1024)));
        assert_ne!(response.status, 200);
        assert_eq!(page(&gateway).status, 200);
    }
    let response = slow.read_response();
    assert_eq!((response.status, response.body.len()), (200, 1 << 20));
}

#[test]
fn requests_that_wait_for_a_connection_share_the_one_that_opens() {
    let arrived = Arc::new(Barrier::new(10));
    let origin = Http2Origin::with_script(move |exchange| {
        let arrived = Arc::clone(&arrived);
        async move {
            arrived.wait().await;
            exchange.reply(200, "page");
        }
    });
    let gateway = TestGateway::with_rules(origin.address, &rules(origin.address, "max_connections: 1"));
    for mut client in send_requests(&gateway, 10) {
        assert_eq!(client.read_response().status, 200);
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn request_that_shares_no_connection_waits_for_a_slot() {
    let (arrived, has_arrived) = signal();
    let (release, released) = signal();
    let origin = Http2Origin::with_script(move |exchange| {
        let (arrived, released) = (arrived.clone(), released.clone());
        async move {
            if exchange.request.uri.path() == "/held" {
                arrived.notify();
                tokio::task::spawn_blocking(move || released.wait()).await.expect("a signal");
            }
            exchange.reply(200, "page");
        }
    });
    let gateway =
        TestGateway::with_rules(origin.address, &rules(origin.address, "max_connections: 1, connect_timeout: 5m"));
    let mut held = gateway.connect();
    held.send("GET /held HTTP/1.1\r\nHost: example.com\r\n\r\n");
    has_arrived.wait();
    let mut large = gateway.connect();
    large.send(format!("GET / HTTP/1.1\r\nHost: example.com\r\nX-Large: {}\r\n\r\n", "a".repeat(8 * 1024)));
    // Admitted: what is left to wait for is a slot.
    gateway.wait_for_metric("tidegate_quota_reserved{quota=\"api\"}", 2.0);
    release.notify();
    assert_eq!((held.read_response().status, large.read_response().status), (200, 200));
    assert_eq!(origin.connections(), 2);
}

#[test]
fn host_is_that_of_the_server_for_a_client_without_one() {
    let origin = Http2Origin::with_script(move |exchange| async move {
        let authority = exchange.request.uri.authority().map(|authority| authority.to_string());
        assert!(authority.is_some_and(|authority| authority.starts_with("127.0.0.1:")));
        exchange.reply(200, "page");
    });
    let gateway = gateway(origin.address);
    assert_eq!(gateway.connect().send("GET / HTTP/1.0\r\n\r\n").read_response().status, 200);
}

#[test]
fn request_above_the_last_stream_of_goaway_is_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let gateway = gateway(listener.local_addr().expect("socket is bound"));
    let origin = std::thread::spawn(move || {
        let accept = || {
            let mut frames = Http2Client::accept(&listener);
            frames.send(SETTINGS, 0, 0, &[]);
            let stream = frames.wait_for_frame(|frame| frame.kind == HEADERS).stream;
            (frames, stream)
        };
        let (mut ended, _) = accept();
        // No stream was processed, no error.
        ended.send(GOAWAY, 0, 0, &[0; 8]);
        let (mut frames, stream) = accept();
        // Status 204, in the static table; the end of the headers and of the stream.
        frames.send(HEADERS, 5, stream, &[0x89]);
        (ended, frames)
    });
    let mut client = gateway.connect();
    assert_eq!(
        client.send("POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0\r\n\r\n").read_response().status,
        204
    );
    assert_eq!(gateway.metric(USED), 1.0);
    drop(origin.join().expect("the origin was sent two requests"));
}

/// The first connection refuses all streams but that of `/first`, which opens it, and that of `/held`, which precedes.
#[test]
fn connection_that_refuses_streams_takes_no_more_and_what_was_not_processed_goes_to_another() {
    for (reason, method, status, used) in [
        (Reason::REFUSED_STREAM, "GET", 200, 1.0),
        (Reason::REFUSED_STREAM, "POST", 200, 1.0),
        (Reason::ENHANCE_YOUR_CALM, "GET", 200, 2.0),
        (Reason::ENHANCE_YOUR_CALM, "HEAD", 200, 2.0),
        (Reason::ENHANCE_YOUR_CALM, "POST", 502, 1.0),
        (Reason::INTERNAL_ERROR, "GET", 502, 1.0),
        (Reason::INTERNAL_ERROR, "POST", 502, 1.0),
    ] {
        let (arrived, has_arrived) = signal();
        let (release, released) = signal();
        let origin = Http2Origin::with_script(move |mut exchange| {
            let (arrived, released) = (arrived.clone(), released.clone());
            async move {
                match exchange.request.uri.path() {
                    "/held" => {
                        arrived.notify();
                        tokio::task::spawn_blocking(move || released.wait()).await.expect("a signal");
                        assert_eq!(exchange.connection, 1);
                    }
                    "/first" => {}
                    _ if exchange.connection == 1 => return exchange.response.send_reset(reason),
                    _ => {}
                }
                exchange.reply(200, "page");
            }
        });
        let gateway = gateway(origin.address);
        assert_eq!(gateway.connect().get("/first", "").status, 200);
        let mut held = gateway.connect();
        held.send("GET /held HTTP/1.1\r\nHost: example.com\r\n\r\n");
        has_arrived.wait();
        let mut client = gateway.connect();
        client.send(format!("{method} /page HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0\r\n\r\n"));
        assert_eq!(client.response_to(method).status, status, "{reason} {method}");
        assert_eq!(gateway.metric(USED), 1.0 + used, "{reason} {method}");
        for _ in 0..3 {
            assert_eq!(gateway.connect().get("/page", "").status, 200, "{reason} {method}");
        }
        release.notify();
        assert_eq!(held.read_response().status, 200, "those in flight go on");
        assert_eq!(origin.connections(), 2, "{reason} {method}");
    }
}

#[test]
fn refused_request_goes_to_one_other_connection() {
    for reason in [Reason::REFUSED_STREAM, Reason::ENHANCE_YOUR_CALM] {
        let origin = Http2Origin::with_script(move |mut exchange| async move {
            exchange.response.send_reset(reason);
        });
        let gateway = gateway(origin.address);
        assert_eq!(gateway.connect().get("/page", "").status, 502);
        assert_eq!(origin.connections(), 2, "{reason}");
    }
}

#[test]
fn client_whose_requests_are_reset_often_has_connections_of_its_own() {
    let (reset, is_reset) = signal();
    let connections = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&connections);
    let origin = Http2Origin::with_script(move |mut exchange| {
        let reset = reset.clone();
        seen.lock().push((exchange.request.uri.path().to_owned(), exchange.connection));
        async move {
            if exchange.request.uri.path() != "/endless" {
                return exchange.reply(200, "page");
            }
            let mut stream = exchange.response.send_response(http::Response::new(()), false).expect("open stream");
            loop {
                stream.reserve_capacity(16 * 1024);
                let Some(Ok(length)) = std::future::poll_fn(|context| stream.poll_capacity(context)).await else {
                    break reset.notify();
                };
                if stream.send_data(vec![0; length].into(), false).is_err() {
                    break reset.notify();
                }
            }
        }
    });
    let rules = format!(
        "{}clients: {{ address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }}\n",
        rules(origin.address, "")
    );
    let gateway = TestGateway::with_rules(origin.address, &rules);
    let from = |address: &str| format!("X-Forwarded-For: {address}\r\n");
    for _ in 0..11 {
        let mut client = gateway.connect();
        client.send(format!("GET /endless HTTP/1.1\r\nHost: a\r\n{}\r\n", from("203.0.113.66")));
        assert_eq!(client.head().status, 200);
        drop(client);
        is_reset.wait();
    }
    for address in ["198.51.100.1", "203.0.113.66", "198.51.100.2", "203.0.113.66"] {
        let path = format!("/{address}");
        assert_eq!(gateway.connect().get(&path, &from(address)).status, 200);
    }
    let of_pages =
        connections.lock().iter().filter(|(path, _)| path != "/endless").map(|(_, number)| *number).collect::<Vec<_>>();
    assert_eq!(of_pages, [1, 2, 1, 2]);
}

/// The client leaves after the head, before the rest of a small response.
#[test]
fn small_response_whose_client_left_is_read_to_its_end() {
    let (left, has_left) = signal();
    let (sent, is_sent) = signal();
    let origin = Http2Origin::with_script(move |mut exchange| {
        let (has_left, sent) = (has_left.clone(), sent.clone());
        async move {
            let mut stream = exchange.response.send_response(http::Response::new(()), false).expect("open stream");
            tokio::task::spawn_blocking(move || has_left.wait()).await.expect("a signal");
            assert!(stream.send_data(Bytes::from_static(b"page"), true).is_ok(), "the stream is not reset");
            sent.notify();
        }
    });
    let rules = rules(origin.address, "").replace("scopes: { default: { concurrency: 500 } }\n", "");
    let gateway = TestGateway::with_rules(origin.address, &rules);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n");
    assert_eq!(client.head().status, 200);
    drop(client);
    gateway.wait_for_metric("tidegate_client_connections", 0.0);
    left.notify();
    is_sent.wait();
}

#[test]
fn requests_with_large_heads_share_a_connection_one_at_a_time() {
    let origin = Http2Origin::with_script(move |exchange| async move { exchange.reply(200, "page") });
    let gateway = gateway(origin.address);
    for _ in 0..5 {
        assert_eq!(gateway.connect().get("/page", "").status, 200);
        assert_eq!(gateway.connect().get("/page", &format!("X-Large: {}\r\n", "a".repeat(8 * 1024))).status, 200);
    }
    assert_eq!(origin.connections(), 2);
}

#[test]
fn fields_of_a_response_are_limited_by_their_own_limit() {
    let origin = Http2Origin::with_script(move |exchange| async move {
        let mut head = http::Response::new(());
        let count = exchange.request.uri.path().trim_start_matches('/').parse().expect("a number");
        for _ in 0..count {
            head.headers_mut().append("set-cookie", http::HeaderValue::from_static("a=1"));
        }
        let Exchange { mut response, .. } = exchange;
        response.send_response(head, true).expect("open stream");
    });
    let gateway = gateway(origin.address);
    assert_eq!(gateway.connect().get("/256", "").status, 200);
    assert_eq!(gateway.connect().get("/257", "").status, 502);
    let outage = gateway.state()["origin"]["outage"]["last_error"].to_string();
    assert!(outage.contains("256 fields (limits.max_response_headers)"), "{outage}");
}

#[test]
fn request_that_may_have_been_processed_is_not_sent_again() {
    let origin = Http2Origin::with_script(move |mut exchange| async move {
        exchange.response.send_reset(Reason::INTERNAL_ERROR);
    });
    let gateway = gateway(origin.address);
    assert_eq!(gateway.connect().get("/", "").status, 502);
    assert_eq!((gateway.metric(USED), origin.connections()), (1.0, 1));
}

#[test]
fn body_of_a_reset_stream_is_not_complete() {
    for reason in [Reason::NO_ERROR, Reason::CANCEL, Reason::INTERNAL_ERROR] {
        let (begun, is_begun) = signal();
        let is_begun = Arc::new(is_begun);
        let origin = Http2Origin::with_script(move |mut exchange| {
            let is_begun = Arc::clone(&is_begun);
            async move {
                let mut stream = exchange.response.send_response(http::Response::new(()), false).expect("open stream");
                stream.send_data(Bytes::from_static(b"part"), false).expect("open stream");
                tokio::task::spawn_blocking(move || is_begun.wait()).await.expect("the client reads");
                stream.send_reset(reason);
            }
        });
        let gateway = gateway(origin.address);
        let mut client = gateway.connect();
        client.send("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n");
        assert_eq!(client.head().status, 200);
        assert_eq!(client.take(9).as_deref(), Ok(&b"4\r\npart\r\n"[..]));
        begun.notify();
        assert_eq!(client.read_rest(), b"", "no last chunk after {reason:?}");
    }
}

#[test]
fn upload_ends_with_its_client() {
    let (aborted, is_aborted) = signal();
    let (arrived, has_arrived) = signal();
    let origin = Http2Origin::with_script(move |mut exchange| {
        let (aborted, arrived) = (aborted.clone(), arrived.clone());
        async move {
            arrived.notify();
            assert_eq!(exchange.read_body().await, None);
            aborted.notify();
        }
    });
    let gateway = gateway(origin.address);
    let mut client = gateway.connect();
    client.send("POST /stream/upload HTTP/1.1\r\nHost: example.com\r\nContent-Length: 10\r\n\r\npart");
    has_arrived.wait();
    drop(client);
    is_aborted.wait();
}

#[test]
fn early_response_ends_the_upload() {
    let (aborted, is_aborted) = signal();
    let origin = Http2Origin::with_script(move |mut exchange| {
        let aborted = aborted.clone();
        async move {
            let head = http::Response::builder().status(403).body(()).expect("a valid head");
            exchange.response.send_response(head, true).expect("open stream");
            assert_eq!(exchange.read_body().await, None);
            aborted.notify();
        }
    });
    let gateway = gateway(origin.address);
    let mut client = gateway.connect();
    client.send("POST /stream/upload HTTP/1.1\r\nHost: example.com\r\nContent-Length: 10\r\n\r\npart");
    assert_eq!(client.read_response().status, 403);
    is_aborted.wait();
}

#[test]
fn connection_without_an_answer_is_left() {
    let (arrived, has_arrived) = signal();
    let origin = Http2Origin::with_script(move |exchange| {
        let arrived = arrived.clone();
        async move {
            match exchange.request.uri.path() {
                "/hangs" => {
                    arrived.notify();
                    std::future::pending::<()>().await;
                }
                _ => exchange.reply(200, "page"),
            }
        }
    });
    let gateway = TestGateway::with_rules(origin.address, &rules(origin.address, "response_timeout: 1s"));
    assert_eq!(gateway.connect().get("/", "").status, 200);
    let mut waiting = gateway.connect();
    waiting.send("GET /hangs HTTP/1.1\r\nHost: example.com\r\n\r\n");
    has_arrived.wait();
    gateway.advance_and_sweep(Duration::from_secs(2));
    assert_eq!(waiting.read_response().status, 504);
    assert_eq!(gateway.connect().get("/", "").status, 200);
    assert_eq!(origin.connections(), 2);
}

/// Large responses whose clients do not read them fill their windows, not that of the connection.
#[test]
fn readers_that_stall_do_not_stop_others() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let origin = Http2Origin::with_script(move |mut exchange| {
        let sent = Arc::clone(&counted);
        async move {
            if exchange.request.uri.path() == "/small" {
                return exchange.reply(200, "page");
            }
            let mut stream = exchange.response.send_response(http::Response::new(()), false).expect("open stream");
            loop {
                stream.reserve_capacity(16 * 1024);
                let Some(Ok(length)) = std::future::poll_fn(|context| stream.poll_capacity(context)).await else {
                    break;
                };
                stream.send_data(vec![0; length].into(), false).expect("open stream");
                sent.fetch_add(length, Ordering::Relaxed);
            }
        }
    });
    let rules = rules(origin.address, "").replace("first_byte_timeout: 1s", "first_byte_timeout: 1s, buffer_disk: 0B");
    let gateway = TestGateway::with_rules(origin.address, &rules);
    let mut readers = send_requests(&gateway, 63);
    readers.iter_mut().for_each(|reader| assert_eq!(reader.head().status, 200));
    let mut client = gateway.connect();
    let (mut sent_before, mut unchanged) = (0, 0);
    // All stall once the buffers of the sockets are full.
    while unchanged < 100 {
        assert_eq!(client.get("/small", "").status, 200);
        let sent_now = sent.load(Ordering::Relaxed);
        unchanged = if sent_now == sent_before { unchanged + 1 } else { 0 };
        sent_before = sent_now;
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn failed_connection_fails_the_requests_that_wait_for_it() {
    let gateway = gateway(Origin::unreachable());
    for mut client in send_requests(&gateway, 20) {
        assert_eq!(client.read_response().status, 502);
    }
    assert_eq!(gateway.metric(USED), 0.0);
}

#[test]
fn origin_without_http2_is_named_as_such() {
    let nginx = Nginx::start("");
    let gateway = gateway(nginx.address);
    assert_eq!(gateway.connect().get("/page", "").status, 502);
    let outage = gateway.state()["origin"]["outage"]["last_error"].to_string();
    assert!(outage.contains("does the server accept it (origin.http2)?"), "{outage}");
}

#[test]
fn upgrade_is_sent_over_http1() {
    let origin = Origin::with_script(|request, connection| {
        assert_eq!(request.field("upgrade"), "other");
        connection.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\nhello");
    });
    let gateway = gateway(origin.address());
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n");
    assert_eq!(client.head().status, 101);
    assert_eq!(client.take(5).as_deref(), Ok(&b"hello"[..]));
}

/// nginx closes each connection after three requests with a GOAWAY.
#[test]
fn nginx_is_an_origin_of_http2_with_and_without_tls() {
    let certificates = Certificates::new();
    certificates.issue("server", &["site.internal"]);
    let [h2c, tls, http1] = [(); 3].map(|()| Origin::free_address());
    let nginx = Nginx::start(&format!(
        "listen {h2c} http2; listen {tls} ssl http2; listen {http1} ssl; ssl_certificate {}; ssl_certificate_key {}; \
         add_header X-Protocol $server_protocol;",
        certificates.path("server.pem").display(),
        certificates.path("server.key").display()
    ));
    let ca = format!("ca: {}, server_name: site.internal", certificates.path("ca.pem").display());
    for (url, keys, protocol) in [
        (format!("http://{h2c}"), "", "HTTP/2.0"),
        (format!("https://{tls}"), &*ca, "HTTP/2.0"),
        // It shares the address with a server that speaks HTTP/2 only in nginx's configuration, not on the wire.
        (format!("https://{http1}"), &ca, "HTTP/1.1"),
    ] {
        let gateway =
            TestGateway::with_rules(nginx.address, &format!("origin: {{ url: '{url}', http2: true, {keys} }}"));
        let mut client = gateway.connect();
        for _ in 0..20 {
            let response = client.get("/page", "");
            assert_eq!((response.status, response.body.len()), (200, 1 << 20), "{url}");
            assert_eq!(response.field("x-protocol"), protocol, "{url}");
        }
    }
}

#[test]
fn checks_are_sent_over_http2() {
    let (checked, is_checked) = signal();
    let origin = Http2Origin::with_script(move |exchange| {
        assert_eq!(exchange.request.uri.path(), "/healthz");
        checked.notify();
        async move { exchange.reply(200, "") }
    });
    let rules = format!(
        "origin: {{ urls: ['http://{}', 'http://{}'], http2: true, health: {{ check: {{ path: /healthz }} }} }}",
        origin.address,
        Origin::unreachable()
    );
    let gateway = TestGateway::with_rules(origin.address, &rules);
    is_checked.wait();
    drop(gateway);
}

/// Calls of a real client of gRPC reach a real server: one response, a stream of responses, streams in both directions,
/// and the status of an error, which is in the trailers.
#[test]
fn grpc_passes() {
    let clients = InstalledClients::locate();
    let mut server =
        clients.python("grpc_server.py").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("program runs");
    let mut port = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut port).expect("the server prints its port");
    let origin = SocketAddr::from(([127, 0, 0, 1], port.trim().parse().expect("a port")));
    let gateway = TestGateway::with_rules(origin, &rules(origin, "").replace("/stream/**", "/site.Pages/**"));
    let calls = clients.python("grpc_client.py").arg(gateway.address().to_string()).output().expect("program runs");
    drop(server.stdin.take());
    assert!(server.wait().expect("the server ends").success());
    assert!(calls.status.success(), "{}", String::from_utf8_lossy(&calls.stderr));
    assert_eq!(gateway.metric(USED), 4.0);
    for line in gateway.read_log() {
        assert_eq!((&line["status"], &line["version"]), (&200.into(), &"2".into()), "{line}");
    }
}
