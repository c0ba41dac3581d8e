//! `tidegate replay`: decisions of a policy on the requests of a log.

use crate::support::program::{ExitOutcome, run, run_in};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

#[test]
fn report_shows_refusals_and_window_exhaustion() {
    let fixture = ReplayFixture::with_rules(TEN_A_DAY);
    let log = fixture.write_file("access.log", &minutely_log(0, 30));
    let report = fixture.report(&[&log]);
    let policy = &report["policies"][0];
    assert_eq!((&policy["admitted"], &policy["refused"]), (&10.into(), &20.into()), "{policy}");
    let window = &policy["quotas"][0]["windows"][0];
    assert_eq!(window["used"], 10.0);
    assert_eq!(window["first_refused"], "2024-06-07T00:10:00Z");
    assert_eq!(window["spent"], "2024-06-07T00:10:00Z");
    assert_eq!(policy["classes"][1]["refused"]["quota"], 20);
    let verdicts = fixture.verdicts(&[&log]);
    assert_eq!(verdicts.len(), 30);
    assert_eq!(verdicts[10]["reason"], "quota");
    assert_eq!(verdicts[10]["line"], 11);
    assert_eq!(verdicts[10]["retry_after_s"], 23 * 3600 + 50 * 60);
    assert_eq!(verdicts[9]["verdict"], "admitted");
    // Input that `explain` needs for this decision.
    let last = &verdicts[9];
    assert_eq!((&last["used"]["api"], &last["expected"]["api"], &last["tier"]), (&9.0.into(), &1.0.into(), &0.into()));
    assert_eq!(
        (&verdicts[10]["used"]["api"], &last["window_end"]["api"]),
        (&10.0.into(), &"2024-06-08T00:00:00Z".into())
    );
    let bot = fixture.write_file(
        "bot.log",
        &log_line(0, "/", "Mozilla/5.0 (compatible; Bytespider; spider-feedback@bytedance.com)"),
    );
    let bot = &fixture.verdicts(&[&bot])[0];
    assert_eq!((&bot["operator"], &bot["bot"]), (&Value::Null, &"Bytespider".into()));
}

#[test]
fn budgets_of_keys_have_no_limit_in_common() {
    let fixture = ReplayFixture::with_rules(
        "quotas: { customer: { per: client, limit: 10, limits: { big: 50 }, window: { calendar: day } } }\n\
         classes: [ { name: big, when: { address: 203.0.113.0/24 } }, { name: other } ]\n\
         routes: [ { match: '/**', cost: { customer: 1 } } ]\n",
    );
    let both = |line: &str| line.to_owned() + &line.replace("192.0.2.1", "203.0.113.9");
    let log: String = (0..30).map(|minute| both(&log_line(minute, &format!("/{minute}"), HUMAN))).collect();
    let log = fixture.write_file("access.log", &log);
    let report = fixture.report(&[&log]);
    let policy = &report["policies"][0];
    assert_eq!((&policy["refused"], &policy["quotas"]), (&20.into(), &serde_json::json!([])));
    let first_refused = "2024-06-07T00:10:00Z";
    let used = serde_json::json!({ "name": "customer", "keys": 2, "limited": 1, "used": 40.0, "first_refused": first_refused });
    assert_eq!(policy["budgets"], serde_json::json!([used]));
    let sentence = "2 keys used 40 units; 1 of them reached its limit; the first refusal was at ";
    let summary = fixture.summary(&[&log]);
    assert!(summary.contains(&format!("  customer a budget for each key\n    {sentence}")), "{summary}");
    let page = fixture.run(&[&log, "--html", "-"], b"").output;
    assert!(page.contains(&format!("<strong>customer</strong>, a budget for each key: {sentence}")), "{page}");
    assert!(page.contains("1 of 2 keys reach their limit of customer; 20 of 60 requests are refused"), "{page}");
    assert!(!page.contains("of 10 units used"), "{page}");
}

