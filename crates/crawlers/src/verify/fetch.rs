//! Fetches a small document over HTTPS, such as an operator's range list or a directory of keys.
//!
//! The URL may be chosen by an untrusted client, so each fetch has its [`FetchLimits`]: size, duration, redirects and
//! addresses. A name is resolved once, and the checked address is the one connected to, so that DNS cannot redirect the
//! fetch in between. No fetch is on a request's path.

mod target;
#[cfg(test)]
mod tests;

use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HOST, LAST_MODIFIED, LOCATION, USER_AGENT};
use http::header::{HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tidegate_tls::{client_config, public_authorities};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use target::FetchTarget;
pub use target::{AllowedAddresses, is_public};

/// Client for small documents. Clones share the trusted roots.
#[derive(Clone)]
pub struct Fetcher {
    tls: TlsConnector,
}

/// Limits of one fetch.
#[derive(Clone, Copy, Debug)]
pub struct FetchLimits {
    /// Maximum size of the body, in bytes.
    pub max_bytes: usize,
    /// Maximum duration, from the lookup of the name to the last byte.
    pub timeout: Duration,
    /// Maximum number of redirects. All must stay at the same scheme, host and port, unless a user has named the URL.
    pub max_redirects: u8,
    /// Addresses that may be connected to.
    pub allowed_addresses: AllowedAddresses,
}

/// Validators of a cached copy, stored as received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    /// `ETag`.
    pub etag: Option<String>,
    /// `Last-Modified`.
    pub last_modified: Option<String>,
}

/// Result of a successful fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchOutcome {
    /// The cached copy is current.
    NotModified,
    /// The current document.
    Document(Document),
}

/// A complete document with the headers that describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// Body.
    pub body: Bytes,
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// `Cache-Control`.
    pub cache_control: Option<String>,
    /// Validators for the next fetch.
    pub validators: Validators,
}

/// Reason why a fetch failed.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL cannot be fetched.
    #[error("{0:?} is not an https:// URL with a plain host")]
    InvalidUrl(String),
    /// The host has no address that is allowed: public ones, unless the administrator names the host.
    #[error("{host} resolves to no public address")]
    AddressNotAllowed {
        /// Host.
        host: String,
    },
    /// The name cannot be resolved, or the connection failed.
    #[error("cannot reach {host}: {source}")]
    Unreachable {
        /// Host.
        host: String,
        /// Error of the operating system or of certificate verification.
        source: io::Error,
    },
    /// The response is not valid HTTP, or incomplete.
    #[error("{host}: invalid response: {source}")]
    InvalidResponse {
        /// Host.
        host: String,
        /// Cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The redirect is not allowed.
    #[error("redirect to {0:?} not allowed")]
    RedirectNotAllowed(String),
    /// There are more redirects than allowed.
    #[error("more than {0} redirects")]
    TooManyRedirects(u8),
    /// The status is neither 200 nor that of an expected redirect or revalidation.
    #[error("unexpected status {0}")]
    Status(StatusCode),
    /// The body has a content encoding that was not requested.
    #[error("unexpected content encoding")]
    UnexpectedEncoding,
    /// The body exceeds the limit.
    #[error("body exceeds {max_bytes} bytes")]
    TooLarge {
        /// Limit in bytes.
        max_bytes: usize,
    },
    /// The fetch exceeded its maximum duration.
    #[error("timed out after {0:?}")]
    TimedOut(Duration),
}

impl Fetcher {
    /// Creates a fetcher that trusts the public certificate authorities.
    pub fn with_public_roots() -> Self {
        Self::with_roots(public_authorities())
    }

    /// Creates a fetcher that trusts only `roots`.
    pub fn with_roots(roots: RootCertStore) -> Self {
        Self { tls: TlsConnector::from(Arc::new(client_config(roots.into()))) }
    }

    /// Fetches `url`, or finds that the copy with these `validators` is current.
    pub async fn fetch(
        &self,
        url: &str,
        limits: &FetchLimits,
        validators: &Validators,
    ) -> Result<FetchOutcome, FetchError> {
        match tokio::time::timeout(limits.timeout, self.follow_redirects(url, limits, validators)).await {
            Ok(fetched) => fetched,
            Err(_) => Err(FetchError::TimedOut(limits.timeout)),
        }
    }

