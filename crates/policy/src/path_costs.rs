//! Costs of paths whose route has none, learned from the reports of the origin by the shape of the path.
//!
//! A shape costs what was reported for it, until the end of the process: responses without a cost do not change that. A
//! directory in which many shapes cost becomes one shape. A shape that was seen to be free stays free while it is used; single
//! paths of it that cost are exceptions, until there are many. Everything is bounded, whatever clients request.

use super::cost::CostEstimate;
use super::facts::RequestFacts;
use super::free_shapes::FreeShapes;
use super::path_shape::PathShape;
use super::units::Units;
use std::collections::{BTreeMap, BTreeSet};

/// Number of a quota that survives a reload.
pub type QuotaNumber = usize;

/// Costs learned for paths without a route cost.
#[derive(Clone, Debug, Default)]
pub struct PathCosts {
    /// Costs by shape; `/shop/**` is that of all paths below `/shop/`.
    by_shape: BTreeMap<String, LearnedCosts>,
    /// Costs of single paths whose shape is free.
    exceptions: BTreeMap<String, LearnedCosts>,
    /// Shapes of which no path costs.
    free: FreeShapes,
    /// Shapes that were known to be free before some of their paths cost. None is forgotten: it would become free again.
    mixed: BTreeMap<PathShape, MixedShape>,
}

/// What was learned about the cost of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathCost<'a> {
    /// No cost was reported, and too few responses without one.
    Unknown,
    /// The path is known to be free.
    Free,
    /// Expected cost by quota.
    Costs(&'a [(QuotaNumber, Units)]),
}

/// Reports of the origin for a shape or path.
#[derive(Clone, Debug, Default)]
struct LearnedCosts {
    expected: Vec<(QuotaNumber, Units)>,
    reported: Vec<(QuotaNumber, Units)>,
    /// Origin of the costs of a directory in which many shapes cost.
    generalization: Option<Generalization>,
}

/// Shapes whose costs became the cost of their directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Generalization {
    /// Number of the shapes.
    pub shapes: usize,
    /// Some of the shapes, at most [`MAX_EXAMPLES`].
    pub examples: Vec<String>,
}

/// Units that the origin reported for a shape or path in one quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedCost<'a> {
    /// The shape or path.
    pub path: &'a str,
    /// Number of the quota.
    pub quota: QuotaNumber,
    /// Sum of the reports.
    pub units: Units,
    /// Shapes from which the cost was generalized; `None` if it was reported for `path` itself.
    pub generalization: Option<&'a Generalization>,
}

/// A shape that was known to be free before some of its paths cost.
#[derive(Clone, Copy, Debug, Default)]
struct MixedShape {
    /// Number of its paths that cost.
    exceptions: usize,
    /// True if too many of its paths cost: the shape costs, and does not become free again.
    costs: bool,
}

/// Most shapes with a cost in one directory; with more, everything in it costs.
pub const MAX_SHAPES_PER_DIRECTORY: usize = 8;
/// Most paths of a free shape that cost; with more, the shape costs.
pub const MAX_EXCEPTIONS: usize = 8;
/// Most examples of a generalization.
pub const MAX_EXAMPLES: usize = 3;
/// Most shapes with a cost.
const MAX_SHAPES: usize = 512;
/// Most shapes that were known to be free before some of their paths cost. A further one costs.
const MAX_MIXED_SHAPES: usize = 2048;
const MAX_EXCEPTIONS_IN_ALL: usize = 1024;
/// Bytes by which two paths of a free shape are told apart.
const MAX_PATH_BYTES: usize = 256;

