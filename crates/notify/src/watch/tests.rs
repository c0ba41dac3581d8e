use super::*;
use crate::notification::select;
use crate::observation::{Certificate, Trouble};
use proptest::prelude::*;
use std::path::PathBuf;
use tidegate_config::settings::{NotificationFormat, ReceiverUrl, Webhook};
use tidegate_policy::secret::Secret;

const DAY: u64 = 24 * 3600;

/// A site with a quota of 1000 units a day, observed at `second`.
fn observation(second: u64, used: u32) -> Observation {
    let start = second - second % DAY;
    Observation {
        at: Timestamp::from_seconds(second),
        uptime: Duration::from_secs(second),
        day: format!("2026-01-{:02}", 1 + second / DAY),
        quotas: vec![QuotaUsage {
            name: "api".into(),
            limit: Units::from_milli(1_000_000),
            used: Units::from_milli(u64::from(used) * 1000),
            window_start: Some(Timestamp::from_seconds(start)),
            window_end: Timestamp::from_seconds(start + DAY),
            ..QuotaUsage::default()
        }],
        ..Observation::default()
    }
}

fn names(notifications: &[Notification]) -> Vec<&'static str> {
    notifications.iter().map(|it| it.kind.name()).collect()
}

#[test]
fn each_level_of_a_quota_is_said_once_per_window() {
    let mut watch = Watch::default();
    assert_eq!(names(&watch.observe(&observation(10, 799))), [""; 0]);
    assert_eq!(names(&watch.observe(&observation(20, 800))), ["quota_80"]);
    assert_eq!(names(&watch.observe(&observation(30, 960))), ["quota_95"]);
    let spent = watch.observe(&observation(40, 1000));
    assert_eq!(names(&spent), ["quota_spent"]);
    assert_eq!(
        spent[0].text,
        "1000 of 1000 units of the quota api are used: what costs units is refused until 1970-01-02T00:00:00Z."
    );
    // A correction by hand, and usage after it.
    assert_eq!(names(&watch.observe(&observation(50, 100))), [""; 0]);
    assert_eq!(names(&watch.observe(&observation(7200, 1000))), [""; 0]);
    let next_day = names(&watch.observe(&observation(DAY + 20, 1000))).join(" ");
    assert_eq!(next_day, "quota_80 quota_95 quota_spent summary");
}

#[test]
fn restart_says_nothing_twice() {
    let mut watch = Watch::default();
    watch.observe(&observation(20, 1000));
    let stored = serde_json::to_vec(watch.state()).expect("JSON");
    let mut watch = Watch::new(serde_json::from_slice(&stored).expect("the same form"));
    assert_eq!(names(&watch.observe(&observation(30, 1000))), [""; 0]);
}

#[test]
fn clock_that_is_set_back_says_nothing_twice() {
    let mut watch = Watch::default();
    watch.observe(&observation(5 * DAY + 20, 1000));
    assert_eq!(names(&watch.observe(&observation(DAY, 1000))), [""; 0]);
    assert_eq!(names(&watch.observe(&observation(5 * DAY + 40, 1000))), [""; 0]);
}

#[test]
fn clock_that_was_ahead_holds_an_event_back_for_an_hour() {
    for ahead in [DAY, 5 * DAY, 4000 * DAY] {
        let mut watch = Watch::default();
        watch.observe(&observation(DAY + ahead, 1000));
        assert_eq!(names(&watch.observe(&observation(DAY, 1000))), [""; 0]);
        assert_eq!(names(&watch.observe(&observation(DAY + 3600, 1000))), ["quota_80", "quota_95", "quota_spent"]);
        assert_eq!(names(&watch.observe(&observation(DAY + 3602, 1000))), [""; 0]);
    }
}

#[test]
fn windows_of_a_minute_are_said_once_an_hour() {
    let mut watch = Watch::default();
    let mut said = 0;
    for minute in 0..240 {
        let mut observation = observation(minute * 60 + 1, 1000);
        observation.quotas[0].window_start = Some(Timestamp::from_seconds(minute * 60));
        said += watch.observe(&observation).iter().filter(|it| it.kind.name() == "quota_spent").count();
    }
    assert_eq!(said, 4);
}