#[test]
fn spikes_name_who_made_them_and_routes_what_they_cost() {
    let fixture = ReplayFixture::with_rules(
        "quotas: { api: { limit: 1000, window: { calendar: day } } }\n\
         classes: [ { name: other } ]\n\
         routes: [ { match: /login, cost: { api: 2 } }, { match: '/page/*', cost: { api: 1 } } ]\n",
    );
    let day = (0..24 * 60).map(|minute| {
        let usual = log_line(minute, &format!("/page/{minute}"), HUMAN);
        let attack = log_line(minute, "/login", HUMAN).replace("192.0.2.1", "203.0.113.9").replace("GET", "POST");
        usual + &if (200..230).contains(&minute) { attack.repeat(5) } else { String::new() }
    });
    let log = fixture.write_file("access.log", &day.collect::<String>());
    let policy = &fixture.report(&[&log])["policies"][0];
    let spikes = policy["spikes"].as_array().expect("a list");
    assert_eq!(spikes.len(), 1, "{spikes:?}");
    let spike = &spikes[0];
    assert_eq!((&spike["start"], &spike["end"]), (&"2024-06-07T03:15:00Z".into(), &"2024-06-07T04:00:00Z".into()));
    assert_eq!((&spike["units_asked"], &spike["peak"], &spike["usual"]), (&345.0.into(), &165.0.into(), &15.0.into()));
    assert_eq!(
        (&spike["clients"][0]["name"], &spike["clients"][0]["units_asked"]),
        (&"203.0.113.9".into(), &300.0.into())
    );
    assert_eq!((&spike["paths"][0]["name"], &spike["paths"][0]["requests"]), (&"/login".into(), &150.into()));
    assert_eq!(spike["paths"].as_array().map(Vec::len), Some(1), "only paths with a tenth of the spike");
    let routes = policy["routes"].as_array().expect("a list");
    let routes: Vec<_> =
        routes.iter().map(|route| (&route["name"], &route["units_asked"], &route["refused"])).collect();
    let refused = policy["refused"].as_u64().expect("a number");
    assert_eq!(routes.len(), 2);
    assert_eq!((routes[0].0, routes[0].1), (&"/page/*".into(), &1440.0.into()));
    assert_eq!((routes[1].0, routes[1].1), (&"/login".into(), &300.0.into()));
    assert_eq!(routes.iter().filter_map(|route| route.2.as_u64()).sum::<u64>(), refused);

    let summary = fixture.summary(&[&log]);
    let words = summary.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("spike: 2024-06-07 03:15 to 2024-06-07 04:00: 345 units asked for, up to 11 times the usual 15"),
        "{summary}"
    );
    assert!(
        words.contains("by 203.0.113.9 (human, 300)") || words.contains("by 203.0.113.9 (suspected bot, 300)"),
        "{summary}"
    );
    assert!(words.contains("route requests refused units asked for /page/* 1,440 "), "{summary}");
    assert!(summary.lines().all(|line| line.chars().count() <= 80), "{summary}");
    let short: String = (0..90).map(|minute| log_line(minute, &format!("/page/{minute}"), HUMAN)).collect();
    let short = fixture.write_file("short.log", &short);
    assert!(!fixture.summary(&[&short]).contains("spike"), "nothing is usual yet");
    assert!(fixture.summary(&[&short]).contains("00:00 (part)"), "the window is not whole");
}

#[test]
fn all_unit_totals_equal_settled_charges() {
    let fixture = ReplayFixture::with_rules(TEN_A_DAY);
    let log = fixture.write_file("access.log", &mixed_log(3000));
    let all_options = ["--actual-cost", "/**=0.25", "--cache-ttl", "10m", "--latency", "2s", "--retry-model", "obey"];
    for options in [&[][..], &all_options[..2], &all_options[2..4], &all_options] {
        let arguments = [&[&*log], options].concat();
        let report = fixture.report(&arguments)["policies"][0].clone();
        let verdicts = fixture.verdicts(&arguments);
        let admitted_cost = |is_selected: &dyn Fn(&Value) -> bool| {
            sum(verdicts.iter().filter(|verdict| verdict["verdict"] == "admitted" && is_selected(verdict)), |verdict| {
                &verdict["cost"]["api"]
            })
        };
        let list = |name: &str| report[name].as_array().expect("a list").clone();
        let total = admitted_cost(&|_| true);
        assert!(total > 5.0 && report["refused"].as_u64() > Some(100), "{options:?}: {report}");
        let windows = report["quotas"][0]["windows"].as_array().expect("a list");
        assert_eq!(sum(windows, |window| &window["used"]), total, "{options:?}");
        for class in list("classes") {
            let charged = admitted_cost(&|verdict| verdict["class"] == class["name"]);
            assert_eq!(class["units"]["api"].as_f64().unwrap_or(0.0), charged, "{options:?}: {class}");
            let hours = list("hours");
            let hour_classes = hours.iter().flat_map(|hour| hour["classes"].as_array().expect("a list"));
            let hour_units =
                sum(hour_classes.filter(|hour| hour["name"] == class["name"]), |hour| &hour["units"]["api"]);
            assert_eq!(hour_units, charged, "{options:?}: {class}");
        }
        let bot_units = admitted_cost(&|verdict| verdict["kind"] != "human");
        assert_eq!(sum(&list("bots"), |bot| &bot["units"]), bot_units, "{options:?}");
        let requested =
            sum(verdicts.iter().filter(|verdict| verdict["kind"] != "human"), |verdict| &verdict["cost"]["api"]);
        assert_eq!(sum(&list("bots"), |bot| &bot["units_asked"]), requested, "{options:?}");
    }
}

