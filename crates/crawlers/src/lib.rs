//! Who is asking: bots by user agent, crawlers by proof (address ranges, DNS, signatures), address lists, and robots.txt.

pub mod address_list_files;
pub mod network_databases;
mod network_list;
pub mod robots;
pub mod user_agents;
pub mod verify;
