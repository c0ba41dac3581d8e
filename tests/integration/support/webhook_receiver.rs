//! A receiver of notifications on loopback.

use super::origin::{Origin, OriginConnection, ReceivedRequest};
use super::wait::wait_until;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;

/// A receiver, and the bodies that it was sent.
pub struct WebhookReceiver {
    server: Origin,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl WebhookReceiver {
    /// Starts a receiver that accepts every notification.
    pub fn accepting() -> Self {
        Self::with_script(|_, connection| connection.reply("204 No Content", "", b""))
    }

    /// Starts a receiver that runs `script` when it has read a request.
    pub fn with_script(script: impl Fn(&ReceivedRequest, &mut OriginConnection) + Send + Sync + 'static) -> Self {
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&bodies);
        let server = Origin::with_script(move |request, connection| {
            let body = connection.read_body(request);
            received.lock().push(String::from_utf8(body).expect("UTF-8"));
            script(request, connection);
        });
        Self { server, bodies }
    }

    /// Returns the YAML of a webhook, with `keys`, whose path is a secret.
    pub fn yaml(&self, keys: &str) -> String {
        format!("{{ webhook: \"http://{}/SECRET?token=SECRET\"{keys} }}", self.server.address())
    }

    /// Returns the requests that it was sent.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.server.received_requests()
    }

    /// Returns the bodies that it was sent.
    pub fn bodies(&self) -> Vec<String> {
        self.bodies.lock().clone()
    }

    /// Returns the events that it was sent, in JSON.
    pub fn events(&self) -> Vec<Value> {
        self.bodies().iter().map(|body| serde_json::from_str(body).expect("JSON")).collect()
    }

    /// Returns the names of these events.
    pub fn event_names(&self) -> Vec<String> {
        let name = |event: &Value| event["event"].as_str().expect("a name").to_owned();
        self.events().iter().map(name).collect()
    }

    /// Waits until it was sent `count` notifications.
    pub fn wait_for(&self, count: usize) {
        wait_until(&format!("{count} notifications, of {:?}", self.bodies()), || self.bodies().len() >= count);
    }
}
