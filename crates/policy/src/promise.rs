//! What a policy promises for each window of its first quota, and what a window has kept.

use super::tier::Share;
use super::units::Units;

/// Figures that a policy promises. `None` promises nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// Largest share of people's pages that is refused.
    pub people_refused: Option<Share>,
    /// Smallest share of their pages that verified search engines are served in an hour.
    pub search_served: Option<Share>,
    /// Largest share of the limit that is left over although pages were refused to save units.
    pub left_over: Option<Share>,
}

/// Figures of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KeptFigures {
    /// Share of people's pages that was refused; `None` without a page.
    pub people_refused: Option<f64>,
    /// Share of their pages that verified search engines were served in the worst hour; `None` without an hour with enough
    /// pages.
    pub search_served: Option<f64>,
    /// Share of the limit that was left over; `None` if nothing was refused to save units, or the window has not ended.
    pub left_over: Option<f64>,
    /// Units that the origin spent beyond the limit.
    pub overrun: Units,
}

/// A figure of a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PromisedFigure {
    /// Share of people's pages that is refused.
    PeopleRefused,
    /// Share of their pages that verified search engines are served in the worst hour.
    SearchServed,
    /// Share of the limit that is left over.
    LeftOver,
    /// Units beyond the limit, which no policy allows.
    Overrun,
}

impl PromisedFigure {
    /// All figures.
    pub const ALL: [Self; 4] = [Self::PeopleRefused, Self::SearchServed, Self::LeftOver, Self::Overrun];

    /// Returns the name in the configuration, in metrics and in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PeopleRefused => "people_refused",
            Self::SearchServed => "search_served",
            Self::LeftOver => "left_over",
            Self::Overrun => "overrun",
        }
    }
}

impl Promise {
    /// Name of the class of people.
    pub const PEOPLE_CLASS: &str = "person";

    /// Name of the class of verified search engines.
    pub const SEARCH_CLASS: &str = "search";

    /// Returns true if nothing is promised.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the figures that a window has missed.
    pub fn missed(&self, kept: &KeptFigures) -> Vec<PromisedFigure> {
        let exceeds = |kept: Option<f64>, promised: Option<Share>| {
            kept.zip(promised).is_some_and(|(kept, promised)| kept > promised.ratio())
        };
        let falls_short = |kept: Option<f64>, promised: Option<Share>| {
            kept.zip(promised).is_some_and(|(kept, promised)| kept < promised.ratio())
        };
        let is_missed = |figure: &PromisedFigure| match figure {
            PromisedFigure::PeopleRefused => exceeds(kept.people_refused, self.people_refused),
            PromisedFigure::SearchServed => falls_short(kept.search_served, self.search_served),
            PromisedFigure::LeftOver => exceeds(kept.left_over, self.left_over),
            PromisedFigure::Overrun => !kept.overrun.is_zero(),
        };
        PromisedFigure::ALL.into_iter().filter(is_missed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMISE: Promise = Promise {
        people_refused: Some(Share::from_millionths(1000)),
        search_served: Some(Share::from_millionths(920_000)),
        left_over: Some(Share::from_millionths(10_000)),
    };

    #[test]
    fn each_figure_is_kept_up_to_its_bound() {
        let kept = KeptFigures {
            people_refused: Some(0.001),
            search_served: Some(0.92),
            left_over: Some(0.01),
            overrun: Units::ZERO,
        };
        assert_eq!(PROMISE.missed(&kept), []);
        let missed = KeptFigures {
            people_refused: Some(0.0011),
            search_served: Some(0.9199),
            left_over: Some(0.0101),
            overrun: Units::from_milli(1),
        };
        assert_eq!(PROMISE.missed(&missed), PromisedFigure::ALL);
    }

    #[test]
    fn what_is_not_known_or_not_promised_is_not_missed() {
        assert_eq!(PROMISE.missed(&KeptFigures::default()), []);
        let bad = KeptFigures { people_refused: Some(1.0), search_served: Some(0.0), ..KeptFigures::default() };
        assert_eq!(Promise::default().missed(&bad), []);
    }
}
