//! The newcomer's first minute: an origin with a small quota, a gate before it, and a day of traffic.

mod chance;
mod crawlers;
pub mod crowd;
pub mod day;
pub mod origin;
mod people;
pub mod scrape;
pub mod site;

pub use crawlers::HOSTING_NETWORKS;
