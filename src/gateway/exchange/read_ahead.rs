//! Reception of the beginning of request bodies before the decision, where a rule asks what they say.

use super::known::Known;
use super::receive::{MAX_BODIES_PER_ADDRESS, next_frame, patience};
use crate::gateway::request_bodies::{MAX_BEGINNING, ReadBody};
use crate::gateway::transport::client_body::{BegunBody, ClientBody};
use crate::gateway::transport::connection_memory::MemoryCharge;
use crate::gateway::upstream::ClientBodyError;
use bytes::BytesMut;
use hyper::body::Body;
use std::rc::Rc;
use tidegate_http1::Name;

/// Receives the beginning of the body, and reads it. Returns the body, with all that was received.
///
/// The request holds no units meanwhile. A client that sends slowly, or leaves, is decided on by what was received; the error is
/// that of the body.
pub(in crate::gateway) async fn read_ahead(known: &mut Known, mut body: ClientBody) -> ClientBody {
    let (worker, config) = (Rc::clone(known.worker()), Rc::clone(&known.config));
    let Some(bodies) = config.request_bodies.as_ref() else { return body };
    let limits = &config.settings.limits;
    let counts = &worker.shared().body_counts;
    // One that sends too many bodies is refused later, as on other routes.
    let counted = counts.try_add(known.address_key(), MAX_BODIES_PER_ADDRESS);
    let started_at = worker.monotonic_now();
    let deadline = worker.upstream().new_deadline(limits.request_body_timeout);
    let mut charge = MemoryCharge::new(known.connection.connection_state.memory(), 0);
    let (mut received, mut trailers, mut error) = (BytesMut::new(), None, None);
    let mut is_whole = false;
    while counted.is_some() && received.len() <= MAX_BEGINNING {
        deadline.set_limit(patience(limits, received.len() as u64, started_at, worker.monotonic_tick().get()));
        match next_frame(&mut body, &deadline).await {
            Err(failed) => error = Some(failed),
            Ok(None) => is_whole = true,
            Ok(Some(frame)) => match frame.into_data() {
                Err(frame) => trailers = frame.into_trailers().ok(),
                Ok(data) => {
                    // Copied, because small parts would each keep the read buffer that they arrived in.
                    received.extend_from_slice(&data);
                    charge.set(received.capacity());
                }
            },
        }
        is_whole |= error.is_none() && body.is_end_stream();
        if is_whole || error.is_some() {
            break;
        }
    }
    let stated_length = || std::str::from_utf8(known.request.head.fields.get(Name::ContentLength)?).ok()?.parse().ok();
    let length = if is_whole { None } else { stated_length() };
    if received.len() as u64 > limits.max_body_size {
        error = Some(ClientBodyError::TooLarge);
    }
    let values = bodies.read(&received, is_whole, &known.request.head.fields);
    let length = length.unwrap_or(received.len() as u64);
    let (rules, facts) = (known.rules(), known.request.facts());
    let has_conditions = rules.possible_routes(&facts).any(|id| !rules[id].json.is_empty());
    if let Some(json) = bodies.matched(&values).filter(|_| has_conditions) {
        known.set_json(json);
    }
    known.read_body = Some(Box::new(ReadBody { values, length, error }));
    ClientBody::Begun(Box::new(BegunBody::new(received.freeze(), trailers, charge, body)))
}
