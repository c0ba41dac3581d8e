use super::*;
use crate::observation::QuotaUsage;
use crate::watch::Watch;

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

const PROMISE: Promise = Promise {
    people_refused: Some(Share::from_millionths(10_000)),
    search_served: Some(Share::from_millionths(900_000)),
    left_over: Some(Share::from_millionths(20_000)),
};

/// A site observed once a minute, with counts since the start of its process.
struct Site {
    watch: PromiseWatch,
    second: u64,
    pages: PageCounts,
    used: u64,
    overrun: u64,
}

impl Site {
    fn new() -> Self {
        Self { watch: PromiseWatch::default(), second: 0, pages: PageCounts::default(), used: 0, overrun: 0 }
    }

    fn observation(&self) -> Observation {
        let quota = QuotaUsage {
            name: "api".into(),
            limit: Units::from_milli(1_000_000),
            used: Units::from_milli(self.used * 1000),
            overrun: Units::from_milli(self.overrun * 1000),
            window_start: Some(Timestamp::from_seconds(self.second - self.second % DAY)),
            window_end: Timestamp::from_seconds(self.second - self.second % DAY + DAY),
            ..QuotaUsage::default()
        };
        let at = Timestamp::from_seconds(self.second);
        Observation { at, pages: self.pages, promise: PROMISE, quotas: vec![quota], ..Observation::default() }
    }

    /// Observes each minute of `hours`, with `people` and `search` pages in each hour: all, and those refused.
    fn pass(&mut self, hours: u64, people: (u64, u64), search: (u64, u64)) {
        let add = |total: &mut Refusals, (requests, refused)| *total += Refusals { requests, refused };
        for _ in 0..hours {
            for minute in 0..60 {
                if minute == 30 {
                    add(&mut self.pages.people, people);
                    add(&mut self.pages.search, search);
                    self.pages.saving_refusals += people.1 + search.1;
                }
                let observation = self.observation();
                self.watch.observe(&observation);
                self.second += 60;
            }
        }
    }

    fn missed_yesterday(&mut self) -> Vec<PromisedFigure> {
        self.watch.observe(&self.observation());
        PROMISE.missed(&self.watch.last().expect("a day has ended").figures(true))
    }
}

#[test]
fn day_that_keeps_all_figures_is_kept() {
    let mut site = Site::new();
    site.used = 985;
    site.pass(23, (100, 1), (50, 5));
    site.pass(1, (100, 1), (9, 9));
    assert_eq!(site.watch.last(), None);
    assert_eq!(site.missed_yesterday(), []);
    let kept = site.watch.last().expect("a day").figures(true);
    assert_eq!((kept.people_refused, kept.search_served), (Some(0.01), Some(0.9)), "nine pages say nothing of an hour");
    assert_eq!(kept.left_over, Some(0.015));
}

#[test]
fn each_figure_is_missed_for_itself() {
    let mut people = Site::new();
    people.used = 1000;
    people.pass(24, (100, 2), (0, 0));
    assert_eq!(people.missed_yesterday(), [PromisedFigure::PeopleRefused]);

    let mut search = Site::new();
    search.used = 1000;
    search.pass(23, (100, 0), (50, 0));
    search.pass(1, (100, 0), (10, 2));
    assert_eq!(search.missed_yesterday(), [PromisedFigure::SearchServed]);

    let mut left_over = Site::new();
    left_over.used = 979;
    left_over.pass(24, (1000, 1), (0, 0));
    assert_eq!(left_over.missed_yesterday(), [PromisedFigure::LeftOver]);

    let mut overrun = Site::new();
    overrun.pass(1, (0, 0), (0, 0));
    overrun.overrun = 3;
    overrun.pass(23, (0, 0), (0, 0));
    assert_eq!(overrun.missed_yesterday(), [PromisedFigure::Overrun], "nothing is left over where nothing was refused");
    overrun.pass(24, (0, 0), (0, 0));
    assert_eq!(overrun.missed_yesterday(), [], "the units were of the day before");
}

#[test]
fn refusals_before_a_promise_are_not_counted() {
    let mut site = Site::new();
    let without = Observation { promise: Promise::default(), ..site.observation() };
    site.watch.observe(&without);
    site.pages.people = Refusals { requests: 1000, refused: 900 };
    site.overrun = 5;
    site.watch.observe(&Observation { promise: Promise::default(), ..site.observation() });
    site.pass(1, (100, 0), (0, 0));
    let kept = site.watch.current().expect("a promise").figures(false);
    assert_eq!((kept.people_refused, kept.overrun), (Some(0.0), Units::ZERO));
}

