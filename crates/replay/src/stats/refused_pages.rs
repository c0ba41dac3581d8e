//! Pages that verified bots were refused; a search engine may drop them from its index.

use crate::decision::ReplayedDecision;
use crate::report::{NameLookup, RefusedPageReport};
use crate::request::ReplayRequest;
use foldhash::fast::FixedState;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use tidegate_policy::{OperatorId, Timestamp};

/// Pages, by a hash of operator, host, path and query. Further pages are ignored when the map is full.
#[derive(Default)]
pub(super) struct RefusedPages(HashMap<u64, RefusedPage, FixedState>);

struct RefusedPage {
    operator: OperatorId,
    page: Box<str>,
    refused: u64,
    first: Timestamp,
    last: Timestamp,
}

impl RefusedPages {
    pub(super) fn add(&mut self, decision: &ReplayedDecision, request: &ReplayRequest<'_>) {
        let Some(operator) = decision.classification.operator else { return };
        let hash = FixedState::default().hash_one((operator, request.host, &*request.path, request.query));
        let is_full = self.0.len() >= MAX_PAGES;
        let page = match self.0.entry(hash) {
            Entry::Vacant(_) if is_full => return,
            entry => entry.or_insert_with(|| RefusedPage {
                operator,
                page: page(request),
                refused: 0,
                first: decision.at,
                last: decision.at,
            }),
        };
        page.refused += 1;
        page.last = decision.at;
    }

    /// Returns the most often refused pages, in descending order.
    pub(super) fn report(&self, names: &NameLookup<'_>) -> Vec<RefusedPageReport> {
        let mut pages: Vec<&RefusedPage> = self.0.values().collect();
        pages.sort_by_key(|page| (Reverse(page.refused), page.first, page.operator, &page.page));
        let report = |page: &RefusedPage| RefusedPageReport {
            operator: names.operator(page.operator).to_owned(),
            page: page.page.to_string(),
            refused: page.refused,
            first: page.first,
            last: page.last,
        };
        pages.into_iter().take(MAX_PAGES_REPORTED).map(report).collect()
    }
}

fn page(request: &ReplayRequest<'_>) -> Box<str> {
    let query = request.query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{}{}{query}", request.host, request.path).chars().take(MAX_PAGE_LEN).collect::<String>().into()
}

/// Bounds memory, at a few hundred bytes each.
const MAX_PAGES: usize = 20_000;

/// Enough to show what kinds of pages they are.
const MAX_PAGES_REPORTED: usize = 100;

/// In characters; longer names are truncated.
const MAX_PAGE_LEN: usize = 300;