#[test]
fn trouble_becomes_an_event_when_it_lasts_and_again_after_a_day() {
    let mut watch = Watch::default();
    let down = |second: u64| Observation {
        origin_troubles: vec![Trouble {
            subject: "The origin".into(),
            text: "has not responded".into(),
            min_duration: Duration::from_secs(30),
        }],
        ..observation(second, 0)
    };
    assert_eq!(names(&watch.observe(&down(100))), [""; 0]);
    assert_eq!(names(&watch.observe(&observation(110, 0))), [""; 0]);
    assert_eq!(names(&watch.observe(&down(120))), [""; 0], "it responded in between");
    assert_eq!(names(&watch.observe(&down(150))), ["origin_down"]);
    assert_eq!(names(&watch.observe(&down(152))), [""; 0]);
    // It flaps.
    watch.observe(&observation(154, 0));
    watch.observe(&down(156));
    assert_eq!(names(&watch.observe(&down(200))), [""; 0]);
    assert_eq!(names(&watch.observe(&down(150 + 3600))), [""; 0], "it holds since");
    let next_day = names(&watch.observe(&down(150 + DAY))).join(" ");
    assert_eq!(next_day, "origin_down summary");
}

#[test]
fn few_refusals_of_people_are_no_event() {
    let people =
        |second, requests, refused| Observation { people: Refusals { requests, refused }, ..observation(second, 0) };
    let mut watch = Watch::default();
    assert_eq!(names(&watch.observe(&people(10, 20, 5))), [""; 0]);
    assert_eq!(names(&watch.observe(&people(20, 600, 6))), [""; 0], "1 %");
    assert_eq!(names(&watch.observe(&people(30, 600, 7))), ["people_refused"]);
    // What was counted more than ten minutes ago is no event of now.
    let mut watch = Watch::default();
    watch.observe(&people(10, 600, 0));
    watch.observe(&people(20, 1000, 9));
    assert_eq!(names(&watch.observe(&people(700, 100_000, 9))), [""; 0]);
    assert_eq!(names(&watch.observe(&people(1200, 100_100, 20))), ["people_refused"]);
}

#[test]
fn costs_that_nobody_expected_are_said_once_per_window() {
    let costs = |second, overrun: u64, unrouted: u64| {
        let mut observation = observation(second, 0);
        observation.quotas[0].overrun = Units::from_milli(overrun * 1000);
        observation.quotas[0].unrouted = Units::from_milli(unrouted * 1000);
        observation
    };
    let mut watch = Watch::default();
    assert_eq!(names(&watch.observe(&costs(10, 0, 10))), [""; 0], "1 % of the limit");
    assert_eq!(names(&watch.observe(&costs(20, 0, 11))), ["unknown_costs"]);
    assert_eq!(names(&watch.observe(&costs(30, 5, 500))), [""; 0]);
    let next_day = names(&watch.observe(&costs(DAY + 10, 5, 500))).join(" ");
    assert_eq!(next_day, "summary", "counted since the start, not in this window");
    let beyond = watch.observe(&costs(DAY + 20, 6, 500));
    assert_eq!(names(&beyond), ["unknown_costs"]);
    assert!(beyond[0].text.starts_with("The origin reported 1 unit beyond the limit of the quota api."), "{beyond:?}");
}

