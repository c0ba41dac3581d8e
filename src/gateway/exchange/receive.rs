//! Reception of request bodies: whole, before the request takes slots, so that a client that sends slowly holds none.

use crate::gateway::exchange::journal::Journal;
use crate::gateway::transport::client_body::{BodyError, ClientBody};
use crate::gateway::transport::connection_memory::MemoryCharge;
use crate::gateway::transport::connection_timeouts::MIN_RATE_GRACE;
use crate::gateway::transport::spool::{SpoolError, SpoolFile};
use crate::gateway::upstream::{ClientBodyError, Deadline, ReceivedBody, RequestBody};
use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame};
use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tidegate_config::settings::Limits;
use tidegate_policy::Timestamp;

/// Maximum number of bodies that one address sends at once. Each holds the units of its request.
pub(in crate::gateway) const MAX_BODIES_PER_ADDRESS: NonZeroUsize = NonZeroUsize::new(64).expect("not zero");

/// A body in reception: its beginning in memory, the rest in a file.
struct Reception<'a> {
    limits: &'a Limits,
    memory: BytesMut,
    charge: MemoryCharge,
    file: Option<SpoolFile>,
    length: u64,
}

/// Receives the request body whole.
pub(in crate::gateway) async fn receive_body(
    journal: &Journal,
    mut body: ClientBody,
) -> Result<RequestBody, ClientBodyError> {
    let (worker, config) = (journal.worker(), &journal.known.config);
    let limits = &config.settings.limits;
    if body.size_hint().lower() > limits.max_body_size {
        journal.known.connection.drain_body(&journal.known.request.head, body);
        return Err(ClientBodyError::TooLarge);
    }
    let counts = &worker.shared().body_counts;
    let Some(_counted) = counts.try_add(journal.known.address_key(), MAX_BODIES_PER_ADDRESS) else {
        journal.known.connection.drain_body(&journal.known.request.head, body);
        return Err(ClientBodyError::NoSpace);
    };
    let started_at = worker.monotonic_now();
    let deadline = worker.upstream().new_deadline(limits.request_body_timeout);
    let charge = journal.client.charge_memory(0);
    let mut reception = Reception { limits, memory: BytesMut::new(), charge, file: None, length: 0 };
    let mut trailers = None;
    let result = loop {
        deadline.set_limit(patience(limits, reception.length, started_at, worker.monotonic_tick().get()));
        match next_frame(&mut body, &deadline).await {
            Err(error) => break Err(error),
            Ok(None) => break Ok(()),
            Ok(Some(frame)) => match frame.into_data() {
                Err(frame) => trailers = frame.into_trailers().ok(),
                Ok(data) => {
                    if let Err(error) = store(&mut reception, journal, data).await {
                        break Err(error);
                    }
                }
            },
        }
        if body.is_end_stream() {
            break Ok(());
        }
    };
    if let Err(error) = result {
        journal.known.connection.drain_body(&journal.known.request.head, body);
        return Err(error);
    }
    Ok(ReceivedBody::new(reception.memory.freeze(), reception.charge, reception.file, trailers).into())
}

/// Stores a part of the body: in memory up to `limits.buffer_body`, then in a file. How the body is cut into parts does
/// not matter.
async fn store(reception: &mut Reception<'_>, journal: &Journal, mut data: Bytes) -> Result<(), ClientBodyError> {
    let Reception { limits, memory, charge, file, length } = reception;
    *length += data.len() as u64;
    if *length > limits.max_body_size {
        return Err(ClientBodyError::TooLarge);
    }
    let room = limits.buffer_body.saturating_sub(memory.len());
    if file.is_none() && room > 0 {
        // Copied, because small parts would each keep the read buffer that they arrived in.
        memory.extend_from_slice(&data.split_to(data.len().min(room)));
        charge.set(memory.capacity());
    }
    if data.is_empty() {
        return Ok(());
    }
    let shared = journal.worker().shared();
    let no_space = |error: SpoolError| {
        shared.record_spool_failure(&error);
        ClientBodyError::NoSpace
    };
    let file = match file {
        Some(file) => file,
        None => {
            let dir = &journal.known.config.settings.state_dir;
            let created = SpoolFile::create(dir, journal.known.address_key(), &shared.spool_usage);
            file.insert(created.map_err(no_space)?)
        }
    };
    file.append(data, limits.buffer_disk).await.map_err(no_space)
}

/// Returns the time until the next part must arrive after `length` bytes: neither a long pause, nor less than the least rate.
pub(in crate::gateway) fn patience(limits: &Limits, length: u64, started_at: Timestamp, now: Timestamp) -> Duration {
    let due = Duration::from_secs_f64(length as f64 / limits.min_rate.max(1) as f64);
    let left = (started_at + MIN_RATE_GRACE + due).saturating_duration_since(now);
    limits.request_body_timeout.min(if limits.min_rate == 0 { Duration::MAX } else { left })
}

/// Waits for the next frame, `None` at the end of the body.
pub(in crate::gateway) async fn next_frame(
    body: &mut ClientBody,
    deadline: &Deadline,
) -> Result<Option<Frame<Bytes>>, ClientBodyError> {
    let frame = poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
        Poll::Pending if deadline.poll_expired(cx) => Poll::Ready(Some(Err(BodyError::TimedOut))),
        polled => polled,
    });
    let received = frame.await;
    deadline.reset();
    match received {
        None => Ok(None),
        Some(Ok(frame)) => Ok(Some(frame)),
        Some(Err(BodyError::TimedOut)) => Err(ClientBodyError::TooSlow),
        Some(Err(_)) => Err(ClientBodyError::Aborted),
    }
}
