//! Tree of the directories of a site, built from the paths in its log.
//!
//! If there are too many names, rare ones are merged into `*`. Therefore, the size of the tree is bounded for any log,
//! and invented paths only increase the count of a `*`.

use super::pattern::{Pattern, PatternSegment, name};
use std::collections::BTreeMap;

/// Tree of all paths of a log.
#[derive(Default)]
pub(super) struct Tree {
    root: Folder,
    folders: usize,
}

/// A directory: all paths with a common prefix.
#[derive(Default)]
struct Folder {
    /// Number of requests for the directory and everything below it.
    weight: u64,
    /// Requests for `/folder`.
    page: PageCounts,
    /// Requests for `/folder/`.
    index: PageCounts,
    /// Requests below the maximum depth.
    deeper: PageCounts,
    names: BTreeMap<Box<str>, Folder>,
    any: Option<Box<Folder>>,
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
    pub(super) fn add(&mut self, visit: PageRequest<'_>) {
        let Self { root, folders } = self;
        let (folder, last) = root.walk(visit.path, folders);
        let visits = match last {
            LastSegment::Deeper => &mut folder.deeper,
            LastSegment::Name("") => &mut folder.index,
            LastSegment::Name(name) => {
                let child = folder.child(name, folders);
                child.weight += 1;
                &mut child.page
            }
        };
        visits.count(visit);
        if self.folders > MAX_NODES {
            self.collapse_rare();
        }
    }

    /// Returns the patterns of all pages, busiest first. In a directory with many names, those with fewer than `heavy`
    /// requests are merged into `*`.
    pub(super) fn patterns(mut self, heavy: u64) -> Vec<Pages> {
        self.root.collapse(heavy, 0);
        let mut pages = Vec::new();
        self.root.list(&Pattern::default(), &mut pages);
        pages.sort_by_key(|pages| std::cmp::Reverse(pages.visits.all));
        pages
    }

    /// Merges the rare names of every directory until half of the capacity is free.
    fn collapse_rare(&mut self) {
        let mut seldom = 1;
        while self.folders > MAX_NODES / 2 {
            self.root.collapse_rare(seldom);
            self.folders = self.root.count();
            seldom *= 2;
        }
    }
}

/// Last segment of a path.
enum LastSegment<'a> {
    Name(&'a str),
    Deeper,
}

impl Folder {
    /// Returns the directory of a path below this one, and the last segment of the path.
    fn walk<'a, 'b>(&'a mut self, path: &'b str, count: &mut usize) -> (&'a mut Self, LastSegment<'b>) {
        let path = path.strip_prefix('/').unwrap_or(path);
        let (folders, last) = path.rsplit_once('/').map_or((None, path), |(folders, last)| (Some(folders), last));
        let mut folder = self;
        folder.weight += 1;
        for (depth, segment) in folders.into_iter().flat_map(|folders| folders.split('/')).enumerate() {
            if depth == MAX_DEPTH {
                return (folder, LastSegment::Deeper);
            }
            folder = folder.child(segment, count);
            folder.weight += 1;
        }
        (folder, LastSegment::Name(last))
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

    /// Merges names with at most `seldom` requests, recursively.
    fn collapse_rare(&mut self, seldom: u64) {
        self.merge_children(|child| child.weight <= seldom);
        self.folders().for_each(|folder| folder.collapse_rare(seldom));
    }

    /// Merges names in directories with many of them: those with fewer than `heavy` requests or fewer than `share`.
    /// Names at the top level are sections; below it, a section needs a fifth of the requests of its directory.
    fn collapse(&mut self, heavy: u64, share: u64) {
        let is_light = |child: &Self| child.weight < heavy.max(share);
        let light = self.names.values().filter(|child| is_light(child)).count();
        if self.any.is_some() || light >= COLLAPSE_THRESHOLD {
            self.merge_children(is_light);
        }
        self.folders().for_each(|folder| folder.collapse(heavy, folder.weight / 5));
    }

    fn merge_children(&mut self, which: impl Fn(&Self) -> bool) {
        let together: Vec<Self> = self.names.extract_if(.., |_, child| which(child)).map(|(_, child)| child).collect();
        together.into_iter().for_each(|child| self.any.get_or_insert_default().absorb(child));
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
        self.folders().map(|folder| 1 + folder.count()).sum()
    }

    fn list(self, here: &Pattern, pages: &mut Vec<Pages>) {
        let mut list = |pattern: Pattern, visits: PageCounts| {
            if visits.all > 0 {
                pages.push(Pages { pattern, visits });
            }
        };
        list(here.clone(), self.page);
        list(here.join(PatternSegment::Name("".into())), self.index);
        list(here.join(PatternSegment::Rest), self.deeper);
        for (name, child) in self.names {
            child.list(&here.join(PatternSegment::Name(name)), pages);
        }
        if let Some(any) = self.any {
            any.list(&here.join(PatternSegment::Any), pages);
        }
    }
}

impl PageCounts {
    fn count(&mut self, visit: PageRequest<'_>) {
        self.all += 1;
        self.people += u64::from(visit.by_person);
        let named = |parameter: &str| visit.query.is_some_and(|query| has_parameter(query, parameter));
        if let Some(place) = SEARCHES.iter().position(|parameter| named(parameter)) {
            self.searches[place] += 1;
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.all += other.all;
        self.people += other.people;
        for (count, more) in self.searches.iter_mut().zip(other.searches) {
            *count += more;
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