impl PathCosts {
    /// Returns what was learned about the path of a request. If the path has several readings, one that costs decides.
    pub fn find(&self, request: &RequestFacts<'_>) -> PathCost<'_> {
        let own = self.find_shape(&PathShape::of(request), request.path);
        let others = request.other_paths.iter().map(String::as_str).chain([request.path]);
        let mut others = others.map(|path| self.find_shape(&PathShape::new(path), path));
        match own {
            PathCost::Costs(_) => own,
            _ if request.other_paths.is_empty() => own,
            _ => others.find(|cost| matches!(cost, PathCost::Costs(_))).unwrap_or(own),
        }
    }

    fn find_shape(&self, shape: &PathShape, path: &str) -> PathCost<'_> {
        match self.mixed.get(shape) {
            Some(MixedShape { costs: true, .. }) => {}
            Some(_) => {
                let exception = self.exceptions.get(&exact(path));
                return exception.map_or(PathCost::Free, |costs| PathCost::Costs(&costs.expected));
            }
            None if self.free.is_known(shape) => return PathCost::Free,
            None => {}
        }
        self.covering(shape.as_str()).map_or(PathCost::Unknown, |key| PathCost::Costs(&self.by_shape[key].expected))
    }

    /// Returns the directory, such as `/shop/**`, whose cost was generalized from other paths and applies to a request;
    /// `None` if the request has no learned cost, or one of its own shape or path.
    pub fn generalization(&self, request: &RequestFacts<'_>) -> Option<(&str, &Generalization)> {
        let others = request.other_paths.iter().map(String::as_str).chain([request.path]);
        let mut shapes = others.map(PathShape::new).collect::<Vec<_>>();
        shapes.insert(0, PathShape::of(request));
        let is_covered = |shape: &&PathShape| match self.mixed.get(shape) {
            Some(mixed) => mixed.costs,
            None => !self.free.is_known(shape),
        };
        let key = shapes.iter().filter(is_covered).find_map(|shape| self.covering(shape.as_str()))?;
        Some((key, self.by_shape[key].generalization.as_ref()?))
    }

    /// Returns the key of the costs that apply to a shape: its own, or those of a directory.
    fn covering(&self, shape: &str) -> Option<&str> {
        let key = |text: &str| self.by_shape.get_key_value(text).map(|(key, _)| key.as_str());
        if self.by_shape.is_empty() {
            return None;
        }
        key(shape).or_else(|| shape.rmatch_indices('/').find_map(|(at, _)| key(&format!("{}**", &shape[..=at]))))
    }

    /// Records a cost that the origin reported for the path of a request. Returns the shape that it was recorded for.
    pub fn record_cost(&mut self, request: &RequestFacts<'_>, quota: QuotaNumber, cost: Units) -> PathShape {
        let shape = PathShape::of(request);
        if self.free.remove(&shape) && self.mixed.len() < MAX_MIXED_SHAPES {
            self.mixed.insert(shape, MixedShape::default());
        }
        if let Some(mixed) = self.mixed.get_mut(&shape).filter(|mixed| !mixed.costs) {
            let path = exact(request.path);
            let is_full = mixed.exceptions == MAX_EXCEPTIONS || self.exceptions.len() >= MAX_EXCEPTIONS_IN_ALL;
            if let Some(costs) = self.exceptions.get_mut(&path) {
                costs.record(quota, cost);
                return shape;
            } else if !is_full {
                mixed.exceptions += 1;
                self.exceptions.entry(path).or_default().record(quota, cost);
                return shape;
            }
            mixed.costs = true;
        }
        let key = self.covering(shape.as_str()).unwrap_or(shape.as_str()).to_owned();
        self.by_shape.entry(key).or_default().record(quota, cost);
        self.merge_crowded_directories(shape.as_str());
        shape
    }

    /// Records a response without a cost to a client of `network`. It says nothing about a shape for which a cost was
    /// reported.
    pub fn record_free(&mut self, request: &RequestFacts<'_>, network: u64) {
        if !request.other_paths.is_empty() {
            return;
        }
        let shape = PathShape::of(request);
        if !self.mixed.contains_key(&shape) && !self.by_shape.contains_key(shape.as_str()) {
            self.free.record(shape, network);
        }
    }

