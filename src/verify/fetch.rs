//! Fetches one small document that somebody publishes: an operator's address list, a directory of keys.
//!
//! Whoever names the URL may be a stranger, so each fetch has its [`FetchLimits`]: how much is read, how long it may take,
//! which addresses may be asked. Names are looked up once and the address that was judged is the one connected to, so
//! that a name cannot lead elsewhere in between. It is never on a request's path.

mod target;
#[cfg(test)]
mod tests;

use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HOST, LAST_MODIFIED, LOCATION, USER_AGENT};
use http::header::{HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use target::FetchTarget;
pub use target::{AllowedAddresses, is_public};

/// A client for small documents. Clones share what it trusts.
#[derive(Clone)]
pub struct Fetcher {
    tls: TlsConnector,
}

/// What one fetch may do.
#[derive(Clone, Copy, Debug)]
pub struct FetchLimits {
    /// The largest body that is read, in bytes.
    pub most_bytes: usize,
    /// How long it may take, from the look-up of the name to the last byte.
    pub timeout: Duration,
    /// How many redirects are followed, all of them to the same scheme, host and port.
    pub redirects: u8,
    /// Which addresses may be asked.
    pub reach: AllowedAddresses,
}

/// By what the server knows whether the copy that one has is still the latest; kept as it came, shown as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    /// Its `ETag`.
    pub etag: Option<String>,
    /// Its `Last-Modified`.
    pub last_modified: Option<String>,
}

/// What came of a fetch that went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The copy that one has is still the latest.
    Unchanged,
    /// The document as it is now.
    Document(Document),
}

/// A document, whole, with what its server said about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// Its bytes.
    pub body: Bytes,
    /// Its `Content-Type`.
    pub content_type: Option<String>,
    /// Its `Cache-Control`.
    pub cache_control: Option<String>,
    /// By what the next fetch may ask for changes alone.
    pub validators: Validators,
}

/// Why there is no document.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Not an address that can be fetched from.
    #[error("{0:?} is no https:// address with a plain host")]
    InvalidUrl(String),
    /// The host's name leads to no address that may be asked.
    #[error("{host} is at no public address")]
    AddressNotAllowed {
        /// The host.
        host: String,
    },
    /// The host's name cannot be looked up, or nobody answers there.
    #[error("cannot reach {host}: {source}")]
    Unreachable {
        /// The host.
        host: String,
        /// The system's reason, or what is wrong with its certificate.
        source: io::Error,
    },
    /// What it says is not HTTP, or breaks off.
    #[error("{host} gives no answer that can be read: {source}")]
    InvalidResponse {
        /// The host.
        host: String,
        /// What went wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It sends elsewhere than may be followed.
    #[error("it redirects to {0:?}")]
    Redirected(String),
    /// It has no such document, or does not hand it out.
    #[error("it answers with status {0}")]
    Status(StatusCode),
    /// The body is compressed, though nobody asked for that.
    #[error("its body is encoded, which was not asked for")]
    UnexpectedEncoding,
    /// The body is larger than the guards allow.
    #[error("its body is larger than {most_bytes} bytes")]
    TooLarge {
        /// What the guards allow.
        most_bytes: usize,
    },
    /// It took longer than the guards allow.
    #[error("it took longer than {0:?}")]
    TimedOut(Duration),
}

impl Fetcher {
    /// A fetcher that trusts the public certificate authorities.
    pub fn public() -> Self {
        Self::with_roots(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() })
    }

    /// A fetcher that trusts `roots` alone.
    pub fn with_roots(roots: RootCertStore) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider knows TLS 1.2 and 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { tls: TlsConnector::from(Arc::new(config)) }
    }

    /// Fetches `url`, or learns that the copy with these `validators` is the latest.
    pub async fn fetch(&self, url: &str, guards: &FetchLimits, validators: &Validators) -> Result<Fetched, FetchError> {
        match tokio::time::timeout(guards.timeout, self.follow(url, guards, validators)).await {
            Ok(fetched) => fetched,
            Err(_) => Err(FetchError::TimedOut(guards.timeout)),
        }
    }

    async fn follow(&self, url: &str, guards: &FetchLimits, validators: &Validators) -> Result<Fetched, FetchError> {
        let mut place = FetchTarget::parse(url, guards.reach)?;
        for _ in 0..=guards.redirects {
            let response = self.send(&place, guards, validators).await?;
            match response.status() {
                StatusCode::OK => return document(&place, response, guards.most_bytes).await,
                StatusCode::NOT_MODIFIED if *validators != Validators::default() => return Ok(Fetched::Unchanged),
                status if is_redirect(status) => place = place.redirected(&text(response.headers(), LOCATION))?,
                status => return Err(FetchError::Status(status)),
            }
        }
        Err(FetchError::Redirected(place.to_string()))
    }

    async fn send(
        &self,
        place: &FetchTarget,
        guards: &FetchLimits,
        validators: &Validators,
    ) -> Result<Response<Incoming>, FetchError> {
        let not_there = |source| FetchError::Unreachable { host: place.host.clone(), source };
        let addresses = tokio::net::lookup_host((place.host.as_str(), place.port)).await.map_err(not_there)?;
        let allowed: Vec<SocketAddr> = addresses.filter(|address| place.allows(address.ip(), guards.reach)).collect();
        if allowed.is_empty() {
            return Err(FetchError::AddressNotAllowed { host: place.host.clone() });
        }
        let stream = TcpStream::connect(&*allowed).await.map_err(not_there)?;
        let request = request(place, validators);
        match &place.name {
            Some(name) => {
                let stream = self.tls.connect(name.clone(), stream).await.map_err(not_there)?;
                exchange(stream, request, place).await
            }
            None => exchange(stream, request, place).await,
        }
    }
}

fn request(place: &FetchTarget, validators: &Validators) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = place.path.clone().into();
    let fields = [
        (HOST, Some(place.authority.as_str())),
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
    place: &FetchTarget,
) -> Result<Response<Incoming>, FetchError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let no_answer =
        |source: hyper::Error| FetchError::InvalidResponse { host: place.host.clone(), source: source.into() };
    let (mut connection, driver) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(no_answer)?;
    // It ends with the body: nobody keeps the connection.
    tokio::spawn(driver);
    connection.send_request(request).await.map_err(no_answer)
}

async fn document(place: &FetchTarget, response: Response<Incoming>, most_bytes: usize) -> Result<Fetched, FetchError> {
    let (head, body) = response.into_parts();
    if head.headers.contains_key(CONTENT_ENCODING) {
        return Err(FetchError::UnexpectedEncoding);
    }
    let body = Limited::new(body, most_bytes).collect().await.map_err(|source| match source
        .is::<http_body_util::LengthLimitError>(
    ) {
        true => FetchError::TooLarge { most_bytes },
        false => FetchError::InvalidResponse { host: place.host.clone(), source },
    })?;
    let told = |name| Some(text(&head.headers, name)).filter(|value| !value.is_empty());
    Ok(Fetched::Document(Document {
        body: body.to_bytes(),
        content_type: told(CONTENT_TYPE),
        cache_control: told(CACHE_CONTROL),
        validators: Validators { etag: told(ETAG), last_modified: told(LAST_MODIFIED) },
    }))
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// A field as text; empty where there is none, or none that is text.
fn text(fields: &HeaderMap, name: HeaderName) -> String {
    fields.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}
