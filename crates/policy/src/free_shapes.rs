//! Shapes of paths to which the origin responds without a cost, by the networks whose requests have shown it.
//!
//! The table is bounded, and what one network requests displaces nothing that two others use: shapes shown by two networks
//! are kept apart, and of those shown by one, the network with most of them loses its least recently used one.

use super::path_shape::PathShape;
use std::collections::{BTreeMap, BTreeSet};

/// Shapes with responses without a cost.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeShapes {
    shapes: BTreeMap<PathShape, FreeShape>,
    /// Number of shapes that requests of one network alone have shown, by network.
    by_network: BTreeMap<u64, usize>,
    /// Number of responses, to order the uses.
    responses: u64,
}

#[derive(Clone, Copy, Debug)]
struct FreeShape {
    /// Network of the first request; `None` once those of two have shown the shape.
    network: Option<u64>,
    /// Number of responses without a cost, at most [`FREE_RESPONSES`].
    responses: u8,
    /// Number of the last response.
    last_response: u64,
}

/// Responses without a cost after which a shape is known to be free.
const FREE_RESPONSES: u8 = 4;
/// Most shapes that requests of two networks have shown; and most of those that requests of one network have shown.
pub(super) const MAX_FREE_SHAPES: usize = 1024;

impl FreeShapes {
    /// Returns true if a shape is known to be free.
    pub(super) fn is_known(&self, shape: &PathShape) -> bool {
        self.shapes.get(shape).is_some_and(|free| free.responses >= FREE_RESPONSES)
    }

    /// Records a response without a cost to a request of `network`.
    pub(super) fn record(&mut self, shape: PathShape, network: u64) {
        self.responses += 1;
        let last_response = self.responses;
        if let Some(free) = self.shapes.get_mut(&shape) {
            free.responses = free.responses.saturating_add(1).min(FREE_RESPONSES);
            free.last_response = last_response;
            if let Some(first) = free.network.take_if(|first| *first != network) {
                self.forget_network(first);
                if self.counts()[1] > MAX_FREE_SHAPES {
                    self.evict(|free| free.network.is_none());
                }
            }
            return;
        }
        self.shapes.insert(shape, FreeShape { network: Some(network), responses: 1, last_response });
        *self.by_network.entry(network).or_default() += 1;
        if self.counts()[0] > MAX_FREE_SHAPES {
            let most = self.by_network.values().copied().max().unwrap_or_default();
            let largest: BTreeSet<u64> =
                self.by_network.iter().filter(|(_, shapes)| **shapes == most).map(|(network, _)| *network).collect();
            self.evict(|free| free.network.is_some_and(|network| largest.contains(&network)));
        }
    }

    /// Removes a shape. Returns true if it was known to be free.
    pub(super) fn remove(&mut self, shape: &PathShape) -> bool {
        let Some(free) = self.shapes.remove(shape) else { return false };
        if let Some(network) = free.network {
            self.forget_network(network);
        }
        free.responses >= FREE_RESPONSES
    }

