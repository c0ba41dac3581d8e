//! Tree of the directories of a site, built from the paths in its log.
//!
//! If there are too many names, rare ones are merged into `*`. Therefore, the size of the tree is bounded for any log,
//! and invented paths only increase the count of a `*`.

use super::pattern::{Pattern, PatternSegment, literal_segment};
use std::collections::BTreeMap;

/// Tree of all paths of a log.
#[derive(Default)]
pub(super) struct PathTree {
    root: Directory,
    directory_count: usize,
}

/// A directory: all paths with a common prefix.
#[derive(Default)]
struct Directory {
    /// Number of requests for the directory and everything below it.
    request_count: u64,
    /// Requests for `/folder`.
    page: PageCounts,
    /// Requests for `/folder/`.
    index: PageCounts,
    /// Requests below the maximum depth.
    below_max_depth: PageCounts,
    named_children: BTreeMap<Box<str>, Directory>,
    wildcard_child: Option<Box<Directory>>,
}

/// Number of requests for one page, or for all pages of one pattern.
#[derive(Clone, Debug, Default)]
pub(super) struct PageCounts {
    pub(super) total: u64,
    /// Requests of people.
    pub(super) people: u64,
    /// Requests with a search parameter, by its index in [`SEARCH_PARAMETERS`].
    pub(super) searches: [u64; SEARCH_PARAMETERS.len()],
}

/// A request for a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageRequest<'a> {
    /// Normalized path.
    pub(super) path: &'a str,
    /// Query string, without the question mark.
    pub(super) query: Option<&'a str>,
    /// True if there is no evidence of a bot.
    pub(super) is_human: bool,
}

/// Pages that match one pattern.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) pattern: Pattern,
    pub(super) counts: PageCounts,
}

/// Common names of search parameters.
pub(super) const SEARCH_PARAMETERS: [&str; 7] = ["q", "s", "query", "search", "keyword", "keywords", "term"];

impl PathTree {
    /// Counts a page request.
    pub(super) fn add(&mut self, request: PageRequest<'_>) {
        let Self { root, directory_count: node_count } = self;
        let (dir, last) = root.walk(request.path, node_count);
        let counts = match last {
            LastSegment::TooDeep => &mut dir.below_max_depth,
            LastSegment::Name("") => &mut dir.index,
            LastSegment::Name(name) => {
                let child = dir.child(name, node_count);
                child.request_count += 1;
                &mut child.page
            }
        };
        counts.count(request);
        if self.directory_count > MAX_NODES {
            self.collapse_rare();
        }
    }

    /// Returns the patterns of all pages, busiest first. In a directory with many names, those with fewer than
    /// `min_weight` requests are merged into `*`.
    pub(super) fn patterns(mut self, min_weight: u64) -> Vec<Pages> {
        self.root.collapse(min_weight, 0);
        let mut pages = Vec::new();
        self.root.collect_pages(&Pattern::default(), &mut pages);
        pages.sort_by_key(|pages| std::cmp::Reverse(pages.counts.total));
        pages
    }

    /// Merges the rare names of every directory until half of the capacity is free.
    fn collapse_rare(&mut self) {
        let mut max_weight = 1;
        while self.directory_count > MAX_NODES / 2 {
            self.root.collapse_rare(max_weight);
            self.directory_count = self.root.count();
            max_weight *= 2;
        }
    }
}

/// Last segment of a path.
enum LastSegment<'a> {
    Name(&'a str),
    TooDeep,
}

impl Directory {
    /// Returns the directory of a path below this one, and the last segment of the path.
    fn walk<'a, 'b>(&'a mut self, path: &'b str, count: &mut usize) -> (&'a mut Self, LastSegment<'b>) {
        let path = path.strip_prefix('/').unwrap_or(path);
        let (dirs, last) = path.rsplit_once('/').map_or((None, path), |(dirs, last)| (Some(dirs), last));
        let mut dir = self;
        dir.request_count += 1;
        for (depth, segment) in dirs.into_iter().flat_map(|dirs| dirs.split('/')).enumerate() {
            if depth == MAX_DEPTH {
                return (dir, LastSegment::TooDeep);
            }
            dir = dir.child(segment, count);
            dir.request_count += 1;
        }
        (dir, LastSegment::Name(last))
    }

