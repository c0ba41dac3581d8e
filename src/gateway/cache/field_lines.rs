//! Header fields as the rules of the cache read them.

use tidegate_http_cache::FieldLines;
use tidegate_http1::Fields;

/// Fields of a message.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct MessageFields<'f>(pub(in crate::gateway) &'f Fields);

impl FieldLines for MessageFields<'_> {
    fn lines<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.0.get_all_by_text(name)
    }
}
