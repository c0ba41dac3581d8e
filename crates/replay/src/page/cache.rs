//! What the cache did, by class.

use super::html::Html;
use super::table;
use crate::cache_text;
use crate::format::{amount, percent};
use crate::report::{CacheReport, ClassCacheReport};
use crate::terminal::{Align, group_digits};

/// Writes the table.
pub(super) fn write(out: &mut Html, cache: Option<&CacheReport>) {
    let Some(cache) = cache else {
        out.raw("<p>No cache.</p>\n");
        return;
    };
    out.raw("<p>The cache ").text(cache_text::answered(cache));
    for text in cache_text::saved(cache).into_iter().chain([cache_text::source(cache)]) {
        out.raw("; ").text(text);
    }
    out.raw(".</p>\n");
    let row = |class: &ClassCacheReport| {
        [
            class.name.clone(),
            format!("{} of {}", group_digits(class.hits), group_digits(class.requests)),
            class.hit_share.map_or_else(|| "-".to_owned(), percent),
            group_digits(class.replaced_refusals),
            amount(class.saved.values().copied().sum()),
        ]
        .into_iter()
        .map(Html::from_text)
        .collect()
    };
    table::write(out, &HEAD, cache.classes.iter().map(row));
}

const HEAD: [(&str, Align); 5] = [
    ("Class", Align::Left),
    ("hits", Align::Right),
    ("hit share", Align::Right),
    ("instead of refusals", Align::Right),
    ("units saved", Align::Right),
];