#[test]
fn times_are_shown_in_quota_zone() {
    let fixture = ReplayFixture::with_rules(&TEN_A_DAY.replace("zone: UTC", "zone: Etc/GMT-9"));
    let log = fixture.write_file("access.log", &minutely_log(0, 30));
    insta::assert_snapshot!(fixture.summary(&["access.log"]));
    let window = &fixture.report(&[&log])["policies"][0]["quotas"][0];
    assert_eq!(
        (&window["zone"], &window["windows"][0]["start"]),
        (&"Etc/GMT-9".into(), &"2024-06-06T15:00:00Z".into())
    );
}

#[test]
fn assumptions_are_listed_within_eighty_columns() {
    let fixture = ReplayFixture::with_rules(TEN_A_DAY);
    fixture.write_file("access.log", &mixed_log(3000));
    let options = ["--retry-model", "obey", "--actual-cost", "/**=0.25", "--cache-ttl", "10m", "--latency", "2s"];
    let output = fixture.summary(&[&["access.log"], &options[..]].concat());
    insta::assert_snapshot!(output);
    assert!(output.lines().all(|line| line.chars().count() <= 80), "{output}");
}

#[test]
fn first_refused_ignores_fully_shed_classes() {
    let tiers = "tiers: { bot: [{ above: 0%, shed: 100% }] }";
    let fixture = ReplayFixture::with_rules(&TEN_A_DAY.replace("pacing: off", tiers));
    let log = fixture.write_file("access.log", &(log_line(0, "/", "curl/8.0") + &minutely_log(1, 30)));
    let report = fixture.report(&[&log]);
    assert_eq!(report["policies"][0]["classes"][0]["refused"]["tier"], 1, "{report}");
    assert_eq!(report["policies"][0]["quotas"][0]["windows"][0]["first_refused"], "2024-06-07T00:11:00Z");
}

#[test]
fn every_output_field_is_documented() {
    let documentation = include_str!("../../docs/REPLAY.md");
    let fixture = ReplayFixture::with_rules(TEN_A_DAY);
    let log = fixture.write_file("access.log", &(mixed_log(3000) + "nonsense\n"));
    let other = fixture.write_file("other.yaml", &TEN_A_DAY.replace("limit: 10", "limit: 20"));
    let compared = [&*log, "--compare", &other];
    let mut fields = BTreeSet::new();
    collect_fields(&fixture.report(&compared), &mut fields);
    let cached = fixture.write_file("cached.yaml", &format!("cache: {{}}\n{TEN_A_DAY}"));
    collect_fields(&fixture.report(&[&log, "--compare", &cached]), &mut fields);
    fixture.verdicts(&compared).iter().for_each(|verdict| collect_fields(verdict, &mut fields));
    let missing: Vec<_> = fields.iter().filter(|field| !documentation.contains(&format!("`{field}`"))).collect();
    assert!(fields.len() > 60 && missing.is_empty(), "docs/REPLAY.md does not document {missing:?}");
}

#[test]
fn output_is_deterministic() {
    let fixture = ReplayFixture::with_rules(TEN_A_DAY);
    let log = fixture.write_file("access.log", &mixed_log(3000));
    let outputs = [
        fixture.output_bytes(&[&log, "--retry-model", "obey"]),
        fixture.output_bytes(&[&log, "--retry-model", "obey"]),
    ];
    assert!(outputs[0].iter().all(|bytes| !bytes.is_empty()));
    assert_eq!(outputs[0], outputs[1]);
}

#[test]
fn plain_gzip_and_stdin_logs_give_equal_reports() {
    let fixture = ReplayFixture::with_rules(TEN_A_DAY);
    let text = minutely_log(0, 30);
    let plain = fixture.write_file("access.log", &text);
    let compressed = fixture.write_gzip("access.log.gz", &text);
    let [plain, compressed] = [plain, compressed].map(|log| fixture.report(&[&log])["policies"][0].clone());
    assert_eq!(plain, compressed);
    let outcome = fixture.run(&["-", "--json", &fixture.path("report.json")], text.as_bytes());
    assert_eq!(outcome.code, 0, "{}", outcome.errors);
    assert_eq!(fixture.read("report.json")["policies"][0], plain);
}

#[test]
fn several_files_are_one_log() {
    let fixture = ReplayFixture::with_rules(TEN_A_DAY);
    let text = minutely_log(0, 30);
    let alternate_lines = |from: usize| text.lines().skip(from).step_by(2).collect::<Vec<_>>().join("\n");
    let single = fixture.write_file("whole.log", &text);
    let halves =
        [fixture.write_file("odd.log", &alternate_lines(1)), fixture.write_file("even.log", &alternate_lines(0))];
    let single = fixture.report(&[&single])["policies"][0].clone();
    assert_eq!(fixture.report(&[&halves[0], &halves[1]])["policies"][0], single);
}

