//! What tests over the wire share: a gate, an origin that does as it is told, and a client that shows every byte.
//!
//! Nothing here sleeps. Whatever waits has a limit after which the test fails instead of hanging.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses a part of it")]

pub mod access_log;
pub mod browser;
pub mod client;
pub mod combined_log;
pub mod crash;
pub mod crawlers;
pub mod crowd;
pub mod day;
pub mod directory;
pub mod fields;
pub mod frames;
pub mod gate;
pub mod lookout;
pub mod name_server;
pub mod origin;
pub mod paced;
pub mod pacing;
pub mod people;
pub mod program;
pub mod redis;
pub mod robots;
pub mod signer;
pub mod site;
pub mod small_origin;
pub mod stores;

use std::path::PathBuf;
use std::time::Duration;

/// After this long a test that waits has failed.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Where the developers' shared test data is, if it is here; says so where it is not.
pub fn shared() -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared");
    let folder = std::env::var_os("TIDEGATE_SHARED").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: no ../shared");
    None
}

/// Sends requests over one cleartext HTTP/2 connection and tells their statuses.
pub fn http2(
    address: std::net::SocketAddr,
    requests: impl FnOnce(http::request::Builder) -> Vec<http::Request<()>>,
) -> Vec<u16> {
    use http_body_util::{BodyExt, Empty};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let work = async {
        let stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
        let io = hyper_util::rt::TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new())
            .handshake(io)
            .await
            .expect("it speaks HTTP/2");
        tokio::spawn(connection);
        let mut statuses = Vec::new();
        for request in requests(http::Request::builder()) {
            let request = request.map(|()| Empty::<bytes::Bytes>::new());
            let response = sender.send_request(request).await.expect("an answer");
            statuses.push(response.status().as_u16());
            response.into_body().collect().await.expect("a whole body");
        }
        statuses
    };
    runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await.expect("answered in time") })
}
