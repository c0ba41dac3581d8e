//! Client of the admin API of a running gateway: one request per connection.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// An admin listener and the credentials for it.
#[derive(Clone, Debug)]
pub struct AdminClient {
    address: String,
    authorization: Option<HeaderValue>,
    /// Maximum duration of a request.
    timeout: Duration,
}

/// Response of the admin listener.
#[derive(Clone, Debug)]
pub struct AdminResponse {
    /// Response status.
    pub status: StatusCode,
    /// Response body: JSON, except for metrics.
    pub body: String,
}

/// Reason why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum AdminClientError {
    /// The address is unreachable.
    #[error("no gateway reachable at {address}: {source}")]
    Unreachable {
        /// Address of the admin listener.
        address: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The peer sent no valid HTTP response.
    #[error("{address}: invalid response: {reason}")]
    InvalidResponse {
        /// Address of the admin listener.
        address: String,
        /// Cause.
        reason: String,
    },
    /// No response in time.
    #[error("{address}: no response within {} s", timeout.as_secs())]
    TimedOut {
        /// Address of the admin listener.
        address: String,
        /// Maximum duration of the request.
        timeout: Duration,
    },
}

impl AdminClient {
    /// Creates a client for the admin listener at `address`: a host and a port, or `unix:/path`.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), authorization: None, timeout: TIMEOUT }
    }

    /// Sets the `Authorization` header to send.
    pub fn with_authorization(self, authorization: Option<HeaderValue>) -> Self {
        Self { authorization, ..self }
    }

    /// Sets the maximum duration of a request, in place of ten seconds.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Returns the address of the admin listener.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends a GET request for `path`.
    pub async fn get(&self, path: &str) -> Result<AdminResponse, AdminClientError> {
        self.request(Method::GET, path, "").await
    }

    /// Sends a request with a JSON `body`, or without a body if it is empty.
    pub async fn request(&self, method: Method, path: &str, body: &str) -> Result<AdminResponse, AdminClientError> {
        match tokio::time::timeout(self.timeout, self.exchange(method, path, body)).await {
            Ok(result) => result,
            Err(_) => Err(AdminClientError::TimedOut { address: self.address.clone(), timeout: self.timeout }),
        }
    }

    async fn exchange(&self, method: Method, path: &str, body: &str) -> Result<AdminResponse, AdminClientError> {
        let unreachable = |source| AdminClientError::Unreachable { address: self.address.clone(), source };
        match self.address.strip_prefix(UNIX_PREFIX) {
            Some(socket) => {
                let stream = UnixStream::connect(socket).await.map_err(unreachable)?;
                self.send(stream, method, path, body).await
            }
            None => {
                let stream = TcpStream::connect(&self.address).await.map_err(unreachable)?;
                self.send(stream, method, path, body).await
            }
        }
    }

    async fn send(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        method: Method,
        path: &str,
        body: &str,
    ) -> Result<AdminResponse, AdminClientError> {
        let (mut connection, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.invalid_response(error))?;
        tokio::spawn(driver);
        let request = self.build_request(method, path, body).map_err(|error| self.invalid_response(error))?;
        let response = connection.send_request(request).await.map_err(|error| self.invalid_response(error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_BODY_BYTES)
            .collect()
            .await
            .map_err(|error| self.invalid_response(error))?;
        Ok(AdminResponse { status, body: String::from_utf8_lossy(&body.to_bytes()).into_owned() })
    }

    fn build_request(&self, method: Method, path: &str, body: &str) -> Result<Request<Full<Bytes>>, http::Error> {
        let host = if self.address.starts_with(UNIX_PREFIX) { "localhost" } else { &self.address };
        let mut request = Request::builder().method(method).uri(path).header(HOST, host);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        request.body(Full::from(body.to_owned()))
    }

    fn invalid_response(&self, reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> AdminClientError {
        let reason = reason.into().to_string();
        AdminClientError::InvalidResponse { address: self.address.clone(), reason }
    }
}

/// Start of the address of a Unix socket.
const UNIX_PREFIX: &str = "unix:";

/// Maximum duration of a request. The admin listener responds from memory; only a reload takes longer than a moment, and a
/// request that waits for the origin.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a response. The metrics of a gateway with the maximum number of classes and quotas take a tenth of
/// this.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;
