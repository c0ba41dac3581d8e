//! Rewriting of robots.txt: each directive applies to the intended crawlers only, and no crawler may fetch more or
//! less.

use crate::support::robots::{RobotsReader, lines};
use flate2::read::GzDecoder;
use proptest::prelude::*;
use serde_json::Value;
use std::io::Read;
use tidegate_crawlers::robots::{RobotsDirectives, merge_directives};

/// Crawlers with a requested delay, and crawlers without one.
const CRAWLERS_WITH_DELAY: [(&str, u32); 6] =
    [("bingbot", 30), ("msnbot", 30), ("msnbot-media", 30), ("CCBot", 5), ("Applebot", 7), ("AdsBot-Google", 9)];
const CRAWLERS_WITHOUT_DELAY: [&str; 4] = ["Googlebot", "SemrushBot", "YandexBot", "nobody"];
const PATHS: [&str; 7] = ["/", "/search", "/search?q=a", "/admin/", "/index.html", "/tag/x/", "/deep/down.php?x=/y"];

#[test]
fn delay_is_written_to_the_matching_group() {
    let text = "# ours\nUser-agent: bingbot\nDisallow: /a\n\nUser-agent: *\nDisallow: /b\nSitemap: https://a/s.xml\n";
    assert_eq!(
        merge_text(text, &directives(&[("bingbot", 30), ("ccbot", 5)], Some(10), None)),
        "# ours\nUser-agent: bingbot\nCrawl-delay: 30\nDisallow: /a\n\nUser-agent: *\nCrawl-delay: 10\nDisallow: /b\n\
         Sitemap: https://a/s.xml\n\nUser-agent: ccbot\nCrawl-delay: 5\nDisallow: /b\n"
    );
}

#[test]
fn new_group_copies_the_previously_matching_rules() {
    let directives = directives(&[("bingbot", 30), ("msnbot", 30)], None, None);
    let text = "User-agent: *\r\nAllow: /a # yes\r\nDisallow: /\r\nContent-Signal: search=yes\r\n";
    let expected = "\r\nUser-agent: bingbot\r\nUser-agent: msnbot\r\nCrawl-delay: 30\r\nAllow: /a # yes\r\nDisallow: /\r\n\
                    Content-Signal: search=yes\r\n";
    assert_eq!(merge_text(text, &directives), format!("{text}{expected}"));
    assert_eq!(merge_text("", &directives), "User-agent: bingbot\nUser-agent: msnbot\nCrawl-delay: 30\nDisallow:\n");
}

#[test]
fn group_is_split_for_different_delays() {
    let text = "User-agent: bingbot\nUser-agent: ccbot\nUser-agent: other\nCrawl-delay: 4\nDisallow: /x\n";
    assert_eq!(
        merge_text(text, &directives(&[("bingbot", 30), ("ccbot", 5)], None, None)),
        "User-agent: bingbot\nCrawl-delay: 30\nDisallow: /x\n\nUser-agent: ccbot\nCrawl-delay: 5\nDisallow: /x\n\n\
         User-agent: other\nCrawl-delay: 4\nDisallow: /x\n"
    );
}

#[test]
fn delay_only_group_stays_separate() {
    assert_eq!(
        merge_text(
            "User-agent: bingbot\nCrawl-delay: 1\n\nUser-agent: *\nCrawl-delay: 100\nDisallow: /x\n",
            &directives(&[("bingbot", 30)], None, None)
        ),
        "User-agent: bingbot\nCrawl-delay: 30\n\nUser-agent: *\nCrawl-delay: 100\nDisallow: /x\n"
    );
}

#[test]
fn larger_delay_is_kept_once() {
    let directives = directives(&[("bingbot", 30)], None, None);
    let text = "User-agent: bingbot\nCrawl-delay: 60\nDisallow: /x\n";
    assert_eq!(merge_text(text, &directives), text);
    for (rules, merged_rules) in [
        ("Disallow: /x\ncrawl-delay:2.5 # be kind\r\n", "Disallow: /x\ncrawl-delay:30 # be kind\r\n"),
        ("Crawl-delay 5\nDisallow: /x\nCrawl-delay: 7\n", "Crawl-delay 30\nDisallow: /x\n"),
        ("Crawl-delay: 5\nCrawl-delay: 40\nDisallow: /x", "Crawl-delay: 40\nDisallow: /x"),
        ("Crawl-delay: 30\nAllow: /\nCrawl-delay: 30\n", "Crawl-delay: 30\nAllow: /\n"),
        ("Crawl-delay: soon\nAllow: /\n", "Crawl-delay: 30\nCrawl-delay: soon\nAllow: /\n"),
    ] {
        let group = "User-agent: bingbot\n";
        assert_eq!(merge_text(&format!("{group}{rules}"), &directives), format!("{group}{merged_rules}"));
    }
    let with_larger_delay = "User-agent: *\nCrawl-delay: 60\nDisallow: /x\n";
    assert_eq!(
        merge_text(with_larger_delay, &directives),
        with_larger_delay,
        "the `*` group applies, with a larger delay"
    );
}