#[test]
fn unreadable_lines_are_counted_and_skipped() {
    let fixture = ReplayFixture::with_rules(TEN_A_DAY);
    let text = format!(
        "{}nonsense\n\n192.0.2.1 - - [07/Jun/2024:00:09:00 +0000] \"-\" 408 0 \"-\" \"-\"\n",
        minutely_log(0, 9)
    );
    let log = fixture.write_file("access.log", &text);
    let report = fixture.report(&[&log]);
    assert_eq!(report["log"]["requests"], 9);
    assert_eq!(report["log"]["empty"], 1);
    assert_eq!(report["log"]["non_requests"], 1);
    assert_eq!(report["log"]["first_non_request"], format!("{log}:12"));
    assert_eq!(report["log"]["invalid_lines"]["unknown_format"]["first"], format!("{log}:10"));
    let missing: Vec<&Value> =
        report["log"]["missing_fields"].as_array().expect("a list").iter().map(|entry| &entry["fact"]).collect();
    assert_eq!(missing, ["fraction", "host", "headers", "cost", "latency"]);
}

#[test]
fn invalid_inputs_are_refused_with_reason() {
    let fixture = ReplayFixture::with_rules(TEN_A_DAY);
    let (log, empty) = (fixture.write_file("access.log", &minutely_log(0, 1)), fixture.write_file("empty.log", ""));
    let invalid = fixture.write_file("wrong.yaml", "quota: 1\n");
    for (arguments, code, error) in [
        (vec!["/does/not/exist.log"], 2, "/does/not/exist.log: cannot be read: No such file"),
        (vec![&*empty], 2, "no requests found in 0 lines"),
        (vec![&*invalid], 2, "no requests found in 1 lines, 1 of them in no known format"),
        (vec![&*log, "--compare", &invalid], 2, "quota: unknown"),
        (vec![&*log, "--actual-cost", "/other=1"], 2, "--actual-cost: unknown route \"/other\""),
        (vec![&*log, "--latency", "1"], 2, "write a duration such as 200ms, 60s or 14d"),
        (vec![], 2, "<LOG>"),
    ] {
        let outcome = fixture.run(&arguments, b"");
        assert_eq!(outcome.code, code, "{arguments:?}: {}", outcome.errors);
        assert!(outcome.errors.contains(error), "{arguments:?}: {}", outcome.errors);
    }
    let truncated = fixture.write_file("cut.log.gz", "");
    let compressed = fs::read(fixture.write_gzip("whole.log.gz", &mixed_log(2000))).expect("file was written");
    fs::write(&truncated, &compressed[..compressed.len() / 2]).expect("file is writable");
    let outcome = fixture.run(&[&truncated], b"");
    assert_eq!(outcome.code, 2, "{}", outcome.errors);
    assert!(outcome.errors.contains("cut.log.gz: cannot be read"), "{}", outcome.errors);
}

#[test]
fn behavior_in_the_own_log_is_judged_anew_on_request() {
    let fixture = ReplayFixture::with_rules(
        "quotas: { api: { limit: 1000, window: { calendar: day } } }\n\
         classes: [ { name: bot, when: { kind: suspected_bot }, block: true }, { name: other } ]\n\
         routes: [ { match: '/**', cost: { api: 1 } } ]\n",
    );
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/golden/access.jsonl");
    let text = fs::read_to_string(golden).expect("a readable file");
    // A browser's name over TLS and none of its fields, which the gateway of that day took for a person.
    let replaced = [
        ("\"ID\"", "\"0123456789abcdef\""),
        ("SEQUENCE", "1"),
        ("\"tls\":false", "\"tls\":true"),
        (",\"x-api-key\"]", "]"),
    ];
    let line = text.lines().next().expect("a line");
    let line = replaced.iter().fold(line.to_owned(), |line, (from, to)| {
        assert!(line.contains(from), "{from} in {line}");
        line.replace(from, to)
    });
    let log = fixture.write_file("access.log", &(line + "\n"));
    let kinds = |arguments: &[&str]| fixture.verdicts(arguments)[0]["kind"].clone();
    assert_eq!(kinds(&[&log]), "human", "as logged");
    assert_eq!(kinds(&[&log, "--reclassify"]), "suspected_bot");
}

#[test]
fn two_policies_are_compared() {
    let fixture = ReplayFixture::with_rules(TEN_A_DAY);
    let larger = fixture.write_file("twenty.yaml", &TEN_A_DAY.replace("limit: 10", "limit: 20"));
    let log = fixture.write_file("access.log", &minutely_log(0, 30));
    let report = fixture.report(&[&log, "--compare", &larger]);
    let comparison = &report["comparison"];
    assert_eq!((&comparison["same"], &comparison["only_second_admits"]), (&20.into(), &10.into()));
    assert_eq!(comparison["by_class"]["other"]["only_second_admits"], 10);
    assert_eq!(comparison["examples"][0]["place"]["line"], 11);
    assert_eq!(report["policies"][1]["admitted"], 20);
    insta::assert_snapshot!(fixture.summary(&["access.log", "--compare", "twenty.yaml"]));
    let verdicts = fixture.verdicts(&[&log, "--compare", &larger]);
    let count_of = |policy: &str| verdicts.iter().filter(|verdict| verdict["policy"] == policy).count();
    assert_eq!((count_of(&fixture.path("tidegate.yaml")), count_of(&larger)), (30, 30));
    assert!(fixture.verdicts(&[&log])[0].get("policy").is_none(), "there is only one policy");
}

