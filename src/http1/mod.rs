//! HTTP/1.1 on the wire, towards the origin and towards clients: heads parsed by `httparse`, framing and bodies here.
//!
//! Written for a proxy on one thread: a connection is a value without a task of its own, polled by whoever waits for
//! it, and its buffers serve message after message. Nothing here knows of rules, settings or time.
//!
//! [`framing`] decides how long a body is, and refuses what two readers could understand differently (RFC 9112
//! section 6); [`head`] and [`chunked`] read and write the parts of a message, [`body`] the whole of a body, [`buffer`]
//! moves the bytes.

mod body;
mod buffer;
mod chunked;
pub mod client;
mod date;
mod fields;
mod framing;
mod head;
mod message;
mod name;
pub mod server;
#[cfg(test)]
mod test_io;

pub use body::SendBody;
pub use date::DateCache;
pub(crate) use fields::list;
pub use fields::{Field, Fields, Value};
pub use framing::Malformed;
pub use head::Limits;
pub use message::{Request, RequestHead, Response};
pub use name::Name;
