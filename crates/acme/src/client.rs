//! HTTPS towards an ACME server: one connection for each of the few requests of an order.

use bytes::Bytes;
use http::header::{HOST, HeaderValue, RETRY_AFTER};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::Timestamp;
use tidegate_tls::{ServerTrust, client_config, is_authority_as_server};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Time limit of one request, from the lookup of the name to the last byte.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a response: a chain of certificates has a few kilobytes.
const MAX_RESPONSE: usize = 1 << 20;
const HTTPS_PORT: u16 = 443;

/// Client of an ACME server.
#[derive(Clone)]
pub struct AcmeClient {
    tls: TlsConnector,
    /// `Retry-After` of the last response, if it was an error and had one.
    retry_after: Arc<Mutex<Option<HeaderValue>>>,
}

impl AcmeClient {
    /// Creates a client that trusts `servers` only.
    pub fn new(servers: ServerTrust) -> Self {
        Self { tls: TlsConnector::from(Arc::new(client_config(servers))), retry_after: Arc::default() }
    }

    /// Returns the time for which the last response asks to wait, if it does. `now` is the wall-clock time.
    pub(super) fn retry_after(&self, now: Timestamp) -> Option<Duration> {
        let value = self.retry_after.lock().clone()?;
        let text = value.to_str().ok()?.trim();
        if let Ok(seconds) = text.parse() {
            return Some(Duration::from_secs(seconds));
        }
        let date = httpdate::parse_http_date(text).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(Duration::from_secs(date.as_secs().saturating_sub(now.seconds())))
    }

    /// Sends a request and receives the response whole.
    async fn send(&self, request: Request<BodyWrapper<Bytes>>) -> Result<Response<Full<Bytes>>, Error> {
        let other = |error: &dyn fmt::Display, host: &str| Error::Other(format!("{host}: {error}").into());
        let (head, body) = request.into_parts();
        let target = head.uri;
        let authority = target.authority().filter(|_| target.scheme() == Some(&Scheme::HTTPS));
        let authority = authority.ok_or_else(|| other(&"not an https:// URL", &target.to_string()))?;
        let host = authority.host();
        let response = self.exchange(authority, &target, (head.method, head.headers, body)).await;
        let (head, body) = response.map_err(|error| other(&error, host))?.into_parts();
        if head.status.is_client_error() || head.status.is_server_error() {
            *self.retry_after.lock() = head.headers.get(RETRY_AFTER).cloned();
        }
        let body = Limited::new(body, MAX_RESPONSE).collect().await.map_err(|error| other(&error, host))?.to_bytes();
        Ok(Response::from_parts(head, Full::new(body)))
    }

    async fn exchange(
        &self,
        authority: &Authority,
        target: &Uri,
        (method, mut headers, body): (http::Method, http::HeaderMap, BodyWrapper<Bytes>),
    ) -> io::Result<Response<hyper::body::Incoming>> {
        let host = authority.host().trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(HTTPS_PORT))).await?;
        let stream = self.tls.connect(name, stream).await.map_err(handshake_error)?;
        let (mut connection, driver) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // The connection ends with the body and is not reused.
        tokio::spawn(driver);
        let host = HeaderValue::from_str(authority.as_str()).map_err(io::Error::other)?;
        headers.insert(HOST, host);
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        *request.uri_mut() = target.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")).into();
        connection.send_request(request).await.map_err(io::Error::other)
    }
}

/// Returns the error of a handshake, with what would do about the certificate.
fn handshake_error(error: io::Error) -> io::Error {
    match error.get_ref().and_then(|reason| reason.downcast_ref()) {
        Some(reason) if is_authority_as_server(reason) => io::Error::new(
            error.kind(),
            format!(
                "{error}; it is one of an authority: name exactly it in acme.ca, or issue one for the server, without CA:TRUE"
            ),
        ),
        _ => error,
    }
}

impl HttpClient for AcmeClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            *client.retry_after.lock() = None;
            match tokio::time::timeout(REQUEST_TIMEOUT, client.send(request)).await {
                Ok(response) => response.map(BytesResponse::from),
                Err(_) => Err(Error::Other(format!("no response within {REQUEST_TIMEOUT:?}").into())),
            }
        })
    }
}

impl fmt::Debug for AcmeClient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("AcmeClient").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let client = AcmeClient::new(rustls::RootCertStore::empty().into());
        let now = Timestamp::from_seconds(1_000_000_000);
        let wait = |value: &'static str| {
            *client.retry_after.lock() = Some(HeaderValue::from_static(value));
            client.retry_after(now).map(|wait| wait.as_secs())
        };
        assert_eq!(wait("120"), Some(120));
        assert_eq!(wait("Sun, 09 Sep 2001 01:47:40 GMT"), Some(60));
        assert_eq!(wait("Sun, 09 Sep 2001 01:00:00 GMT"), Some(0));
        assert_eq!(wait("soon"), None);
    }
}