#[test]
fn comparison_counts_refusals_by_own_class() {
    let fixture = ReplayFixture::with_rules(TEN_A_DAY);
    let rules = TEN_A_DAY.replace("limit: 10", "limit: 5").replace("name: other", "name: visitor");
    let stricter = fixture.write_file("stricter.yaml", &rules);
    let log = fixture.write_file("access.log", &minutely_log(0, 30));
    let comparison = fixture.report(&[&log, "--compare", &stricter])["comparison"].clone();
    let expected = serde_json::json!({ "visitor": { "only_first_admits": 5, "only_second_admits": 0 } });
    assert_eq!((&comparison["by_class"], &comparison["other_class"]), (&expected, &30.into()));
    assert_eq!([&comparison["examples"][0]["class"], &comparison["examples"][0]["second_class"]], ["other", "visitor"]);
    let output = fixture.run(&[&log, "--compare", &stricter], b"").output;
    assert!(output.contains("30 lines have another class under the second"), "{output}");
}

#[test]
fn cache_ttl_charges_each_page_once() {
    let fixture = ReplayFixture::with_rules(TEN_A_DAY);
    let log =
        fixture.write_file("access.log", &(0..30).map(|minute| log_line(minute, "/page", HUMAN)).collect::<String>());
    let used = |arguments: &[&str]| fixture.report(arguments)["policies"][0]["quotas"][0]["windows"][0]["used"].clone();
    assert_eq!(used(&[&log]), 10.0);
    assert_eq!(used(&[&log, "--cache-ttl", "1d"]), 1.0);
    assert_eq!(used(&[&log, "--cache-ttl", "10m"]), 3.0);
    assert_eq!(used(&[&log, "--actual-cost", "/**=0.25"]), 7.5);
}

#[test]
fn comparison_shows_what_a_cache_saves() {
    let fixture = ReplayFixture::with_rules(TEN_A_DAY);
    let with_cache = format!("cache: {{ stale_when_refused: 1h }}\n{TEN_A_DAY}");
    let cached = fixture.write_file("cached.yaml", &with_cache);
    // Six pages, each again after six and twelve minutes, then new ones beyond the limit, and a page that is stale.
    let pages = (0..18).map(|minute| log_line(minute, &format!("/{}", minute % 6), HUMAN));
    let others = (18..28).map(|minute| log_line(minute, &format!("/{minute}"), HUMAN));
    let text = pages.chain(others).chain([log_line(40, "/0", HUMAN)]).collect::<String>();
    let log = fixture.write_file("access.log", &text);
    let arguments = [&*log, "--compare", &cached, "--max-age", "10m"];
    let report = fixture.report(&arguments);
    assert_eq!((&report["assumptions"]["max_age_s"], &report["policies"][0]["cache"]), (&600.into(), &Value::Null));
    let cache = &report["policies"][1]["cache"];
    assert_eq!((&cache["hits"], &cache["requests"], &cache["misses"]), (&6.into(), &16.into(), &10.into()), "{cache}");
    assert_eq!(cache["saved"], serde_json::json!({ "api": 6.0 }));
    assert_eq!((&cache["replaced_refusals"], &cache["store"]["entries"]), (&3.into(), &6.into()), "{cache}");
    let verdicts = fixture.verdicts(&arguments);
    let of_cached: Vec<_> = verdicts.iter().filter(|verdict| verdict["policy"] == *cached).collect();
    let stale: Vec<_> = of_cached.iter().filter(|verdict| verdict["cache"] == "stale").collect();
    assert!(stale.iter().all(|verdict| verdict["verdict"] == "refused" && verdict["retry_after_s"].is_null()));
    assert_eq!((stale.len(), &of_cached[6]["cache"], &of_cached[6]["saved"]["api"]), (3, &"hit".into(), &1.0.into()));
    insta::assert_snapshot!(fixture.summary(&["access.log", "--compare", "cached.yaml", "--max-age", "10m"]));
    let page = fixture.run(&[&log, "--compare", &cached, "--max-age", "10m", "--html", "-"], b"").output;
    assert!(page.contains("<h2>Cache</h2>") && page.contains("saved 6 units of api"), "{page}");
    let without = fixture.run(&[&log, "--html", "-"], b"").output;
    assert!(!without.contains("<h2>Cache</h2>"));
}

