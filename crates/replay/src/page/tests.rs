use super::*;
use crate::Assumptions;
use crate::report::*;
use std::collections::BTreeMap;
use tidegate_policy::tier::Share;
use tidegate_policy::{Timestamp, Units};

/// Creates a report of `days` days with one class and one quota.
fn report(days: u32) -> Report {
    let time = |hour: u32| Timestamp::from_seconds(u64::from(hour) * 3600);
    let hours = (0..days * 24).map(|hour| HourReport {
        start: time(hour),
        classes: vec![ClassHourReport {
            name: "bot".into(),
            requests: 10,
            admitted: 4,
            refused: 6,
            costly: 10,
            costly_admitted: 4,
            admit_ratio: Some(0.4),
            units: BTreeMap::new(),
        }],
    });
    let window = |day: u32| WindowReport {
        overrun: Units::ZERO,
        start: time(day * 24),
        end: time(day * 24 + 24),
        whole: true,
        used: Units::from_whole(96),
        left: Units::from_whole(4),
        first_refused: None,
        spent: None,
        by_class: BTreeMap::from([("bot".into(), Units::from_whole(96))]),
    };
    let points = (0..days * 24)
        .map(|hour| PointReport { time: time(hour), units: Units::from_whole(u64::from(hour % 24 + 1) * 4) });
    let quota = QuotaReport {
        name: "api".into(),
        limit: Units::from_whole(100),
        zone: Some("UTC".into()),
        tiers: vec![ClassTiersReport {
            class: "bot".into(),
            tiers: vec![TierReport { above: Units::from_whole(50), shed: Share::from_ratio(0.6) }],
        }],
        windows_in_all: u64::from(days),
        windows: (0..days).map(window).collect(),
        step_s: 3600,
        used: points.collect(),
        planned: Vec::new(),
    };
    let requests = u64::from(days) * 240;
    let policy = PolicyReport {
        name: "a.yaml".into(),
        requests,
        admitted: requests * 4 / 10,
        refused: requests * 6 / 10,
        classes: vec![ClassReport {
            name: "bot".into(),
            requests,
            admitted: requests * 4 / 10,
            refused: BTreeMap::from([("tier", requests * 6 / 10)]),
            shadow: BTreeMap::new(),
            costly: requests,
            costly_admitted: requests * 4 / 10,
            units: BTreeMap::new(),
        }],
        quotas: vec![quota],
        budgets: Vec::new(),
        hours: hours.collect(),
        verified_bots: AdmitReport { costly: 0, admitted: 0, worst: None, best: None },
        bots: (0..12).map(bot).collect(),
        routes: vec![RouteReport {
            name: "/item/*".into(),
            requests,
            refused: requests * 6 / 10,
            units: Units::from_whole(96),
            units_asked: Units::from_whole(240),
        }],
        spikes: vec![SpikeReport {
            start: time(3),
            end: time(4),
            units_asked: Units::from_whole(3300),
            peak: Units::from_whole(960),
            usual: Units::from_whole(120),
            clients: vec![spender("192.0.2.7", Some("human"))],
            paths: vec![spender("/a<b", None)],
        }],
        spenders: SpendersReport {
            clients: vec![spender("192.0.2.7", Some("human"))],
            paths: vec![spender("/a<b", None)],
            ..SpendersReport::default()
        },
        refused_pages: Vec::new(),
        cache: None,
        agreement: None,
        abandoned: 0,
        unsupported: Vec::new(),
    };
    Report {
        log: LogReport {
            files: vec!["access.log".into()],
            lines: requests,
            requests,
            clients: crate::log::ClientNotes {
                formats: vec!["combined".to_owned()],
                columns: vec!["first column".to_owned()],
                warnings: Vec::new(),
            },
            empty: 0,
            invalid_lines: BTreeMap::new(),
            non_requests: 0,
            first_non_request: None,
            out_of_order: 0,
            late: 0,
            window_s: 60,
            first: time(0),
            last: time(days * 24 - 1),
            span_s: u64::from(days * 24 - 1) * 3600,
            missing_fields: Vec::new(),
        },
        assumptions: Assumptions::default(),
        policies: vec![policy],
        comparison: None,
    }
}

fn bot(number: u64) -> BotReport {
    let units = Units::from_whole(100 - number);
    BotReport {
        name: format!("bot{number}"),
        kind: "declared_bot",
        requests: 100,
        refused: 0,
        units,
        units_asked: units,
    }
}

fn spender(name: &str, kind: Option<&'static str>) -> SpenderReport {
    let (units, units_asked) = (Units::from_whole(3), Units::from_whole(251));
    SpenderReport { name: name.into(), kind, requests: 251, refused: 248, units, units_asked }
}

#[test]
fn ten_bots_are_shown_and_the_others_folded() {
    let page = page(&report(1));
    let (shown, folded) = page.split_once("<summary>Further bots</summary>").expect("twelve bots");
    assert!(shown.contains(">bot9 ") && !shown.contains(">bot10 ") && folded.contains(">bot11 "), "{page}");
}

#[test]
fn spikes_and_routes_are_explained() {
    let page = page(&report(1));
    let spike = "1 Jan 03:00 to 1 Jan 04:00: 3,300 units asked for, up to 8 times the usual 120 of a quarter of an hour; \
                 by 192.0.2.7 (human, 251); for /a&lt;b (251).";
    assert!(page.contains(spike), "{page}");
    assert!(page.contains("item/<wbr>*") && page.contains("<small>100.0 %<") && page.contains("144 of 240"), "{page}");
}