    /// Returns the units that the origin reported by shape or path and quota, most first.
    pub fn reported(&self) -> Vec<ReportedCost<'_>> {
        let all = self.by_shape.iter().chain(&self.exceptions);
        let mut reported = Vec::new();
        for (path, costs) in all {
            let generalization = costs.generalization.as_ref();
            let report = |&(quota, units): &_| ReportedCost { path, quota, units, generalization };
            reported.extend(costs.reported.iter().map(report));
        }
        reported.sort_by(|one, other| other.units.cmp(&one.units).then(one.path.cmp(other.path)));
        reported
    }

    /// Merges each directory of `shape` in which too many shapes cost.
    fn merge_crowded_directories(&mut self, shape: &str) {
        for (at, _) in shape.rmatch_indices('/') {
            let directory = &shape[..=at];
            let names = self.below(directory).map(|key| key[directory.len()..].split('/').next().unwrap_or_default());
            if names.collect::<BTreeSet<_>>().len() > MAX_SHAPES_PER_DIRECTORY {
                self.merge(directory);
            }
        }
        while self.by_shape.len() > MAX_SHAPES {
            let top = |key: &str| {
                key.match_indices('/').nth(1).map_or_else(|| key.to_owned(), |(at, _)| key[..=at].to_owned())
            };
            let mut counts: BTreeMap<String, usize> = BTreeMap::new();
            self.by_shape.keys().for_each(|key| *counts.entry(top(key)).or_default() += 1);
            let Some((largest, _)) = counts.into_iter().max_by_key(|(_, count)| *count) else { return };
            self.merge(&largest);
        }
    }

    fn below<'a>(&'a self, directory: &'a str) -> impl Iterator<Item = &'a str> {
        let from = self.by_shape.range(directory.to_owned()..);
        from.map(|(key, _)| key.as_str()).take_while(move |key| key.starts_with(directory))
    }

    /// Replaces all shapes in a directory by one.
    fn merge(&mut self, directory: &str) {
        let keys: Vec<String> = self.below(directory).map(str::to_owned).collect();
        let mut merged = LearnedCosts::default();
        for key in keys {
            let Some(costs) = self.by_shape.remove(&key) else { continue };
            merged.add(&costs);
            merged.generalization.get_or_insert_default().add(key, costs.generalization);
        }
        self.by_shape.insert(format!("{directory}**"), merged);
    }
}

impl LearnedCosts {
    fn record(&mut self, quota: QuotaNumber, cost: Units) {
        match self.expected.iter_mut().find(|(other, _)| *other == quota) {
            Some((_, expected)) => *expected = CostEstimate(*expected).updated(cost).0,
            None => self.expected.push((quota, cost)),
        }
        add(&mut self.reported, quota, |reported| reported.saturating_add(cost));
    }

    fn add(&mut self, other: &Self) {
        for &(quota, cost) in &other.expected {
            add(&mut self.expected, quota, |expected| expected.max(cost));
        }
        for &(quota, cost) in &other.reported {
            add(&mut self.reported, quota, |reported| reported.saturating_add(cost));
        }
    }
}

impl Generalization {
    /// Adds a shape, or the shapes from which its cost was generalized.
    fn add(&mut self, shape: String, generalization: Option<Self>) {
        let added = generalization.unwrap_or_else(|| Self { shapes: 1, examples: vec![shape] });
        self.shapes += added.shapes;
        self.examples.extend(added.examples);
        self.examples.truncate(MAX_EXAMPLES);
    }
}

fn add(sums: &mut Vec<(QuotaNumber, Units)>, quota: QuotaNumber, change: impl Fn(Units) -> Units) {
    match sums.iter_mut().find(|(other, _)| *other == quota) {
        Some((_, units)) => *units = change(*units),
        None => sums.push((quota, change(Units::ZERO))),
    }
}