#[test]
fn comparison_on_the_log_of_a_gateway_with_a_cache_says_why_its_sides_are_equal() {
    let fixture = ReplayFixture::with_rules(TEN_A_DAY);
    let cached = fixture.write_file("cached.yaml", &format!("cache: {{}}\n{TEN_A_DAY}"));
    let line = |minute: u32, cache: &str| {
        let used = if cache == "hit" { serde_json::json!({}) } else { serde_json::json!({ "api": 1 }) };
        let at = format!("2026-09-04T12:{minute:02}:00Z");
        let fields = serde_json::json!({
            "settled": at, "started_us": 0, "id": format!("{minute:016x}"), "client": "192.0.2.1", "key": "192.0.2.1",
            "method": "GET", "host": "example.com", "path": "/1", "query": null, "version": "1.1", "status": 200,
            "bytes": 5, "user_agent": HUMAN, "referer": "", "headers_seen": [], "tls": true, "http_10": false,
            "kind": "human", "class": "other", "operator": null, "evidence": [], "route": "/**", "cost": used,
            "charged": used, "verdict": "admitted", "reason": null, "shadow_reason": null, "retry_after_s": null,
            "tier": 0, "guard_admitted": false, "bot_score": null, "used": used, "seq": {}, "settle_seq": {},
            "bucket_seq": null, "scope": null, "scope_wait_ms": 0, "origin_ms": 1, "total_ms": 1, "cache": cache
        });
        // A line begins with its time.
        format!("{{\"time\":\"{at}\",{}\n", &fields.to_string()[1..])
    };
    let warmed = line(2, "hit").replacen("\"cache\":", "\"fill\":\"warm\",\"cache\":", 1);
    let log = fixture.write_file("access.log", &(line(0, "miss") + &line(1, "hit") + &warmed));
    let cache = &fixture.report(&[&log])["policies"][0]["cache"];
    assert_eq!(
        (&cache["hits"], &cache["saved"]["api"]),
        (&2.into(), &1.0.into()),
        "the gateway's own hit saves nothing"
    );
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let summary = flat(&fixture.summary(&["access.log", "--compare", "cached.yaml"]));
    assert!(summary.contains("as the log says: a gateway with a cache wrote it"), "{summary}");
    assert!(summary.contains("replay a log from before the cache was on"), "{summary}");
    let page = fixture.run(&[&log, "--compare", &cached, "--html", "-"], b"").output;
    assert!(page.contains("replay a log from before the cache was on"), "{page}");
}

#[test]
fn latency_keeps_units_reserved() {
    let fixture = ReplayFixture::with_rules(TEN_A_DAY);
    let log = fixture.write_file(
        "access.log",
        &(0..30).map(|minute| log_line(minute, &format!("/{minute}"), HUMAN)).collect::<String>(),
    );
    let admitted = |arguments: &[&str]| fixture.report(arguments)["policies"][0]["admitted"].clone();
    assert_eq!(admitted(&[&log, "--actual-cost", "/**=0", "--latency", "1s"]), 30);
    assert_eq!(admitted(&[&log, "--actual-cost", "/**=0", "--latency", "1h"]), 10);
}

#[test]
fn obedient_clients_honor_retry_after() {
    let rules = r#"
quotas: { api: { limit: 1000, window: { fixed: 1d } } }
classes:
  - { name: bot, when: { kind: [declared_bot, verified_bot] }, bucket: { capacity: 1, fill: 1, interval: 10m } }
  - { name: person, when: { kind: human } }
routes: [ { match: "/**", cost: { api: 1 } } ]
"#;
    let fixture = ReplayFixture::with_rules(rules);
    let log = fixture.write_file(
        "access.log",
        &(0..60).map(|minute| log_line(minute, &format!("/{minute}"), "curl/8.0")).collect::<String>(),
    );
    let bots = |model: &str| fixture.report(&[&log, "--retry-model", model])["policies"][0]["classes"][0].clone();
    let (ignoring, obedient, verified_only) = (bots("ignore"), bots("obey"), bots("verified-only"));
    assert_eq!((&ignoring["requests"], &ignoring["admitted"]), (&60.into(), &6.into()));
    assert_eq!(ignoring, verified_only, "no identity is verified");
    let refused = |class: &Value| class["refused"]["bucket"].as_u64().expect("a number");
    assert!(refused(&obedient) < refused(&ignoring) / 3, "{obedient}");
    assert!(obedient["admitted"].as_u64() >= ignoring["admitted"].as_u64(), "{obedient}");
}