    fn child(&mut self, segment: &str, count: &mut usize) -> &mut Self {
        match literal_segment(segment) {
            Some(name) => {
                if !self.named_children.contains_key(name) {
                    *count += 1;
                    self.named_children.insert(name.into(), Self::default());
                }
                self.named_children.get_mut(name).expect("inserted above")
            }
            None => self.wildcard_child.get_or_insert_with(|| {
                *count += 1;
                Box::default()
            }),
        }
    }

    fn children(&mut self) -> impl Iterator<Item = &mut Self> {
        self.named_children.values_mut().chain(self.wildcard_child.as_deref_mut())
    }

    /// Merges names with at most `max_weight` requests, recursively.
    fn collapse_rare(&mut self, max_weight: u64) {
        self.merge_children(|child| child.request_count <= max_weight);
        self.children().for_each(|dir| dir.collapse_rare(max_weight));
    }

    /// Merges names in directories with many of them: those with fewer than `min_weight` requests or fewer than
    /// `share`. Names at the top level are sections; below it, a section needs a fifth of the requests of its directory.
    fn collapse(&mut self, min_weight: u64, share: u64) {
        let is_light = |child: &Self| child.request_count < min_weight.max(share);
        let light = self.named_children.values().filter(|child| is_light(child)).count();
        if self.wildcard_child.is_some() || light >= COLLAPSE_THRESHOLD {
            self.merge_children(is_light);
        }
        self.children().for_each(|dir| dir.collapse(min_weight, dir.request_count / 5));
    }

    fn merge_children(&mut self, is_merged: impl Fn(&Self) -> bool) {
        let merged: Vec<Self> =
            self.named_children.extract_if(.., |_, child| is_merged(child)).map(|(_, child)| child).collect();
        merged.into_iter().for_each(|child| self.wildcard_child.get_or_insert_default().merge(child));
    }

    fn merge(&mut self, other: Self) {
        self.request_count += other.request_count;
        self.page.add(&other.page);
        self.index.add(&other.index);
        self.below_max_depth.add(&other.below_max_depth);
        if let Some(wildcard_child) = other.wildcard_child {
            self.wildcard_child.get_or_insert_default().merge(*wildcard_child);
        }
        for (name, child) in other.named_children {
            self.named_children.entry(name).or_default().merge(child);
        }
    }

    fn count(&mut self) -> usize {
        self.children().map(|dir| 1 + dir.count()).sum()
    }

    fn collect_pages(self, prefix: &Pattern, pages: &mut Vec<Pages>) {
        let mut list = |pattern: Pattern, counts: PageCounts| {
            if counts.total > 0 {
                pages.push(Pages { pattern, counts });
            }
        };
        list(prefix.clone(), self.page);
        list(prefix.join(PatternSegment::Name("".into())), self.index);
        list(prefix.join(PatternSegment::Rest), self.below_max_depth);
        for (name, child) in self.named_children {
            child.collect_pages(&prefix.join(PatternSegment::Name(name)), pages);
        }
        if let Some(wildcard_child) = self.wildcard_child {
            wildcard_child.collect_pages(&prefix.join(PatternSegment::Any), pages);
        }
    }
}

impl PageCounts {
    fn count(&mut self, request: PageRequest<'_>) {
        self.total += 1;
        self.people += u64::from(request.is_human);
        let has = |parameter: &str| request.query.is_some_and(|query| has_parameter(query, parameter));
        if let Some(index) = SEARCH_PARAMETERS.iter().position(|parameter| has(parameter)) {
            self.searches[index] += 1;
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.total += other.total;
        self.people += other.people;
        for (count, addition) in self.searches.iter_mut().zip(other.searches) {
            *count += addition;
        }
    }
}

fn has_parameter(query: &str, parameter: &str) -> bool {
    query.split('&').any(|pair| pair.split('=').next() == Some(parameter))
}

/// Maximum number of directories, about 2 MiB. It exceeds the number for which anyone would write routes.
const MAX_NODES: usize = 8192;

/// Maximum depth at which directories are distinguished.
const MAX_DEPTH: usize = 8;

/// Number of rare names in a directory from which they are treated as items, not as sections.
const COLLAPSE_THRESHOLD: usize = 8;