/// Returns what tells two paths of a free shape apart.
fn exact(path: &str) -> String {
    let path = path.strip_suffix('/').unwrap_or(path);
    let end = path.char_indices().map(|(at, _)| at).take_while(|&at| at <= MAX_PATH_BYTES).last().unwrap_or(0);
    let end = if path.len() <= MAX_PATH_BYTES { path.len() } else { end };
    path[..end].to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use crate::free_shapes::MAX_FREE_SHAPES;
    use proptest::prelude::*;

    const COST: Units = Units::from_whole(4);

    fn cost(costs: &mut PathCosts, path: &str) {
        costs.record_cost(&fixtures::request_facts(path), 0, COST);
    }

    fn free(costs: &mut PathCosts, path: &str) {
        costs.record_free(&fixtures::request_facts(path), 1);
    }

    fn is_costed(costs: &PathCosts, path: &str) -> bool {
        matches!(costs.find(&fixtures::request_facts(path)), PathCost::Costs(_))
    }

    fn is_free(costs: &PathCosts, path: &str) -> bool {
        costs.find(&fixtures::request_facts(path)) == PathCost::Free
    }

    #[test]
    fn one_report_teaches_the_cost_of_all_spellings_and_paths_of_the_shape() {
        let mut costs = PathCosts::default();
        assert_eq!(costs.find(&fixtures::request_facts("/p/7")), PathCost::Unknown);
        cost(&mut costs, "/p/7");
        assert_eq!(costs.find(&fixtures::request_facts("/p/7")), PathCost::Costs(&[(0, COST)]));
        assert!(["/p/8", "/P/9/", "/p/7.json", "/p/a-title-with-words"].iter().all(|path| is_costed(&costs, path)));
        assert!(["/p", "/", "/q/7", "/p/new", "/p/7/edit"].iter().all(|path| !is_costed(&costs, path)));
    }

    #[test]
    fn responses_without_a_cost_do_not_make_a_costed_shape_free() {
        let mut costs = PathCosts::default();
        cost(&mut costs, "/p/7");
        (0..1000).for_each(|number| free(&mut costs, &format!("/p/{number}")));
        assert!(is_costed(&costs, "/p/7") && !is_costed(&costs, "/q"));
    }

    #[test]
    fn free_shape_stays_free_beside_single_paths_that_cost() {
        let mut costs = PathCosts::default();
        (0..4).for_each(|number| free(&mut costs, &format!("/news/{number}")));
        for number in 0..MAX_EXCEPTIONS {
            cost(&mut costs, &format!("/news/9{number}"));
        }
        assert!(is_costed(&costs, "/news/90") && is_costed(&costs, "/NEWS/97/") && is_free(&costs, "/news/5"));
        cost(&mut costs, "/news/98");
        assert!(is_costed(&costs, "/news/5"), "too many exceptions");
        (0..10).for_each(|number| free(&mut costs, &format!("/news/{number}")));
        assert!(is_costed(&costs, "/news/5"), "the shape does not become free again");
    }

    #[test]
    fn shape_with_exceptions_stays_free_whatever_one_network_requests() {
        let mut costs = PathCosts::default();
        (0..4).for_each(|number| free(&mut costs, &format!("/news/{number}")));
        cost(&mut costs, "/news/90");
        let names = ('a'..='z').flat_map(|one| ('a'..='z').map(move |two| format!("/{one}{two}")));
        names.flat_map(|name| ["", "/x", "/y", "/z"].map(|end| format!("{name}{end}"))).for_each(|path| {
            (0..4).for_each(|_| free(&mut costs, &path));
        });
        assert!(is_free(&costs, "/news/5") && is_costed(&costs, "/news/90"));
    }

    #[test]
    fn made_up_paths_of_a_directory_are_one_shape_soon() {
        let mut costs = PathCosts::default();
        (0..4).for_each(|_| free(&mut costs, "/search/help"));
        let names = ('a'..='z').map(|letter| format!("/search/word{letter}"));
        let unknown = names.filter(|path| {
            let is_unknown = !is_costed(&costs, path);
            cost(&mut costs, path);
            is_unknown
        });
        assert_eq!(unknown.count(), MAX_SHAPES_PER_DIRECTORY + 1);
        assert!(is_costed(&costs, "/search/anything/below") && !is_costed(&costs, "/search"));
        assert!(is_free(&costs, "/search/help"), "a page that is known to be free stays free");
        let reported: Vec<_> = costs.reported().iter().map(|cost| (cost.path, cost.quota, cost.units)).collect();
        assert_eq!(reported, [("/search/**", 0, Units::from_whole(26 * 4))]);
    }

    #[test]
    fn generalized_cost_names_the_paths_that_taught_it() {
        let mut costs = PathCosts::default();
        (0..4).for_each(|_| free(&mut costs, "/tools/help"));
        for letter in 'a'..='i' {
            assert_eq!(costs.generalization(&fixtures::request_facts("/tools/about")), None);
            cost(&mut costs, &format!("/tools/word{letter}"));
        }
        let examples = ["/tools/worda", "/tools/wordb", "/tools/wordc"].map(str::to_owned).to_vec();
        let expected = Generalization { shapes: 9, examples };
        let of = |path| costs.generalization(&fixtures::request_facts(path));
        assert_eq!(of("/tools/about"), Some(("/tools/**", &expected)));
        assert_eq!([of("/tools/help"), of("/other")], [None, None]);
        assert_eq!(costs.reported()[0].generalization, Some(&expected));
        (0..8).for_each(|number| cost(&mut costs, &format!("/{}x/y", char::from(b'a' + number))));
        let expected = Generalization { shapes: 17, ..expected };
        let root = costs.generalization(&fixtures::request_facts("/")).map(|(key, it)| (key, it.shapes));
        assert_eq!(root, Some(("/**", expected.shapes)), "a directory above counts those of the directories below");
    }

    #[test]
    fn reading_that_costs_decides_and_teaches_nothing_about_the_others() {
        let mut costs = PathCosts::default();
        let facts = |others| RequestFacts { other_paths: others, ..fixtures::request_facts("/host/about") };
        let about = ["/about".to_owned()];
        costs.record_cost(&facts(&about), 0, COST);
        assert!(!is_costed(&costs, "/about") && !is_costed(&costs, "/host/about"));
        assert!(matches!(costs.find(&facts(&about)), PathCost::Costs(_)));
        let mut costs = PathCosts::default();
        cost(&mut costs, "/about");
        assert!(matches!(costs.find(&facts(&about)), PathCost::Costs(_)));
    }

    #[test]
    fn expected_cost_follows_the_reports_of_each_quota() {
        let mut costs = PathCosts::default();
        let request = fixtures::request_facts("/search");
        costs.record_cost(&request, 1, Units::from_whole(2));
        costs.record_cost(&request, 0, COST);
        costs.record_cost(&request, 1, Units::from_whole(1000));
        assert_eq!(costs.find(&request), PathCost::Costs(&[(1, COST), (0, COST)]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Memory is bounded for any paths, and a path whose cost was reported is never forgotten.
        #[test]
        fn hostile_paths_neither_grow_memory_nor_displace_costs(
            paths in prop::collection::vec(("(/[a-z]{1,3}){1,6}", any::<bool>()), 0..600),
        ) {
            let mut costs = PathCosts::default();
            cost(&mut costs, "/search");
            for (path, has_cost) in &paths {
                match has_cost {
                    true => cost(&mut costs, path),
                    false => free(&mut costs, path),
                }
                prop_assert!(!has_cost || is_costed(&costs, path), "{path}");
            }
            prop_assert!(is_costed(&costs, "/search"));
            prop_assert!(costs.by_shape.len() <= MAX_SHAPES && costs.exceptions.len() <= MAX_EXCEPTIONS_IN_ALL);
            prop_assert!(costs.free.len() <= 2 * MAX_FREE_SHAPES && costs.mixed.len() <= MAX_MIXED_SHAPES);
        }
    }
}