    /// Returns the number of shapes, known or not.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shapes.len()
    }

    /// Returns the number of shapes that requests of one network have shown, and of those that requests of two have.
    fn counts(&self) -> [usize; 2] {
        let of_one = self.by_network.values().sum();
        [of_one, self.shapes.len() - of_one]
    }

    /// Removes the least recently used of some shapes.
    fn evict(&mut self, is_candidate: impl Fn(&FreeShape) -> bool) {
        let candidates = self.shapes.iter().filter(|(_, free)| is_candidate(free));
        let oldest = candidates.min_by_key(|(_, free)| free.last_response).map(|(shape, _)| *shape);
        if let Some(shape) = oldest {
            self.remove(&shape);
        }
    }

    fn forget_network(&mut self, network: u64) {
        if let Some(shapes) = self.by_network.get_mut(&network) {
            *shapes -= 1;
            if *shapes == 0 {
                self.by_network.remove(&network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ATTACKER: u64 = 1;
    const OTHERS: [u64; 3] = [2, 3, 4];

    fn show(shapes: &mut FreeShapes, path: &str, networks: &[u64]) {
        networks.iter().for_each(|network| shapes.record(PathShape::new(path), *network));
    }

    fn is_known(shapes: &FreeShapes, path: &str) -> bool {
        shapes.is_known(&PathShape::new(path))
    }

    fn made_up_paths() -> impl Iterator<Item = String> + Clone {
        let letters = || 'a'..='z';
        letters()
            .flat_map(move |one| letters().flat_map(move |two| ["", "x", "y"].map(|end| format!("/{one}{two}{end}"))))
    }

    #[test]
    fn one_network_fills_the_table_and_shuts_no_page_of_others_out() {
        let mut shapes = FreeShapes::default();
        show(&mut shapes, "/help/before", &[2; 4]);
        made_up_paths().for_each(|path| show(&mut shapes, &path, &[ATTACKER; 4]));
        assert_eq!(shapes.counts(), [MAX_FREE_SHAPES, 0]);
        show(&mut shapes, "/help/while", &[2]);
        made_up_paths().for_each(|path| show(&mut shapes, &path, &[ATTACKER]));
        show(&mut shapes, "/help/while", &[2; 3]);
        assert!(is_known(&shapes, "/help/before") && is_known(&shapes, "/help/while"), "pages of another network");
        assert_eq!(made_up_paths().filter(|path| is_known(&shapes, path)).count(), 0, "the attacker displaces its own");
    }

    #[test]
    fn least_recently_used_shape_leaves_first() {
        let mut shapes = FreeShapes::default();
        made_up_paths().take(MAX_FREE_SHAPES).for_each(|path| show(&mut shapes, &path, &[1, 1, 1, 2]));
        let used: Vec<String> = made_up_paths().take(10).collect();
        used.iter().for_each(|path| show(&mut shapes, path, &[3]));
        made_up_paths().skip(MAX_FREE_SHAPES).take(100).for_each(|path| show(&mut shapes, &path, &[3, 3, 4, 4]));
        assert_eq!(shapes.counts(), [0, MAX_FREE_SHAPES]);
        assert!(used.iter().all(|path| is_known(&shapes, path)));
        assert_eq!(made_up_paths().filter(|path| is_known(&shapes, path)).count(), MAX_FREE_SHAPES);
    }

    #[test]
    fn removed_shape_counts_no_longer() {
        let mut shapes = FreeShapes::default();
        show(&mut shapes, "/a", &[1, 2]);
        show(&mut shapes, "/b", &[1; 4]);
        assert!(!shapes.remove(&PathShape::new("/a")) && shapes.remove(&PathShape::new("/b")));
        assert_eq!((shapes.counts(), shapes.by_network.len()), ([0, 0], 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        /// Whatever one network requests, a shape that requests of two other networks have shown free stays known.
        #[test]
        fn what_one_network_requests_displaces_no_shape_of_two_others(
            steps in prop::collection::vec((0..20_u8, 0..120_usize, 0..OTHERS.len(), any::<bool>()), 1..80),
        ) {
            let mut shapes = FreeShapes::default();
            let mut shown: BTreeMap<String, Vec<u64>> = BTreeMap::new();
            let mut made_up = made_up_paths().cycle();
            for (page, requests, other, is_attacked) in steps {
                let path = format!("/page/{}", char::from(b'a' + page));
                made_up.by_ref().take(requests).for_each(|path| show(&mut shapes, &path, &[ATTACKER]));
                if is_attacked {
                    show(&mut shapes, &path, &[ATTACKER]);
                }
                show(&mut shapes, &path, &[OTHERS[other]]);
                shown.entry(path).or_default().push(OTHERS[other]);
                for (path, networks) in &shown {
                    let is_shown = networks.len() >= usize::from(FREE_RESPONSES)
                        && networks.iter().any(|network| *network != networks[0]);
                    prop_assert!(!is_shown || is_known(&shapes, path), "{path}");
                }
                let [of_one, of_two] = shapes.counts();
                prop_assert!(of_one <= MAX_FREE_SHAPES && of_two <= MAX_FREE_SHAPES);
                prop_assert_eq!(of_two, shapes.shapes.values().filter(|free| free.network.is_none()).count());
            }
        }
    }
}