#[test]
fn outputs_never_overwrite_inputs_or_other_outputs() {
    let fixture = ReplayFixture::with_rules(TEN_A_DAY);
    let (log, config) = (fixture.write_file("access.log", &minutely_log(0, 3)), fixture.path("tidegate.yaml"));
    let other = fixture.write_file("other.yaml", TEN_A_DAY);
    let [hard_link, symlink, new, link_to_new] = ["hard", "soft", "new", "to_new"].map(|name| fixture.path(name));
    fs::hard_link(&log, &hard_link).expect("both paths are on one file system");
    std::os::unix::fs::symlink(&config, &symlink).expect("link does not exist yet");
    std::os::unix::fs::symlink("new", &link_to_new).expect("link does not exist yet");
    let alias = format!(
        "{}/../{}/new",
        fixture.path("."),
        fixture.dir.path().file_name().and_then(|name| name.to_str()).expect("UTF-8 file name")
    );
    for (arguments, expected) in [
        (vec!["--json", &log, &log], format!("--json: {log} is read as a log; name another file")),
        (vec!["--verdicts", &hard_link, &log], format!("--verdicts: {hard_link} is read as a log")),
        (vec!["--html", &config, &log], format!("--html: {config} is read as --config")),
        (vec!["--html", &symlink, &log], format!("--html: {symlink} is read as --config")),
        (vec!["--json", &other, "--compare", &other, &log], format!("--json: {other} is read as --compare")),
        (vec!["--json", &new, "--html", &new, &log], format!("--html: {new} is the output of --json")),
        (vec!["--json", &link_to_new, "--html", &alias, &log], format!("--html: {alias} is the output of --json")),
        (vec!["--json", "-", "--verdicts", "/dev/stdout", &log], "--json: - is the output of --verdicts".to_owned()),
    ] {
        let before = [&log, &config, &other].map(|file| fs::read(file).expect("file exists"));
        let outcome = fixture.run(&arguments, b"");
        assert_eq!(outcome.code, 2, "{arguments:?}: {}", outcome.errors);
        assert!(outcome.errors.contains(&expected), "{arguments:?}: {}", outcome.errors);
        assert_eq!([&log, &config, &other].map(|file| fs::read(file).expect("file exists")), before, "{arguments:?}");
        assert!(!Path::new(&new).exists(), "{arguments:?}");
    }
}

#[test]
fn output_files_are_replaced_atomically() {
    let fixture = ReplayFixture::with_rules(TEN_A_DAY);
    let (log, empty) = (fixture.write_file("access.log", &minutely_log(0, 3)), fixture.write_file("empty.log", ""));
    let (report, link) = (fixture.write_file("report.html", "the one before"), fixture.path("link.html"));
    fs::set_permissions(&report, fs::Permissions::from_mode(0o640)).expect("file is ours");
    std::os::unix::fs::symlink(&report, &link).expect("link does not exist yet");
    assert_eq!(fixture.run(&[&empty, "--html", &report], b"").code, 2);
    assert_eq!(fs::read_to_string(&report).expect("file exists"), "the one before");
    assert_eq!(fixture.run(&[&log, "--html", &link], b"").code, 0);
    assert!(fs::read_to_string(&report).expect("file exists").ends_with("</html>\n"));
    assert!(fs::symlink_metadata(&link).expect("file exists").is_symlink());
    assert_eq!(fs::metadata(&report).expect("file exists").permissions().mode() & 0o777, 0o640);
    let left = fs::read_dir(fixture.dir.path()).expect("directory exists").count();
    assert_eq!(left, 5, "the policy, two logs, the report, the link");
    let outcome = fixture.run(&[&log, "--verdicts", "/dev/full"], b"");
    assert_eq!(outcome.code, 1);
    assert!(outcome.errors.contains("No space left on device"), "{}", outcome.errors);
    assert_eq!(fixture.run(&[&log, "--json", "/dev/null", "--html", "/dev/null"], b"").code, 0);
}