#[test]
fn honeypot_is_disallowed_in_every_group() {
    let directives = directives(&[("bingbot", 30)], None, Some("/trap"));
    assert_eq!(
        merge_text("User-agent: a\nDisallow:\n", &directives),
        "User-agent: a\nDisallow: /trap\nDisallow:\n\nUser-agent: *\nDisallow: /trap\n\n\
         User-agent: bingbot\nCrawl-delay: 30\nDisallow: /trap\n"
    );
    assert_eq!(
        merge_text("User-agent: *\nDisallow: /trap\n", &self::directives(&[], None, Some("/trap"))),
        "User-agent: *\nDisallow: /trap\n"
    );
}

#[test]
fn crawlers_keep_their_fallback_groups() {
    let text = "User-agent: Googlebot\nDisallow: /g\n\nUser-agent: *\nDisallow: /\n";
    let merged = merge_text(
        text,
        &directives(&[("Googlebot", 3), ("Googlebot-Image", 3), ("Applebot", 4), ("AdsBot-Google", 5)], None, None),
    );
    assert!(!merged.contains("Googlebot-Image"), "Googlebot's group applies:\n{merged}");
    assert!(merged.contains("User-agent: Applebot\nCrawl-delay: 4\nDisallow: /g\n"), "{merged}");
    assert!(
        merged.contains("User-agent: AdsBot-Google\nCrawl-delay: 5\nDisallow:\n"),
        "the `*` group never applied:\n{merged}"
    );
}

#[test]
fn trailing_group_without_rules_stays_separate() {
    let merged = merge_text("User-agent: shut-out", &directives(&[("bingbot", 30)], None, None));
    assert_eq!(merged, "User-agent: shut-out\nDisallow:\n\nUser-agent: bingbot\nCrawl-delay: 30\nDisallow:\n");
}

#[test]
fn oversized_merge_leaves_text_unchanged() {
    let mut text = "User-agent: bingbot\nUser-agent: x\n".repeat(5000);
    text.push_str(&"Disallow: /something/or/other\n".repeat(5000));
    assert_eq!(merge_directives(text.as_bytes(), &all_directives()), None);
}

#[test]
fn real_files_keep_their_lines_and_their_meaning() {
    let files = include_str!("../data/robots.txt").split("=====\n").map(|text| text.as_bytes().to_vec());
    let mut count = 0;
    for text in files.chain(real_files().map(|file| robots_bytes(&file))) {
        check_merge(&text, &all_directives())
            .unwrap_or_else(|error| panic!("{error}\n{}", String::from_utf8_lossy(&text)));
        count += 1;
    }
    println!("{count} files");
}

#[test]
fn reference_reader_follows_rfc_9309() {
    let robots_txt = "User-agent: *\nDisallow: /\n\nUser-agent: FooBot\nAllow: /shop\nDisallow: /shop/cart\nDisallow: /*.pdf$\nCrawl-delay: 3\n";
    for (text, agent, path, allowed) in [
        (robots_txt, "foobot", "/shop/item", true),
        (robots_txt, "FooBot", "/shop/cart/1", false),
        (robots_txt, "FooBot", "/shop/a.pdf", false),
        (robots_txt, "FooBot", "/a.pdfx", true),
        (robots_txt, "FooBot", "/elsewhere", true),
        (robots_txt, "BarBot", "/shop", false),
        ("User-agent: a\nUser-agent: b\nDisallow: /x\n", "b", "/x", false),
        ("User-agent: a\nDisallow:\n", "a", "/x", true),
        ("Disallow: /x\n", "a", "/x", true),
    ] {
        assert_eq!(RobotsReader::parse_text(text.as_bytes()).allows(agent, path), allowed, "{agent} {path}\n{text}");
    }
    assert_eq!(RobotsReader::parse_text(robots_txt.as_bytes()).delays("FooBot"), [3.0]);
    assert_eq!(RobotsReader::parse_text(robots_txt.as_bytes()).delays("BarBot"), [] as [f64; 0]);
}

