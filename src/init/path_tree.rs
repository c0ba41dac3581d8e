//! Tree of the directories of a site, built from the paths in its log.
//!
//! If there are too many names, rare ones are merged into `*`. Therefore, the size of the tree is bounded for any log,
//! and invented paths only increase the count of a `*`.

use super::pattern::{Pattern, PatternSegment, name};
use std::collections::BTreeMap;

/// Tree of all paths of a log.
#[derive(Default)]
pub(super) struct Tree {
    root: Directory,
    folders: usize,
}

/// A directory: all paths with a common prefix.
#[derive(Default)]
struct Directory {
    /// Number of requests for the directory and everything below it.
    weight: u64,
    /// Requests for `/folder`.
    page: PageCounts,
    /// Requests for `/folder/`.
    index: PageCounts,
    /// Requests below the maximum depth.
    deeper: PageCounts,
    names: BTreeMap<Box<str>, Directory>,
    any: Option<Box<Directory>>,
}

/// Number of requests for one page, or for all pages of one pattern.
#[derive(Clone, Debug, Default)]
pub(super) struct PageCounts {
    pub(super) all: u64,
    /// Requests of people.
    pub(super) people: u64,
    /// Requests with a search parameter, by its index in [`SEARCHES`].
    pub(super) searches: [u64; SEARCHES.len()],
}

/// A request for a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageRequest<'a> {
    /// Normalized path.
    pub(super) path: &'a str,
    /// Query string, without the question mark.
    pub(super) query: Option<&'a str>,
    /// True if there is no evidence of a bot.
    pub(super) by_person: bool,
}

/// Pages that match one pattern.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) pattern: Pattern,
    pub(super) visits: PageCounts,
}

/// Common names of search parameters.
pub(super) const SEARCHES: [&str; 7] = ["q", "s", "query", "search", "keyword", "keywords", "term"];

impl Tree {
    /// Counts a page request.
    pub(super) fn add(&mut self, request: PageRequest<'_>) {
        let Self { root, folders: node_count } = self;
        let (dir, last) = root.walk(request.path, node_count);
        let counts = match last {
            LastSegment::Deeper => &mut dir.deeper,
            LastSegment::Name("") => &mut dir.index,
            LastSegment::Name(name) => {
                let child = dir.child(name, node_count);
                child.weight += 1;
                &mut child.page
            }
        };
        counts.count(request);
        if self.folders > MAX_NODES {
            self.collapse_rare();
        }
    }

    /// Returns the patterns of all pages, busiest first. In a directory with many names, those with fewer than
    /// `min_weight` requests are merged into `*`.
    pub(super) fn patterns(mut self, min_weight: u64) -> Vec<Pages> {
        self.root.collapse(min_weight, 0);
        let mut pages = Vec::new();
        self.root.list(&Pattern::default(), &mut pages);
        pages.sort_by_key(|pages| std::cmp::Reverse(pages.visits.all));
        pages
    }

    /// Merges the rare names of every directory until half of the capacity is free.
    fn collapse_rare(&mut self) {
        let mut max_weight = 1;
        while self.folders > MAX_NODES / 2 {
            self.root.collapse_rare(max_weight);
            self.folders = self.root.count();
            max_weight *= 2;
        }
    }
}

/// Last segment of a path.
enum LastSegment<'a> {
    Name(&'a str),
    Deeper,
}

impl Directory {
    /// Returns the directory of a path below this one, and the last segment of the path.
    fn walk<'a, 'b>(&'a mut self, path: &'b str, count: &mut usize) -> (&'a mut Self, LastSegment<'b>) {
        let path = path.strip_prefix('/').unwrap_or(path);
        let (dirs, last) = path.rsplit_once('/').map_or((None, path), |(dirs, last)| (Some(dirs), last));
        let mut dir = self;
        dir.weight += 1;
        for (depth, segment) in dirs.into_iter().flat_map(|dirs| dirs.split('/')).enumerate() {
            if depth == MAX_DEPTH {
                return (dir, LastSegment::Deeper);
            }
            dir = dir.child(segment, count);
            dir.weight += 1;
        }
        (dir, LastSegment::Name(last))
    }

    fn child(&mut self, segment: &str, count: &mut usize) -> &mut Self {
        match name(segment) {
            Some(name) => {
                if !self.names.contains_key(name) {
                    *count += 1;
                    self.names.insert(name.into(), Self::default());
                }
                self.names.get_mut(name).expect("inserted above")
            }
            None => self.any.get_or_insert_with(|| {
                *count += 1;
                Box::default()
            }),
        }
    }

    fn folders(&mut self) -> impl Iterator<Item = &mut Self> {
        self.names.values_mut().chain(self.any.as_deref_mut())
    }

    /// Merges names with at most `max_weight` requests, recursively.
    fn collapse_rare(&mut self, max_weight: u64) {
        self.merge_children(|child| child.weight <= max_weight);
        self.folders().for_each(|dir| dir.collapse_rare(max_weight));
    }

    /// Merges names in directories with many of them: those with fewer than `min_weight` requests or fewer than
    /// `share`. Names at the top level are sections; below it, a section needs a fifth of the requests of its directory.
    fn collapse(&mut self, min_weight: u64, share: u64) {
        let is_light = |child: &Self| child.weight < min_weight.max(share);
        let light = self.names.values().filter(|child| is_light(child)).count();
        if self.any.is_some() || light >= COLLAPSE_THRESHOLD {
            self.merge_children(is_light);
        }
        self.folders().for_each(|dir| dir.collapse(min_weight, dir.weight / 5));
    }

    fn merge_children(&mut self, is_merged: impl Fn(&Self) -> bool) {
        let merged: Vec<Self> =
            self.names.extract_if(.., |_, child| is_merged(child)).map(|(_, child)| child).collect();
        merged.into_iter().for_each(|child| self.any.get_or_insert_default().absorb(child));
    }

    fn absorb(&mut self, other: Self) {
        self.weight += other.weight;
        self.page.add(&other.page);
        self.index.add(&other.index);
        self.deeper.add(&other.deeper);
        if let Some(any) = other.any {
            self.any.get_or_insert_default().absorb(*any);
        }
        for (name, child) in other.names {
            self.names.entry(name).or_default().absorb(child);
        }
    }

    fn count(&mut self) -> usize {
        self.folders().map(|dir| 1 + dir.count()).sum()
    }

    fn list(self, prefix: &Pattern, pages: &mut Vec<Pages>) {
        let mut list = |pattern: Pattern, counts: PageCounts| {
            if counts.all > 0 {
                pages.push(Pages { pattern, visits: counts });
            }
        };
        list(prefix.clone(), self.page);
        list(prefix.join(PatternSegment::Name("".into())), self.index);
        list(prefix.join(PatternSegment::Rest), self.deeper);
        for (name, child) in self.names {
            child.list(&prefix.join(PatternSegment::Name(name)), pages);
        }
        if let Some(any) = self.any {
            any.list(&prefix.join(PatternSegment::Any), pages);
        }
    }
}

impl PageCounts {
    fn count(&mut self, request: PageRequest<'_>) {
        self.all += 1;
        self.people += u64::from(request.by_person);
        let has = |parameter: &str| request.query.is_some_and(|query| has_parameter(query, parameter));
        if let Some(index) = SEARCHES.iter().position(|parameter| has(parameter)) {
            self.searches[index] += 1;
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.all += other.all;
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
