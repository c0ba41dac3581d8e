//! Active checks of the servers of an origin: requests of the gateway itself, which cost nothing here.

use super::error::is_own_shortage;
use super::servers::{Connected, OriginServers};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::fmt::Display;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::settings::HealthCheck;
use tidegate_policy::Timestamp;
use tokio::task::JoinSet;
use tracing::warn;

/// Interval at which the checks look for settings that turn them on.
const OFF_INTERVAL: Duration = Duration::from_secs(1);

/// Reason for which a check has no good response.
enum CheckError {
    /// The gateway has no socket for the check.
    OwnShortage(io::Error),
    /// The server did not respond, or with an error.
    Failed(String),
}

impl OriginServers {
    /// Checks each server once, if checks are on. Returns the time until the next check.
    pub(in crate::gateway) async fn check_all(self: Arc<Self>, now: impl Fn() -> Timestamp) -> Duration {
        let Some(check) = self.health_check() else { return OFF_INTERVAL };
        let mut checks = JoinSet::new();
        for index in 0..self.len() {
            let (servers, check) = (Arc::clone(&self), check.clone());
            checks.spawn(async move { (index, servers.check(index, &check).await) });
        }
        while let Some(checked) = checks.join_next().await {
            // Only if the runtime ends.
            let Ok((index, checked)) = checked else { continue };
            match checked {
                Ok(()) => self.record_response(index),
                Err(CheckError::OwnShortage(error)) => warn!(%error, "Origin could not be checked: {error}"),
                Err(CheckError::Failed(error)) => self.record_failure(index, &format!("check: {error}"), now()),
            }
        }
        check.interval
    }

    async fn check(&self, index: usize, check: &HealthCheck) -> Result<(), CheckError> {
        match tokio::time::timeout(check.timeout, self.response_to_check(index, &check.path)).await {
            Err(_) => Err(CheckError::Failed(format!("no response within {:?}", check.timeout))),
            Ok(Err(error)) => Err(error),
            Ok(Ok(status)) if status.is_client_error() || status.is_server_error() => {
                Err(CheckError::Failed(format!("status {status}")))
            }
            Ok(Ok(_)) => Ok(()),
        }
    }

    async fn response_to_check(&self, index: usize, path: &str) -> Result<StatusCode, CheckError> {
        let text = |error: &dyn Display| CheckError::Failed(error.to_string());
        let Connected { stream, is_http2 } =
            self.connect(index, None, false).await.map_err(|error| match is_own_shortage(&error) {
                true => CheckError::OwnShortage(error),
                false => text(&error),
            })?;
        let host = self.host(index);
        let scheme = stream.scheme();
        let request = Request::builder().header("user-agent", concat!("tidegate/", env!("CARGO_PKG_VERSION")));
        let request = match is_http2 {
            true => request.uri(format!("{scheme}://{host}{path}")),
            false => request.uri(path).header("host", host).header("connection", "close"),
        };
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| text(&error))?;
        let stream = TokioIo::new(stream);
        let response = if is_http2 {
            let (mut sender, connection) =
                http2::handshake(TokioExecutor::new(), stream).await.map_err(|error| text(&error))?;
            while_connected(connection, sender.send_request(request)).await
        } else {
            let (mut sender, connection) = http1::handshake(stream).await.map_err(|error| text(&error))?;
            while_connected(connection, sender.send_request(request)).await
        };
        response.map(|response| response.status()).map_err(|error| text(&error))
    }
}

/// Returns the output of `request`, sent over `connection`, which may end with the response.
async fn while_connected<T>(connection: impl Future, request: impl Future<Output = T>) -> T {
    let mut request = pin!(request);
    tokio::select! {
        response = &mut request => response,
        _ = connection => request.await,
    }
}