#[test]
fn reference_reader_agrees_with_other_parsers() {
    let mut counts = (0, 0);
    for file in real_files() {
        let text = robots_bytes(&file);
        let read = RobotsReader::parse_text(&text);
        let agents = file["agents"].as_object().expect("agents");
        for (agent, expected) in agents {
            counts.1 += 1;
            let delay = read.delays(agent).last().copied();
            counts.0 += usize::from(delay != expected["delay"].as_f64());
        }
    }
    // Other parsers also match crawler names by parts of a name.
    assert!(counts.0 * 300 <= counts.1, "{} of {} delays are parsed differently", counts.0, counts.1);
    let Some(shared) = crate::support::shared_data() else { return };
    let cases = std::fs::read(shared.join("data/robots/google-robotstxt-cases.json")).expect("cases are readable");
    let cases: Value = serde_json::from_slice(&cases).expect("JSON");
    let mismatches: Vec<&Value> =
        cases["cases"].as_array().expect("a list").iter().filter(|case| !matches_google_case(case)).collect();
    assert!(mismatches.len() <= 8, "{} cases: {mismatches:#?}", mismatches.len());
}

proptest! {
    #[test]
    fn merge_keeps_lines_and_access_rules(
        text in prop::collection::vec(any_line(), 0..40),
        crawlers in prop::collection::btree_set(prop::sample::select(CRAWLERS_WITH_DELAY.to_vec()), 0..6),
        default_delay in prop::option::of(1u32..30),
        has_honeypot in any::<bool>(),
    ) {
        let text: Vec<u8> = text.concat();
        // Directives for an operator apply to all of its crawlers.
        let msnbot = crawlers.contains(&("msnbot-media", 30)).then_some(("msnbot", 30));
        let crawlers: Vec<_> = crawlers.into_iter().chain(msnbot).collect();
        let directives = directives(&crawlers, default_delay, has_honeypot.then_some("/t-r-a-p"));
        check_merge(&text, &directives)
            .map_err(|error| TestCaseError::fail(format!("{error}\n{}", String::from_utf8_lossy(&text))))?;
    }

    #[test]
    fn merge_accepts_arbitrary_bytes(text in prop::collection::vec(any::<u8>(), 0..2000)) {
        let merged = merge_directives(&text, &all_directives()).expect("short enough");
        prop_assert!(is_subsequence(&lines_without_delays(&text), &lines(&merged)));
    }
}

fn any_line() -> impl Strategy<Value = Vec<u8>> {
    let records = [
        "User-agent: bingbot",
        "user-agent:CCBot",
        "User-Agent: *",
        "useragent: msnbot",
        "User-agent: Googlebot",
        "user-agent: msnbot-media",
        "User-agent: other",
        "USER-AGENT: applebot/2 # x",
        "Disallow: /",
        "Disallow: /search",
        "Allow: /search",
        "Disallow:",
        "Disallow: /*?",
        "Allow: /index.html$",
        "Crawl-delay: 5",
        "Crawl-delay: 40",
        "crawl-delay: 0.5",
        "Crawl-delay: soon",
        "Sitemap: https://a/b",
        "Request-rate: 1/5",
        "# a comment",
        "",
        "\u{feff}",
        "noise \0 and more",
        "Host: a",
    ];
    let endings = ["\n", "\n", "\r\n", "\r", "\n\n", ""];
    (prop::sample::select(records.to_vec()), prop::sample::select(endings.to_vec()))
        .prop_map(|(record, ending)| [record.as_bytes(), ending.as_bytes()].concat())
}

