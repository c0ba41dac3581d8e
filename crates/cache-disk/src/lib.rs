//! Stored responses in files: a log of segments, with an index in memory.
//!
//! [`DiskStore`] is the whole interface. A thread of its own writes; a reader blocks for one read of a file. A record
//! is found only once its body, its head and its entry in the index file are written, in this order, and each part has a
//! checksum: after a crash or a power cut a record is whole, or it is not there.
//!
//! A segment is a pair of files: `N.data` has bodies and heads, `N.index` one entry for each record and each removal. Only
//! the index files are read at the start. When the files reach their size, the oldest segment is deleted; its records that
//! were read since they were written move to the newest segment first (FIFO with a second chance).

mod body;
mod format;
mod load;
mod queue;
mod segment;
mod store;
mod writer;

pub use body::{BLOCK, DiskBody};
pub use format::Label;
pub use store::{DiskRecord, DiskStats, DiskStore, NewBody, NewRecord};
