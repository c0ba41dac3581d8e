//! Shared support of the integration tests: a gateway, a scripted origin, and a client with access to every byte.
//!
//! Waiting for another thread or process is waiting for an event, or polling until a deadline ([`wait`]).

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test module uses a part")]

pub mod access_log;
pub mod acme_server;
pub mod browser;
pub mod classifier_harness;
pub mod client;
pub mod combined_log;
pub mod constrained_origin;
pub mod crash;
pub mod crawlers;
pub mod day_trace;
pub mod fields;
pub mod firefox;
pub mod frames;
pub mod gateway;
pub mod http2_origin;
pub mod https_server;
pub mod load;
pub mod memory_store;
pub mod metered_site;
pub mod mmdb;
pub mod name_server;
pub mod nginx;
pub mod origin;
pub mod paced_site;
pub mod pacing_harness;
pub mod people;
pub mod program;
pub mod prometheus;
pub mod redis;
pub mod report;
pub mod robots;
pub mod running_gateway;
pub mod signer;
pub mod small_disk;
pub mod stores;
pub mod tls;
pub mod tls_tunnel;
pub mod wait;
pub mod webhook_receiver;

use std::io::Write;
use std::path::PathBuf;

pub use wait::TIMEOUT;

/// Returns the directory of further test data, which the variable `TIDEGATE_SHARED` names. Otherwise reports a skip, even if
/// the test passes: a twin of the test asserts the same on data of this repository.
pub fn shared_data() -> Option<PathBuf> {
    let dir = std::env::var_os("TIDEGATE_SHARED").map(PathBuf::from).filter(|dir| dir.is_dir());
    if dir.is_none() {
        report_skip("TIDEGATE_SHARED names no directory");
    }
    dir
}

/// Reports that the test of this thread is skipped, and why. Does not use `println!`, which is shown for failed tests
/// only.
pub fn report_skip(reason: &str) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "skipped: {reason}: {}", thread.name().unwrap_or_default());
}

/// Sends requests over one cleartext HTTP/2 connection and returns their statuses.
pub fn http2_statuses(
    address: std::net::SocketAddr,
    requests: impl FnOnce(http::request::Builder) -> Vec<http::Request<()>>,
) -> Vec<u16> {
    http2_responses(address, requests).iter().map(|response| response.status().as_u16()).collect()
}

/// Sends requests over one cleartext HTTP/2 connection and returns the responses.
pub fn http2_responses(
    address: std::net::SocketAddr,
    requests: impl FnOnce(http::request::Builder) -> Vec<http::Request<()>>,
) -> Vec<http::Response<bytes::Bytes>> {
    let without_content = |request: http::Request<()>| request.map(|()| http_body_util::Empty::new());
    http2_responses_to(address, requests(http::Request::builder()).into_iter().map(without_content))
}

/// Sends requests with content, one after the other, over one cleartext HTTP/2 connection and returns the responses.
pub fn http2_responses_to<B>(
    address: std::net::SocketAddr,
    requests: impl IntoIterator<Item = http::Request<B>>,
) -> Vec<http::Response<bytes::Bytes>>
where
    B: hyper::body::Body<Data = bytes::Bytes, Error = std::convert::Infallible> + Send + Unpin + 'static,
{
    use http_body_util::BodyExt;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime can be created");
    let exchange = async {
        let stream = tokio::net::TcpStream::connect(tls_tunnel::for_http2(address)).await.expect("gateway listens");
        let io = hyper_util::rt::TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new())
            .handshake(io)
            .await
            .expect("server supports HTTP/2");
        tokio::spawn(connection);
        let mut responses = Vec::new();
        for request in requests {
            let (head, body) = sender.send_request(request).await.expect("response head").into_parts();
            let body = body.collect().await.expect("complete body").to_bytes();
            responses.push(http::Response::from_parts(head, body));
        }
        responses
    };
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, exchange).await.expect("no response in time") })
}
