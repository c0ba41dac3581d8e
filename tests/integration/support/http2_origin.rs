//! A scripted origin that speaks HTTP/2 without TLS.

use super::origin::Origin;
use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use parking_lot::Mutex;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

/// A listening origin of HTTP/2.
pub struct Http2Origin {
    pub address: SocketAddr,
    connections: Arc<Mutex<usize>>,
}

/// A request and the way to respond to it.
pub struct Exchange {
    /// Number of the connection, from 1 on.
    pub connection: usize,
    pub request: http::request::Parts,
    pub body: RecvStream,
    pub response: SendResponse<Bytes>,
}

impl Http2Origin {
    /// Starts an origin that runs `script` for each request.
    pub fn with_script<R>(script: impl Fn(Exchange) -> R + Send + Sync + 'static) -> Self
    where
        R: Future<Output = ()> + Send + 'static,
    {
        Self::with_max_streams(u32::MAX, script)
    }

    /// Like [`Self::with_script`], and allows `max_streams` requests at once on a connection.
    pub fn with_max_streams<R>(max_streams: u32, script: impl Fn(Exchange) -> R + Send + Sync + 'static) -> Self
    where
        R: Future<Output = ()> + Send + 'static,
    {
        let address = Origin::free_address();
        let connections = Arc::<Mutex<usize>>::default();
        let (script, counted) = (Arc::new(script), Arc::clone(&connections));
        let (ready, is_ready) = std::sync::mpsc::channel();
        // The thread ends with the process.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind(address).await.expect("a free port");
                let _ = ready.send(());
                while let Ok((stream, _)) = listener.accept().await {
                    let number = {
                        let mut counted = counted.lock();
                        *counted += 1;
                        *counted
                    };
                    let script = Arc::clone(&script);
                    tokio::spawn(async move {
                        let handshake = Builder::new().max_concurrent_streams(max_streams).handshake(stream).await;
                        // An upgrade is a request of HTTP/1.1.
                        let Ok(mut connection) = handshake else { return };
                        while let Some(Ok((request, response))) = connection.accept().await {
                            let (request, body) = request.into_parts();
                            tokio::spawn(script(Exchange { connection: number, request, body, response }));
                        }
                    });
                }
            });
        });
        is_ready.recv().expect("the origin listens");
        Self { address, connections }
    }

    /// Returns the number of accepted connections.
    pub fn connections(&self) -> usize {
        *self.connections.lock()
    }
}

impl Exchange {
    /// Sends a complete response.
    pub fn reply(mut self, status: u16, body: &'static str) {
        let head = http::Response::builder().status(status).body(()).expect("a valid head");
        // Fails if the gateway has reset the stream.
        if let Ok(mut stream) = self.response.send_response(head, false) {
            let _ = stream.send_data(Bytes::from_static(body.as_bytes()), true);
        }
    }

    /// Reads the request body. Returns `None` if the gateway resets the stream.
    pub async fn read_body(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(part) = self.body.data().await {
            let part = part.ok()?;
            let _ = self.body.flow_control().release_capacity(part.len());
            body.extend_from_slice(&part);
        }
        Some(body)
    }
}
