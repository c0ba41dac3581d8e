//! robots.txt: the origin's own text with what the gate asks of crawlers written in.

mod asked;
mod merge;
mod page;
mod text;

pub use asked::Wishes;
pub use merge::merged;