#[test]
fn spenders_are_shown_by_client_and_folded_by_path() {
    let page = page(&report(1));
    let (shown, folded) = page.split_once("<summary>Paths</summary>").expect("a path");
    assert!(shown.contains("192.0.2.7 <small>human</small>") && shown.contains("248 of 251"), "{page}");
    assert!(folded.contains("a&lt;b") && !page.contains("<summary>Networks</summary>"), "{page}");
}

#[test]
fn report_page_is_self_contained_and_complete() {
    let page = page(&report(1));
    for text in [
        "bot</strong>: 240 requests, 144 refused (144 by tier).",
        "api</strong>: 96 of 100 units used in its window; units were left at its end.",
        "<title>Usage of api</title>",
        "bot 60 %",
        "limit 100",
        "40.0 % of 240 admitted; 40.0 % in the worst hour, from 1 Jan 00:00.",
    ] {
        assert!(page.contains(text), "{text}");
    }
    for reference in ["http:", "https:", "<script", "<link", "url(", "@import", "src="] {
        assert!(!page.contains(reference), "{reference}");
    }
}

#[test]
fn report_uses_quota_zone_and_draws_early_windows() {
    let mut report = report(2);
    report.policies[0].quotas[0].zone = Some("Etc/GMT-9".into());
    report.log.first = Timestamp::from_seconds(6 * 3600 + 1800);
    let page = page(&report);
    for text in [
        "from 1 Jan 15:30 to 3 Jan 08:00 (+09:00)",
        "<title>1 Jan 15:00: 4 admitted, 6 refused</title>",
        "96.0 % of 100 units used in 2 windows",
        "Times are in +09:00.",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn the_same_report_gives_the_same_bytes() {
    assert_eq!(page(&report(3)), page(&report(3)));
}

#[test]
fn long_logs_use_longer_chart_steps() {
    for (days, text) in [
        (1, "Each bar is an hour"),
        (7, "Each bar is 2 hours"),
        (30, "Each bar is 12 hours"),
        (365, "Each bar is 7 days"),
    ] {
        let page = page(&report(days));
        assert!(page.contains(text), "{days}: {text}");
        let bars = page.matches("<rect ").count();
        assert!(bars <= 3 * 85, "{days}: {bars} bars");
    }
    let year = page(&report(365));
    let chart = year.split("<table>").next().unwrap_or_default().len();
    assert!(chart < 60_000, "{chart} bytes before the first table");
}

#[test]
fn names_in_the_report_are_escaped() {
    let hostile = "</title><script>alert(1)</script>";
    let mut report = report(1);
    report.log.files = vec![hostile.into()];
    let policy = &mut report.policies[0];
    policy.name = hostile.into();
    policy.classes[0].name = hostile.into();
    policy.hours[0].classes[0].name = hostile.into();
    policy.quotas[0].name = hostile.into();
    policy.quotas[0].tiers[0].class = hostile.into();
    policy.quotas[0].windows[0].by_class = BTreeMap::from([(hostile.into(), Units::from_whole(1))]);
    policy.unsupported = vec![hostile.into()];
    policy.bots = vec![BotReport {
        name: hostile.into(),
        kind: "impostor",
        requests: 1,
        refused: 1,
        units: Units::ZERO,
        units_asked: Units::from_whole(1),
    }];
    policy.refused_pages = vec![RefusedPageReport {
        operator: hostile.into(),
        page: hostile.into(),
        refused: 1,
        first: Timestamp::default(),
        last: Timestamp::default(),
    }];
    let page = page(&report);
    assert!(!page.contains("<script"));
    assert!(page.matches("&lt;/title&gt;&lt;script&gt;").count() > 10);
}

#[test]
fn verdict_says_whether_quotas_last_and_who_is_refused() {
    let verdict = |report: &Report| {
        let page = page(report);
        let (_, rest) = page.split_once("<p class=\"verdict\">").expect("a verdict");
        rest.split_once("</p>").expect("an end").0.to_owned()
    };
    let mut report = report(3);
    let refused = "432 of 720 requests are refused, most of them in the class bot (432)";
    assert_eq!(verdict(&report), format!("Under a.yaml, the quota api lasts in all 3 windows; {refused}."));
    let policy = &mut report.policies[0];
    policy.quotas[0].windows[1].spent = Some(Timestamp::from_seconds(36 * 3600));
    policy.classes[0].shadow = BTreeMap::from([("quota", 5)]);
    let spent = verdict(&report);
    assert!(spent.starts_with("Under a.yaml, the quota api is used up in 1 of 3 windows, first at "), "{spent}");
    assert!(spent.ends_with("(432); 5 more would be, were shadow mode off."), "{spent}");
    let policy = &mut report.policies[0];
    (policy.refused, policy.quotas) = (0, Vec::new());
    policy.classes[0].refused = BTreeMap::new();
    assert_eq!(verdict(&report), "Under a.yaml, no request is refused, but 5 would be, were shadow mode off.");
    report.policies[0].classes[0].shadow = BTreeMap::new();
    assert_eq!(verdict(&report), "Under a.yaml, no request is refused.");
}

#[test]
fn shares_leave_out_windows_of_which_the_log_has_a_part() {
    let mut report = report(3);
    let figure = |report: &Report, text: &str| {
        let page = page(report);
        assert!(page.contains(text), "{page}");
    };
    figure(&report, "<strong>288 units</strong> 96.0 %");
    let windows = &mut report.policies[0].quotas[0].windows;
    (windows[2].used, windows[2].whole) = (Units::from_whole(10), false);
    figure(&report, "<strong>202 units</strong> 96.0 % of 2 whole windows of 3");
    report.policies[0].quotas[0].windows.iter_mut().for_each(|window| window.whole = false);
    figure(&report, "<strong>202 units</strong> no whole window in the log");
}