#[test]
fn dash_writes_one_result_to_stdout() {
    let fixture = ReplayFixture::with_rules(TEN_A_DAY);
    let log = fixture.write_file("access.log", &minutely_log(0, 30));
    let report = fixture.run(&[&log, "--json", "-"], b"");
    assert_eq!((report.code, &*report.errors), (0, ""));
    let report: Value = serde_json::from_str(&report.output).expect("one document");
    assert_eq!(report["policies"][0]["admitted"], 10);
    assert!(fixture.run(&[&log, "--html", "/dev/stdout"], b"").output.starts_with("<!DOCTYPE html>"));
    let verdicts = fixture.run(&[&log, "--verdicts", "-"], b"").output;
    assert_eq!(verdicts.lines().count(), 30);
    assert!(verdicts.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
}

/// A temporary directory with a policy.
struct ReplayFixture {
    dir: TempDir,
}

impl ReplayFixture {
    fn with_rules(rules: &str) -> Self {
        let fixture = Self { dir: tempfile::tempdir().expect("temporary directory") };
        fixture.write_file("tidegate.yaml", rules);
        fixture
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// Writes a file and returns its path.
    fn write_file(&self, name: &str, text: &str) -> String {
        let text = match name.ends_with(".yaml") && !text.starts_with("quota: ") {
            true => format!("origin: {{ url: \"http://127.0.0.1:1\" }}\n{text}"),
            false => text.to_owned(),
        };
        fs::write(self.path(name), text).expect("file is writable");
        self.path(name)
    }

    fn write_gzip(&self, name: &str, text: &str) -> String {
        let file = fs::File::create(self.path(name)).expect("file can be created");
        let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish().map(drop)).expect("file is writable");
        self.path(name)
    }

    fn run(&self, arguments: &[&str], input: &[u8]) -> ExitOutcome {
        let config = self.path("tidegate.yaml");
        run(&[&["replay", "--config", &config], arguments].concat(), input)
    }

    /// Returns the summary that is printed for the files named in `arguments`.
    fn summary(&self, arguments: &[&str]) -> String {
        let outcome = run_in(self.dir.path(), &[&["replay", "--config", "tidegate.yaml"], arguments].concat());
        assert_eq!((outcome.code, &*outcome.errors), (0, ""), "{arguments:?}");
        outcome.output
    }

    fn read(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path(name)).expect("file was written")).expect("JSON")
    }

    fn report(&self, arguments: &[&str]) -> Value {
        let outcome = self.run(&[arguments, &["--json", &self.path("report.json")]].concat(), b"");
        assert_eq!((outcome.code, &*outcome.errors), (0, ""), "{arguments:?}");
        self.read("report.json")
    }

    fn verdicts(&self, arguments: &[&str]) -> Vec<Value> {
        let outcome = self.run(&[arguments, &["--verdicts", &self.path("verdicts")]].concat(), b"");
        assert_eq!((outcome.code, &*outcome.errors), (0, ""), "{arguments:?}");
        let text = fs::read_to_string(self.path("verdicts")).expect("file was written");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Returns standard output, the report and the verdicts of a run.
    fn output_bytes(&self, arguments: &[&str]) -> [Vec<u8>; 3] {
        let (report, verdicts) = (self.path("report.json"), self.path("verdicts"));
        let outcome = self.run(&[arguments, &["--json", &report, "--verdicts", &verdicts]].concat(), b"");
        let file = |path: &Path| fs::read(path).expect("file was written");
        [outcome.output.into_bytes(), file(&PathBuf::from(report)), file(&PathBuf::from(verdicts))]
    }
}

fn sum<'a>(values: impl IntoIterator<Item = &'a Value>, number: impl Fn(&'a Value) -> &'a Value) -> f64 {
    values.into_iter().map(|value| number(value).as_f64().unwrap_or(0.0)).sum()
}

/// Collects the field names of a document, except names that come from the log or the policy.
fn collect_fields(value: &Value, fields: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_fields(item, fields)),
        Value::Object(members) => {
            for (name, value) in members {
                fields.insert(name.clone());
                match (&**name, value) {
                    ("by_class" | "invalid_lines", Value::Object(members)) => {
                        members.values().for_each(|value| collect_fields(value, fields));
                    }
                    (
                        "units" | "saved" | "cost" | "costs" | "expected" | "used" | "window_end" | "refused"
                        | "shadow",
                        Value::Object(_),
                    ) => {}
                    _ => collect_fields(value, fields),
                }
            }
        }
        _ => {}
    }
}

/// Returns a log with one request per minute, from minute `from` on.
fn minutely_log(from: u32, count: u32) -> String {
    (from..from + count).map(|minute| log_line(minute, &format!("/{minute}"), HUMAN)).collect()
}

/// Returns a log with many clients of all kinds, with some lines out of order.
fn mixed_log(count: u32) -> String {
    let agents =
        [HUMAN, "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", "curl/8.0", "GPTBot/1.2"];
    (0..count).fold(String::new(), |mut log, number| {
        let (minute, agent) = (number * 7 % 40 + number / 4, agents[number as usize * 5 % 4]);
        let (client, page) = (number % 97, number % 31);
        let (hour, minute) = (minute / 60 % 24, minute % 60);
        let _ = writeln!(log, "198.51.100.{client} - - [07/Jun/2024:{hour:02}:{minute:02}:00 +0000] \"GET /{page} HTTP/1.1\" 200 5 \"-\" \"{agent}\"");
        log
    })
}

fn log_line(minute: u32, path: &str, agent: &str) -> String {
    let (hour, minute) = (minute / 60, minute % 60);
    format!(
        "192.0.2.1 - - [07/Jun/2024:{hour:02}:{minute:02}:00 +0000] \"GET {path} HTTP/1.1\" 200 512 \"-\" \"{agent}\"\n"
    )
}

const HUMAN: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";

const TEN_A_DAY: &str = r#"
bot_detection: { enabled: false }
quotas: { api: { limit: 10, window: { calendar: day, zone: UTC, at: "00:00" }, pacing: off } }
classes:
  - { name: bot, when: { kind: [verified_bot, declared_bot, impostor] } }
  - { name: other, when: {} }
routes: [ { match: "/**", cost: { api: 1 } } ]
"#;
