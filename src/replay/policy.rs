//! A policy that is tried on a log: settings, and what they refer to.

use crate::config::Settings;
use crate::policy::lists::Lists;
use crate::verify::Operators;

/// One file, as a gate would have started with it.
pub struct Policy {
    /// What it is called in reports: its file.
    pub name: String,
    /// What it says.
    pub settings: Settings,
    /// The operators of crawlers under these settings. Nobody is asked about them: there is no network here.
    pub operators: Operators,
    /// The networks of its address lists.
    pub lists: Lists,
}
