//! Requests that the gateway makes itself to fill the cache: a queue to the workers, which fetch like for a client.

use http::{StatusCode, Uri};
use std::sync::Arc;
use tidegate_http1::Fields;
use tidegate_policy::cache::CacheFill;
use tokio::sync::{Mutex, mpsc, oneshot};

/// Most requests that wait for a worker.
const MAX_WAITING: usize = 64;

/// A request of the gateway itself.
pub(in crate::gateway) struct FillRequest {
    /// URL with scheme and host.
    pub(in crate::gateway) url: Uri,
    /// Request fields that select the stored response.
    pub(in crate::gateway) fields: Fields,
    /// Name of the class that it is made for.
    pub(in crate::gateway) class: Arc<str>,
    pub(in crate::gateway) fill: CacheFill,
    pub(in crate::gateway) reply: oneshot::Sender<Result<FillOutcome, String>>,
}

/// Response to a request of the gateway itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillOutcome {
    /// Status of the response.
    pub status: u16,
    /// The gateway refused the request, or the page is to be asked for later.
    pub is_refused: bool,
    /// The response was fetched whole and is stored.
    pub is_stored: bool,
    /// What the cache of the gateway did, as in `Cache-Status`; empty if it had no part in the request.
    pub cache_status: String,
    /// `Retry-After` of a refusal, in seconds.
    pub retry_after_s: Option<u64>,
}

impl FillOutcome {
    /// Returns the outcome of a request that was not made: for a page of another host than that of its sitemap.
    pub(in crate::gateway) fn of_another_host() -> Self {
        Self {
            cache_status: "tidegate; detail=other-host".to_owned(),
            ..Self::undecided(StatusCode::MISDIRECTED_REQUEST)
        }
    }

    /// Returns the outcome of a request that was answered with `status` before its decision.
    pub(in crate::gateway) fn undecided(status: StatusCode) -> Self {
        let status = status.as_u16();
        Self { status, is_refused: false, is_stored: false, cache_status: String::new(), retry_after_s: None }
    }

    /// Returns the outcome of a request whose response ended before its end.
    pub(in crate::gateway) fn incomplete() -> Self {
        Self { cache_status: "tidegate; detail=incomplete".to_owned(), ..Self::undecided(StatusCode::BAD_GATEWAY) }
    }
}

/// Queue of the gateway's own requests.
pub(in crate::gateway) struct FillQueue {
    sender: mpsc::Sender<FillRequest>,
    receiver: Mutex<mpsc::Receiver<FillRequest>>,
}

impl FillQueue {
    pub(super) fn new() -> Self {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        Self { sender, receiver: Mutex::new(receiver) }
    }

    /// Sends a request to a worker. Returns false if too many wait.
    pub(in crate::gateway) fn send(&self, request: FillRequest) -> bool {
        self.sender.try_send(request).is_ok()
    }

    /// Returns the next request for a worker.
    pub(in crate::gateway) async fn next(&self) -> Option<FillRequest> {
        self.receiver.lock().await.recv().await
    }
}