#[test]
fn certificates_pages_and_reloads_are_said() {
    let mut watch = Watch::default();
    let troubled = Observation {
        longest_refusals: vec![
            ("googlebot".into(), Duration::from_secs(26 * 3600)),
            ("bingbot".into(), Duration::from_secs(24 * 3600)),
        ],
        certificates: vec![
            Certificate { domain: "a.example".into(), expires_at: Timestamp::from_seconds(9 * DAY) },
            Certificate { domain: "b.example".into(), expires_at: Timestamp::from_seconds(11 * DAY) },
        ],
        reload_error: Some("tidegate.yaml:3:1: unknown key".into()),
        ..observation(100, 0)
    };
    let said = watch.observe(&troubled);
    let said: Vec<(&str, &str)> = said.iter().map(|it| (it.kind.name(), it.subject.as_str())).collect();
    let expected =
        [("page_refused_too_long", "googlebot"), ("certificate_expiring", "a.example"), ("reload_failed", "")];
    assert_eq!(said, expected);
    assert_eq!(names(&watch.observe(&Observation { at: Timestamp::from_seconds(102), ..troubled })), [""; 0]);
}

#[test]
fn summary_adds_up_a_day_over_a_restart() {
    let count = |second, requests, refused, used| Observation {
        people: Refusals { requests, refused },
        others: Refusals { requests: requests * 2, refused: requests },
        ..observation(second, used)
    };
    let mut watch = Watch::default();
    watch.observe(&count(10, 100, 1, 300));
    let mut watch = Watch::new(watch.state().clone());
    // A new process counts from zero.
    let stored = serde_json::to_vec(watch.state()).expect("JSON");
    watch = Watch::new(serde_json::from_slice(&stored).expect("the same form"));
    watch.observe(&count(20, 50, 2, 700));
    let said = watch.observe(&count(DAY + 1, 60, 2, 0));
    assert_eq!(names(&said), ["summary"]);
    assert_eq!(
        said[0].text,
        "2026-01-01: 150 requests of people, 2.0 % refused; 300 of others, 50.0 % refused. Quota api: 700 of 1000 units used."
    );
}

fn webhook(events: &[NotificationEvent], has_summary: bool) -> Webhook {
    Webhook {
        url: ReceiverUrl {
            is_tls: true,
            host: "hooks.example".into(),
            port: 443,
            target: Secret::new("/secret".into()),
        },
        format: NotificationFormat::Json,
        events: events.to_vec(),
        has_summary,
        authority: None::<PathBuf>,
    }
}

#[test]
fn webhook_is_sent_the_highest_level_that_it_wants() {
    let notifications = Watch::default().observe(&observation(20, 1000));
    let sent = |events: &[NotificationEvent]| -> Vec<&str> {
        select(&notifications, &webhook(events, false)).iter().map(|it| it.kind.name()).collect()
    };
    assert_eq!(sent(&NotificationEvent::ALL), ["quota_spent"]);
    assert_eq!(sent(&[NotificationEvent::Quota80, NotificationEvent::Quota95]), ["quota_95"]);
    assert_eq!(sent(&[NotificationEvent::PeopleRefused]), [""; 0]);
}

proptest! {
    /// Whatever a gateway shows, an event is said at most once an hour, and a day has one summary.
    #[test]
    fn no_event_is_said_twice_in_an_hour(
        steps in proptest::collection::vec((0..4000_i64, 0..1100_u32, any::<bool>(), 0..100_u64), 1..60),
    ) {
        let (mut watch, mut second) = (Watch::default(), 10 * DAY as i64);
        let (mut people, mut said, mut elapsed) = (Refusals::default(), BTreeMap::new(), 0);
        for (step, (passed, used, is_down, refused)) in steps.into_iter().enumerate() {
            // The clock is set back now and then.
            second = (second + passed - if passed % 7 == 0 { 5000 } else { 0 }).max(0);
            elapsed += passed;
            people.requests += 100;
            people.refused += refused;
            let mut shown = observation(second as u64, used);
            shown.people = people;
            shown.uptime = Duration::from_secs(step as u64 * 2);
            if is_down {
                let trouble = Trouble { subject: "The origin".into(), text: String::new(), min_duration: Duration::ZERO };
                shown.origin_troubles.push(trouble);
            }
            for notification in watch.observe(&shown) {
                let before = said.insert((notification.kind.name(), notification.subject), elapsed);
                prop_assert!(before.is_none_or(|before| elapsed - before >= 3600), "{before:?} {elapsed}");
            }
        }
    }
}
