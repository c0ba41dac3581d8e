//! Asks a running gate's admin listener: one question, one connection.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;

/// An admin listener, and how to be let in.
#[derive(Clone, Debug)]
pub struct Client {
    address: String,
    authorization: Option<HeaderValue>,
}

/// What it answered.
#[derive(Clone, Debug)]
pub struct AdminResponse {
    /// The status.
    pub status: StatusCode,
    /// The body: JSON, but for metrics.
    pub body: String,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AdminClientError {
    /// Nobody listens there, or it cannot be reached.
    #[error("no gate answers at {address}: {source}")]
    Unreachable {
        /// Where it was looked for.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
    /// Somebody listens, but what is said is no answer.
    #[error("{address} gives no answer that can be read: {reason}")]
    InvalidResponse {
        /// Who was asked.
        address: String,
        /// What went wrong.
        reason: String,
    },
    /// It takes too long.
    #[error("{address} has not answered within {} s", TIMEOUT.as_secs())]
    TimedOut {
        /// Who was asked.
        address: String,
    },
}

impl Client {
    /// The admin listener at `address`, a host and a port.
    pub fn at(address: impl Into<String>) -> Self {
        Self { address: address.into(), authorization: None }
    }

    /// The same, shown this `Authorization`.
    pub fn authorized(self, authorization: Option<HeaderValue>) -> Self {
        Self { authorization, ..self }
    }

    /// Where it is.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Reads what is at `path`.
    pub async fn get(&self, path: &str) -> Result<AdminResponse, AdminClientError> {
        self.request(Method::GET, path, "").await
    }

    /// Asks with a JSON `body`, or with none where it is empty.
    pub async fn request(&self, method: Method, path: &str, body: &str) -> Result<AdminResponse, AdminClientError> {
        match tokio::time::timeout(TIMEOUT, self.exchange(method, path, body)).await {
            Ok(answered) => answered,
            Err(_) => Err(AdminClientError::TimedOut { address: self.address.clone() }),
        }
    }

    async fn exchange(&self, method: Method, path: &str, body: &str) -> Result<AdminResponse, AdminClientError> {
        let not_there = |source| AdminClientError::Unreachable { address: self.address.clone(), source };
        let stream = TcpStream::connect(&self.address).await.map_err(not_there)?;
        let (mut connection, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.invalid_response(error))?;
        tokio::spawn(driver);
        let request = self.build_request(method, path, body).map_err(|error| self.invalid_response(error))?;
        let response = connection.send_request(request).await.map_err(|error| self.invalid_response(error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), BODY_BYTES_MAX)
            .collect()
            .await
            .map_err(|error| self.invalid_response(error))?;
        Ok(AdminResponse { status, body: String::from_utf8_lossy(&body.to_bytes()).into_owned() })
    }

    fn build_request(&self, method: Method, path: &str, body: &str) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut request = Request::builder().method(method).uri(path).header(HOST, &self.address);
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

/// The admin listener answers from memory; only a reload takes longer than a moment.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The metrics of a gate with every class and quota that it can have are a tenth of this.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