#[test]
fn counts_of_another_quota_or_window_are_dropped() {
    let site = || {
        let mut site = Site::new();
        site.second = 40 * DAY;
        site.pass(2, (100, 50), (0, 0));
        site
    };
    let figures = |site: &Site| site.watch.current().expect("a promise").figures(false);
    let mut renamed = site();
    let mut observation = renamed.observation();
    observation.quotas[0].name = "other".into();
    observation.quotas[0].overrun = Units::from_whole(45);
    renamed.watch.observe(&observation);
    assert_eq!((figures(&renamed).people_refused, figures(&renamed).overrun), (None, Units::ZERO));
    assert_eq!(renamed.watch.last(), None);
    let mut longer = site();
    let mut observation = longer.observation();
    observation.quotas[0].window_start = Some(Timestamp::from_seconds(30 * DAY));
    longer.watch.observe(&observation);
    assert_eq!(figures(&longer).people_refused, None);
    assert_eq!(longer.watch.current().map(WindowCounts::start), Some(Timestamp::from_seconds(30 * DAY)));
    assert_eq!(longer.watch.last(), None);
}

#[test]
fn restart_in_a_window_loses_no_count() {
    let mut site = Site::new();
    site.used = 1000;
    site.pass(12, (100, 2), (0, 0));
    let stored = serde_json::to_vec(&site.watch).expect("JSON");
    // A new process counts from zero.
    site.watch = serde_json::from_slice(&stored).expect("the same form");
    site.pages = PageCounts::default();
    site.pass(12, (100, 0), (0, 0));
    assert_eq!(site.missed_yesterday(), []);
    let kept = site.watch.last().expect("a day").figures(true);
    assert_eq!(kept.people_refused, Some(0.01), "24 of 2400");
}

#[test]
fn usage_at_an_end_that_nobody_saw_is_not_left_over() {
    let mut site = Site::new();
    site.used = 100;
    site.pass(20, (100, 1), (0, 0));
    site.second += 10 * HOUR;
    assert_eq!(site.missed_yesterday(), []);
    assert_eq!(site.watch.last().expect("a day").figures(true).left_over, None);
}

#[test]
fn usage_of_a_window_of_seconds_is_not_left_over() {
    let mut watch = PromiseWatch::default();
    let mut pages = PageCounts::default();
    for second in 0..100 {
        pages.saving_refusals += 1;
        let (start, end) = (Timestamp::from_seconds(second), Timestamp::from_seconds(second + 1));
        let quota = QuotaUsage {
            limit: Units::from_milli(1000),
            window_start: Some(start),
            window_end: end,
            ..QuotaUsage::default()
        };
        watch.observe(&Observation {
            at: start,
            pages,
            promise: PROMISE,
            quotas: vec![quota],
            ..Observation::default()
        });
    }
    assert_eq!(watch.last().expect("a window").figures(true).left_over, None);
}

#[test]
fn event_waits_for_what_would_have_kept_the_promise() {
    let mut site = Site::new();
    let mut watch = Watch::default();
    site.used = 1000;
    site.pages.people = Refusals { requests: 100, refused: 3 };
    let mut named = |observation: &Observation| -> Vec<String> {
        let events = watch.observe(observation).into_iter().filter(|it| it.kind.name() == "promise_missed");
        events.map(|it| it.text).collect()
    };
    assert_eq!(named(&site.observation()), [""; 0]);
    site.second = DAY + 60;
    site.used = 0;
    assert_eq!(named(&site.observation()), [""; 0]);
    let with_remedy = |remedy: &str| Observation {
        remedy: Some((Timestamp::from_seconds(0), remedy.to_owned())),
        ..site.observation()
    };
    assert_eq!(
        named(&with_remedy("More units would.")),
        [
            "The window from 1970-01-01T00:00:00Z missed the promise. 3.0 % of people's pages were refused (promised: at most \
          1.0 %). More units would."
        ]
    );
    assert_eq!(named(&with_remedy("More units would.")), [""; 0]);
}

#[test]
fn nothing_is_counted_without_a_promise() {
    let mut site = Site::new();
    site.pass(1, (100, 50), (0, 0));
    assert!(site.watch.current().is_some());
    let without = Observation { promise: Promise::default(), ..site.observation() };
    site.watch.observe(&without);
    assert_eq!(site.watch, PromiseWatch::default());
}
