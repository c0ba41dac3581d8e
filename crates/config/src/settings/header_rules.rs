//! Changes of the heads of messages on a route.

use super::Rewrite;
use std::fmt;

/// Changes of requests to the origin, and of the header fields of responses to clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderRules {
    /// Path of requests to the origin; `None` for the client's.
    pub rewrite: Option<Rewrite>,
    /// Changes of requests to the origin.
    pub request: FieldChanges,
    /// Changes of responses to clients.
    pub response: FieldChanges,
}

/// Changes of header fields. No name occurs twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldChanges {
    /// Fields that replace those of the same name.
    pub set: Vec<HeaderField>,
    /// Fields that are appended.
    pub add: Vec<HeaderField>,
    /// Names of fields to remove, in lower case.
    pub remove: Vec<String>,
}

/// A header field of the file.
#[derive(Clone, PartialEq, Eq)]
pub struct HeaderField {
    /// Name as the file spells it.
    pub name: String,
    /// Value: visible ASCII characters, and spaces and tabs between them.
    pub value: String,
}

impl FieldChanges {
    /// Returns true if there are no changes.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty() && self.remove.is_empty()
    }

    /// Iterates over the names of the fields that do not stay.
    pub fn replaced_names(&self) -> impl Iterator<Item = &str> {
        self.set.iter().map(|field| field.name.as_str()).chain(self.remove.iter().map(String::as_str))
    }

    /// Iterates over the new fields.
    pub fn new_fields(&self) -> impl Iterator<Item = &HeaderField> {
        self.set.iter().chain(&self.add)
    }
}

/// Omits the value, which may be a credential.
impl fmt::Debug for HeaderField {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("HeaderField").field("name", &self.name).finish_non_exhaustive()
    }
}
