//! The site as a tree of folders, as far as its log shows it.
//!
//! Names that come seldom are put together as `*` whenever there are too many, so the tree stays small however long the log
//! is, and whoever makes up paths only adds to a `*`.

use super::pattern::{Pattern, PatternSegment, name};
use std::collections::BTreeMap;

/// All paths of a log.
#[derive(Default)]
pub(super) struct Tree {
    root: Folder,
    folders: usize,
}

/// One folder: whatever has the same path up to here.
#[derive(Default)]
struct Folder {
    /// All requests for it and what is in it.
    weight: u64,
    /// For `/folder`.
    page: PageCounts,
    /// For `/folder/`.
    index: PageCounts,
    /// For what lies too deep to be told apart.
    deeper: PageCounts,
    names: BTreeMap<Box<str>, Folder>,
    any: Option<Box<Folder>>,
}

/// The requests for one page, or for pages of one pattern.
#[derive(Clone, Debug, Default)]
pub(super) struct PageCounts {
    pub(super) all: u64,
    /// Those of people.
    pub(super) people: u64,
    /// Those with a parameter that is a search, by its place in [`SEARCHES`].
    pub(super) searches: [u64; SEARCHES.len()],
}

/// A request for a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageRequest<'a> {
    /// Its normalised path.
    pub(super) path: &'a str,
    /// What follows the question mark.
    pub(super) query: Option<&'a str>,
    /// Whether nothing says that a bot asks.
    pub(super) by_person: bool,
}

/// Pages of one pattern.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) pattern: Pattern,
    pub(super) visits: PageCounts,
}

/// Parameters that sites give what somebody searches for.
pub(super) const SEARCHES: [&str; 7] = ["q", "s", "query", "search", "keyword", "keywords", "term"];

impl Tree {
    /// Counts a page.
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

    /// The patterns of all pages, busiest first. Where a folder has many names, those that have less than `heavy`
    /// requests stand together as `*`.
    pub(super) fn patterns(mut self, heavy: u64) -> Vec<Pages> {
        self.root.collapse(heavy, 0);
        let mut pages = Vec::new();
        self.root.list(&Pattern::default(), &mut pages);
        pages.sort_by_key(|pages| std::cmp::Reverse(pages.visits.all));
        pages
    }

    /// Puts the seldom names of every folder together, until half of the room is free.
    fn collapse_rare(&mut self) {
        let mut seldom = 1;
        while self.folders > MAX_NODES / 2 {
            self.root.collapse_rare(seldom);
            self.folders = self.root.count();
            seldom *= 2;
        }
    }
}

/// What a path has behind its last folder.
enum LastSegment<'a> {
    Name(&'a str),
    Deeper,
}

impl Folder {
    /// The folder of a path below this one, and what it has of it.
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
                self.names.get_mut(name).expect("it is there by now")
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

    /// Puts names together that came no more often than that.
    fn collapse_rare(&mut self, seldom: u64) {
        self.merge_children(|child| child.weight <= seldom);
        self.folders().for_each(|folder| folder.collapse_rare(seldom));
    }

    /// Puts names together where many stand for things: those with less than `heavy` requests or less than `share`. What
    /// lies at the top are sections; below, one that stands out has a fifth of its folder.
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

/// More than a site has that a person would write routes for; about 2 MiB of them.
const MAX_NODES: usize = 8192;

/// How deep folders are told apart.
const MAX_DEPTH: usize = 8;

/// So many seldom names in a folder are things, not sections.
const COLLAPSE_THRESHOLD: usize = 8;