    async fn follow_redirects(
        &self,
        url: &str,
        limits: &FetchLimits,
        validators: &Validators,
    ) -> Result<FetchOutcome, FetchError> {
        let mut target = FetchTarget::parse(url, limits.allowed_addresses)?;
        for _ in 0..=limits.max_redirects {
            let response = self.send(&target, limits, validators).await?;
            match response.status() {
                StatusCode::OK => return document(&target, response, limits.max_bytes).await,
                StatusCode::NOT_MODIFIED if *validators != Validators::default() => {
                    return Ok(FetchOutcome::NotModified);
                }
                status if is_redirect(status) => {
                    target = target.resolve_redirect(&text(response.headers(), LOCATION), limits.allowed_addresses)?;
                }
                status => return Err(FetchError::Status(status)),
            }
        }
        Err(FetchError::TooManyRedirects(limits.max_redirects))
    }

    async fn send(
        &self,
        target: &FetchTarget,
        limits: &FetchLimits,
        validators: &Validators,
    ) -> Result<Response<Incoming>, FetchError> {
        let unreachable = |source| FetchError::Unreachable { host: target.host.clone(), source };
        let addresses = tokio::net::lookup_host((target.host.as_str(), target.port)).await.map_err(unreachable)?;
        let allowed: Vec<SocketAddr> =
            addresses.filter(|address| target.allows(address.ip(), limits.allowed_addresses)).collect();
        if allowed.is_empty() {
            return Err(FetchError::AddressNotAllowed { host: target.host.clone() });
        }
        let stream = TcpStream::connect(&*allowed).await.map_err(unreachable)?;
        let request = request(target, validators);
        match &target.server_name {
            Some(name) => {
                let stream = self.tls.connect(name.clone(), stream).await.map_err(unreachable)?;
                exchange(stream, request, target).await
            }
            None => exchange(stream, request, target).await,
        }
    }
}

fn request(target: &FetchTarget, validators: &Validators) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = target.path.clone().into();
    let fields = [
        (HOST, Some(target.authority.as_str())),
        (USER_AGENT, Some(concat!("tidegate/", env!("CARGO_PKG_VERSION")))),
        (IF_NONE_MATCH, validators.etag.as_deref()),
        (IF_MODIFIED_SINCE, validators.last_modified.as_deref()),
    ];
    for (name, value) in fields {
        if let Some(value) = value.and_then(|value| value.try_into().ok()) {
            request.headers_mut().insert(name, value);
        }
    }
    request
}

async fn exchange<S>(
    stream: S,
    request: Request<Empty<Bytes>>,
    target: &FetchTarget,
) -> Result<Response<Incoming>, FetchError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let invalid_response =
        |source: hyper::Error| FetchError::InvalidResponse { host: target.host.clone(), source: source.into() };
    let (mut connection, driver) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(invalid_response)?;
    // The connection ends with the body and is not reused.
    tokio::spawn(driver);
    connection.send_request(request).await.map_err(invalid_response)
}

async fn document(
    target: &FetchTarget,
    response: Response<Incoming>,
    max_bytes: usize,
) -> Result<FetchOutcome, FetchError> {
    let (head, body) = response.into_parts();
    if head.headers.contains_key(CONTENT_ENCODING) {
        return Err(FetchError::UnexpectedEncoding);
    }
    let body = Limited::new(body, max_bytes).collect().await.map_err(|source| match source
        .is::<http_body_util::LengthLimitError>(
    ) {
        true => FetchError::TooLarge { max_bytes },
        false => FetchError::InvalidResponse { host: target.host.clone(), source },
    })?;
    let header_text = |name| Some(text(&head.headers, name)).filter(|value| !value.is_empty());
    Ok(FetchOutcome::Document(Document {
        body: body.to_bytes(),
        content_type: header_text(CONTENT_TYPE),
        cache_control: Some(joined(&head.headers, CACHE_CONTROL)).filter(|value| !value.is_empty()),
        validators: Validators { etag: header_text(ETAG), last_modified: header_text(LAST_MODIFIED) },
    }))
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Returns the lines of a list as one text; empty if it is missing or not text.
fn joined(fields: &HeaderMap, name: HeaderName) -> String {
    let lines: Vec<&str> = fields.get_all(name).iter().filter_map(|line| line.to_str().ok()).collect();
    lines.join(",")
}

/// Returns a field as text; empty if it is missing or not text.
fn text(fields: &HeaderMap, name: HeaderName) -> String {
    fields.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}
