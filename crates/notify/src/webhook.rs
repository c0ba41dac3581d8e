//! One request to a webhook.

use crate::message;
use crate::notification::Notification;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::settings::{ReceiverUrl, Webhook};
use tidegate_tls::{ServerTrust, client_config};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Time limit of one request, from the lookup of the name to the head of the response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends notifications to one webhook.
#[derive(Clone)]
pub struct WebhookClient {
    webhook: Webhook,
    tls: TlsConnector,
    /// Name of this machine.
    host: String,
}

/// Reason why a notification was not accepted. It does not show the path of the URL, which may be a secret.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The receiver cannot be reached, its certificate is not trusted, or it does not answer in HTTP.
    #[error("{url}: {source}")]
    Unreachable {
        /// URL without path.
        url: String,
        /// Cause.
        source: io::Error,
    },
    /// No response in time.
    #[error("{0}: no response within {REQUEST_TIMEOUT:?}")]
    TimedOut(String),
    /// Another URL is named. It is not followed: it would be sent what the operator meant for this one.
    #[error("{url}: redirects (status {status}); write the URL that it leads to")]
    Redirect {
        /// URL without path.
        url: String,
        /// Status.
        status: StatusCode,
    },
    /// Any other status than one of success.
    #[error("{url}: answers with status {status}")]
    Status {
        /// URL without path.
        url: String,
        /// Status.
        status: StatusCode,
        /// Time to wait before the next attempt, if the response names one.
        retry_after: Option<Duration>,
    },
}

impl WebhookError {
    /// Returns true if another attempt may succeed.
    pub(super) fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut(_) => true,
            Self::Redirect { .. } => false,
            Self::Status { status, .. } => {
                status.is_server_error()
                    || matches!(*status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
            }
        }
    }

    /// Returns the time to wait that the receiver named.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl WebhookClient {
    /// Creates a client of `webhook` that trusts `servers`. `host` is the name of this machine.
    pub fn new(webhook: Webhook, servers: ServerTrust, host: String) -> Self {
        Self { webhook, tls: TlsConnector::from(Arc::new(client_config(servers))), host }
    }

    /// Returns where notifications are sent.
    pub fn url(&self) -> &ReceiverUrl {
        &self.webhook.url
    }

    /// Sends a notification. Any status 2xx accepts it.
    pub async fn send(&self, notification: &Notification) -> Result<(), WebhookError> {
        let url = self.url();
        let response = match tokio::time::timeout(REQUEST_TIMEOUT, self.exchange(notification)).await {
            Ok(response) => response.map_err(|source| WebhookError::Unreachable { url: url.to_string(), source })?,
            Err(_) => return Err(WebhookError::TimedOut(url.to_string())),
        };
        let (status, url) = (response.status(), url.to_string());
        match status {
            _ if status.is_success() => Ok(()),
            _ if status.is_redirection() => Err(WebhookError::Redirect { url, status }),
            _ => Err(WebhookError::Status { url, status, retry_after: retry_after(&response) }),
        }
    }

    async fn exchange(&self, notification: &Notification) -> io::Result<Response<Incoming>> {
        let url = self.url();
        let stream = TcpStream::connect((url.host.as_str(), url.port)).await?;
        let request = self.request(notification)?;
        match url.is_tls {
            false => exchange(stream, request).await,
            true => {
                let name = ServerName::try_from(url.host.clone()).map_err(io::Error::other)?;
                exchange(self.tls.connect(name, stream).await?, request).await
            }
        }
    }

    fn request(&self, notification: &Notification) -> io::Result<Request<Full<Bytes>>> {
        let Webhook { url, format, .. } = &self.webhook;
        let (content_type, body) = message::write(notification, *format, &self.host);
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = url.target.expose_secret().parse().map_err(io::Error::other)?;
        let fields = request.headers_mut();
        fields.insert(HOST, HeaderValue::try_from(url.authority()).map_err(io::Error::other)?);
        fields.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        fields.insert(USER_AGENT, HeaderValue::from_static(concat!("tidegate/", env!("CARGO_PKG_VERSION"))));
        Ok(request)
    }
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> io::Result<Response<Incoming>>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut connection, driver) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // Ends with the response, whose body is not read.
    tokio::spawn(driver);
    connection.send_request(request).await.map_err(io::Error::other)
}

/// Returns `Retry-After` in seconds. A date is not read: the next attempt follows soon enough without it.
fn retry_after(response: &Response<Incoming>) -> Option<Duration> {
    response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}
