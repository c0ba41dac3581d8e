//! Stored responses in files: a log of segments, with an index in memory.
//!
//! [`DiskStore`] is the whole interface. A thread of its own writes; a reader blocks for one read of
//! a file, or reads only what is in the page cache of the system, and never blocks. A record is found only once its body, its head and its entry in the index file are written, in this order, and each part has a
//! checksum: after a crash a record is whole, or it is not there. After a restart of the machine, which may have lost what
//! was not synced, only records before the last sync of their segment are found.
//!
//! A segment is a pair of files: `N.data` has bodies and heads, `N.index` one entry for each record, removal and invalidation. Only
//! the index files are read at the start. When the files reach their size, the oldest segment is deleted; its records that
//! were read since they were written move to the newest segment first (FIFO with a second chance).

mod body;
mod format;
mod groups;
mod load;
mod queue;
mod record;
mod segment;
mod shared;
mod store;
#[cfg(test)]
mod tests;
mod writer;

pub use body::DiskBody;
pub use format::{BLOCK, Label};
pub use groups::Groups;
pub use record::{DiskRecord, NewBody, NewRecord};
pub use segment::ReadMode;
pub use store::{DiskStats, DiskStore};
