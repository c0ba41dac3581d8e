//! Verified crawlers of a class with a crawler guard.

use super::*;
use tidegate_policy::OperatorId;
use tidegate_policy::budget::Payer;
use tidegate_policy::crawler_guard::CrawlerGuard;
use tidegate_policy::decide::DecisionRequest;

const GOOGLE: OperatorId = OperatorId(0);
const BING: OperatorId = OperatorId(1);
const LIMIT: u64 = 1000;

/// A quota whose tier refuses all crawler requests, on a day without other clients.
struct GuardedSite(Admission);

impl GuardedSite {
    fn new() -> Self {
        let guard = CrawlerGuard {
            admit_interval: Duration::from_secs(300),
            max_refused_for: Duration::from_secs(86_400),
            budget: Share::from_millionths(20_000),
        };
        let mut rules = Arc::unwrap_or_clone(rules(vec![quota("api", LIMIT, &[(0, 100)])], vec![route(&[(0, 1)])]));
        rules.classes[BOT.index()].guard = Some(guard);
        Self(Engine::new(LeaseMode::Local, 1000).admission(Arc::new(rules), NOON))
    }

    fn admits(&self, operator: OperatorId, path: &str, seconds: u64) -> bool {
        let page = CrawledPage { operator, host: "example.com", path, query: None };
        let now = NOON + Duration::from_secs(seconds);
        let request = DecisionRequest {
            class: BOT,
            class_rules: &self.0.rules[BOT],
            route: &self.0.rules[RouteId(0)],
            has_learned_cost: false,
            exemption: None,
            switch: None,
            has_copy: false,
            is_refresh: false,
        };
        let Decision { verdict, permit, .. } =
            self.0.admit_guarded(Payer::of(CLIENT), &request, RouteId(0), Some(page), now);
        assert!(verdict.refusal().is_none_or(|refusal| refusal.reason == Reason::Tier));
        permit.map(|permit| permit.settle(|_, expected| expected)).is_some()
    }

    fn guarded_units(&self) -> u64 {
        self.0.quotas(NOON)[0].by_class[BOT.index()].guard_admitted.floor()
    }
}

#[test]
fn guard_admits_one_request_per_operator_and_interval() {
    let site = GuardedSite::new();
    let second_by_second = |operator| (0..=600).filter(|&second| site.admits(operator, "/item/1", second)).collect();
    let (google, bing): (Vec<u64>, Vec<u64>) = (second_by_second(GOOGLE), second_by_second(BING));
    assert_eq!((google, bing), (vec![0, 300, 600], vec![0, 300, 600]));
    assert_eq!(site.guarded_units(), 6);
}

#[test]
fn unverified_crawlers_are_not_guarded() {
    let site = GuardedSite::new();
    assert_eq!(try_admit(&site.0, BOT, 0, NOON).map(drop), Err(Reason::Tier));
    assert!(site.0.engine().longest_refusals().is_empty());
}

#[test]
fn guard_stays_within_its_budget() {
    let site = GuardedSite::new();
    let admitted = (0..40).filter(|step| site.admits(GOOGLE, "/item/1", step * 300)).count();
    assert_eq!(admitted, 20, "a fiftieth of the limit");
    assert!(site.admits(GOOGLE, "/item/1", 86_400), "the next window has a new budget");
}

#[test]
fn guard_limits_page_refusals_to_a_day() {
    let site = GuardedSite::new();
    assert!(site.admits(GOOGLE, "/first", 0));
    for page in ["/a", "/b"] {
        assert!(!site.admits(GOOGLE, page, 1));
    }
    assert!(!site.admits(GOOGLE, "/b", 100));
    assert_eq!(site.0.engine().longest_refusals(), [(GOOGLE, Duration::from_secs(99))]);
    let day = 86_400;
    assert!(site.admits(GOOGLE, "/first", day), "the interval has passed");
    assert!(!site.admits(GOOGLE, "/c", day), "the interval has just begun");
    assert!(site.admits(GOOGLE, "/a", day + 1), "the page was first refused a day ago");
    assert!(!site.admits(GOOGLE, "/a", day + 2), "the guard admits an overdue page once");
    assert!(site.admits(GOOGLE, "/b", day + 2));
    assert_eq!(site.0.engine().longest_refusals(), [(GOOGLE, Duration::ZERO)]);
}

proptest! {
    #[test]
    fn guard_keeps_budget_and_interval_for_any_traffic(
        steps in proptest::collection::vec((0u64..4000, 0u8..6, 0u16..3), 1..300),
    ) {
        let site = GuardedSite::new();
        let (mut now, mut renewed, mut spent) = (0, 0, 0);
        let mut last_admitted = [None::<u64>; 3];
        for (pause, page, operator) in steps {
            now += pause;
            let admitted = site.admits(OperatorId(operator), &format!("/{page}"), now);
            if NOON.seconds() + now >= renewed + 86_400 {
                (renewed, spent) = (NOON.seconds() + now, 0);
            }
            let last = &mut last_admitted[usize::from(operator)];
            let is_due = last.is_none_or(|last| now >= last + 300);
            prop_assert!(admitted || !is_due || spent == 20, "at {}: {} spent", now, spent);
            if admitted {
                *last = Some(now);
                spent += 1;
            }
            prop_assert!(spent <= 20);
        }
    }
}
