//! HTTP/1.1 client and server.
//!
//! Designed for a proxy on one thread: a connection is a value without a task of its own, polled by its user, and its
//! buffers are reused for all messages. The package does not depend on rules, settings or time.
//!
//! [`framing`] determines the length of bodies and rejects ambiguous messages (RFC 9112 section 6). [`parser`] parses
//! the lines of heads. [`head`] and [`chunked`] read and write parts of a message, [`body`] whole bodies; [`buffer`] has the
//! buffers.

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
mod parser;
mod scan;
pub mod server;
#[cfg(test)]
mod test_io;

pub use body::SendBody;
pub use buffer::ReadBufferState;
pub use date::DateCache;
pub use fields::list;
pub use fields::{Field, FieldBlock, Fields, Value};
pub use framing::Malformed;
pub use head::HeadLimits;
pub use message::{Request, RequestHead, Response};
pub use name::{Name, NameSet};
