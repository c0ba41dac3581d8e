//! What each command does, without its exit code: values in, text out.

pub mod check;
pub mod classify;
pub mod schema;
