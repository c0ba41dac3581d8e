//! Several responses of one URL.

use tidegate_policy::cache::vary::SelectingFields;

/// Request fields that select among the responses of a URL.
#[derive(Debug)]
pub(in crate::gateway) struct Variants {
    pub(in crate::gateway) selected_by: SelectingFields,
    /// Part of the keys of the responses. Without this entry, they are not found.
    pub(in crate::gateway) salt: u64,
    pub(in crate::gateway) url: Box<str>,
}
