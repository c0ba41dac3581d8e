//! Formats of other servers, each detected for its file.
//!
//! [`FileFormat`] turns a line into text that is read without its file: lines of the gateway, combined and common ones as
//! they are, those of other formats in the form of [`super::normalized`]. A format is a reader of JSON, of columns or of a
//! format string. Each gives [`record::FieldValues`], from which the request is made, and the client by one rule.

mod client_rule;
pub(super) mod collector;
pub(super) mod columns;
pub(super) mod field;
mod foreign;
mod json;
mod json_dialects;
mod record;
pub(super) mod template;
pub(super) mod template_syntax;
mod value;

#[cfg(test)]
mod tests;

pub(super) use foreign::{ForeignFormat, NamedFormat};