/// Checks all invariants of a text and the result of its merge.
fn check_merge(text: &[u8], directives: &RobotsDirectives) -> Result<(), String> {
    let merged = merge_directives(text, directives).ok_or("too long")?;
    let fail = |message: String| Err(format!("{message} in\n{}", String::from_utf8_lossy(&merged)));
    if !is_subsequence(&lines_without_delays(text), &lines(&merged)) {
        return fail("a line of the origin is lost".into());
    }
    if tidegate_crawlers::robots::merge_directives(&merged, directives).as_deref() != Some(&merged) {
        return fail("a second merge changes the text".into());
    }
    let (before, after) = (RobotsReader::parse_text(text), RobotsReader::parse_text(&merged));
    for (agent, seconds) in &directives.per_crawler {
        let name = matching_group(&after, agent).unwrap_or(agent);
        let after_delays = after.delays(name);
        let before_delays = matching_group(&before, agent).map_or(vec![], |name| before.delays(name));
        let expected = before_delays.iter().copied().fold(f64::from(*seconds), f64::max);
        if after_delays.is_empty() || after_delays.iter().any(|delay| *delay != expected) {
            return fail(format!("{agent} has delays {after_delays:?} instead of {expected},"));
        }
        if !after.has_one_delay_per_group(name) {
            return fail(format!("a group of {agent} has no delay or several"));
        }
    }
    for agent in CRAWLERS_WITH_DELAY.map(|(agent, _)| agent).into_iter().chain(CRAWLERS_WITHOUT_DELAY) {
        let may_fetch =
            |reader: &RobotsReader, path| matching_group(reader, agent).is_none_or(|name| reader.allows(name, path));
        if let Some(path) = PATHS.iter().find(|path| may_fetch(&before, path) != may_fetch(&after, path)) {
            return fail(format!("{agent} and {path}: before the merge {}", may_fetch(&before, path)));
        }
        let honeypot = directives.honeypot.as_ref().filter(|_| matching_group(&after, agent).is_some());
        if honeypot.is_some_and(|honeypot| may_fetch(&after, honeypot)) {
            return fail(format!("{agent} may fetch the honeypot"));
        }
    }
    // Crawlers read the first or the last delay. A split group repeats its delays.
    let first_and_last = |reader: &RobotsReader, agent| {
        let delays = reader.delays(agent);
        delays.first().copied().zip(delays.last().copied())
    };
    let unaffected = if directives.default.is_some() { &[][..] } else { &CRAWLERS_WITHOUT_DELAY[..] };
    match unaffected.iter().find(|agent| first_and_last(&before, agent) != first_and_last(&after, agent)) {
        Some(agent) => fail(format!("{agent} has delays {:?}", after.delays(agent))),
        None => Ok(()),
    }
}

/// Returns the crawler whose group applies to `agent`, as its operator documents it.
fn matching_group<'a>(reader: &RobotsReader, agent: &'a str) -> Option<&'a str> {
    match agent {
        _ if reader.has_group_for(agent) => Some(agent),
        "msnbot-media" if reader.has_group_for("msnbot") => Some("msnbot"),
        "Applebot" if reader.has_group_for("Googlebot") => Some("Googlebot"),
        "AdsBot-Google" => None,
        _ => Some(agent),
    }
}

/// Returns the lines that the merge must keep. A delay may be replaced by a larger one.
fn lines_without_delays(text: &[u8]) -> Vec<&[u8]> {
    let is_delay = |line: &[u8]| {
        let key = line.trim_ascii_start().get(..11);
        key.is_some_and(|key| [&b"crawl-delay"[..], b"crawl delay"].iter().any(|name| key.eq_ignore_ascii_case(name)))
    };
    lines(text).into_iter().filter(|line| !is_delay(line)).collect()
}

fn is_subsequence(part: &[&[u8]], whole: &[&[u8]]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|line| rest.any(|other| other == line))
}

fn directives(per_crawler: &[(&str, u32)], default: Option<u32>, honeypot: Option<&str>) -> RobotsDirectives {
    let per_crawler = per_crawler.iter().map(|(name, seconds)| ((*name).to_owned(), *seconds)).collect();
    RobotsDirectives { per_crawler, default, honeypot: honeypot.map(str::to_owned), ..RobotsDirectives::default() }
}

fn all_directives() -> RobotsDirectives {
    directives(&CRAWLERS_WITH_DELAY, None, Some("/t-r-a-p"))
}

fn merge_text(text: &str, directives: &RobotsDirectives) -> String {
    String::from_utf8(merge_directives(text.as_bytes(), directives).expect("short enough"))
        .expect("robots.txt is UTF-8")
}

fn real_files() -> impl Iterator<Item = Value> {
    let file = crate::support::shared_data().map(|shared| shared.join("data/robots/real-robots-dev.jsonl.gz"));
    let mut text = String::new();
    if let Some(file) = file {
        let file = std::fs::File::open(file).expect("file is readable");
        GzDecoder::new(file).read_to_string(&mut text).expect("gzip of JSON lines");
    }
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    lines.into_iter()
}

fn robots_bytes(file: &Value) -> Vec<u8> {
    file["robots"].as_str().expect("robots is a string").as_bytes().to_vec()
}

fn matches_google_case(case: &Value) -> bool {
    let text = |key: &str| case[key].as_str().expect("member is a string");
    let url = text("url");
    let path = url.split_once("://").map_or(url, |(_, rest)| rest.find('/').map_or("/", |start| &rest[start..]));
    let path = path.split('#').next().unwrap_or(path);
    RobotsReader::parse_text(text("robots").as_bytes()).allows(text("agent"), path)
        == case["allowed"].as_bool().expect("allowed is a bool")
}
