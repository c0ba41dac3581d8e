//! `tidegate robots check`: what has no effect in a robots.txt, and what each crawler may fetch.

use crate::support::origin::Origin;
use crate::support::program::{ExitOutcome, run};
use crate::support::robots::RobotsReader;
use crate::support::shared_data;
use flate2::read::GzDecoder;
use proptest::prelude::*;
use serde_json::Value;
use std::io::Read;
use tidegate_crawlers::robots::{check_robots, merge_directives};
use tidegate_crawlers::verify::OperatorTable;

const TEXT: &str = "# of the shop
User-agent: *
Disallow: /cart
Disalow: /account
Disallow: checkout
Allow: /cart

User-agent: Gogglebot
Disallow: /

User-agent: GPTBot
User-agent: anthropic-ai
Disallow: /
";

fn check(arguments: &[&str], text: &str) -> ExitOutcome {
    run(&[&["robots", "check"], arguments].concat(), text.as_bytes())
}

#[test]
fn report_names_lines_and_what_each_operator_may_fetch() {
    let outcome = check(&["-"], TEXT);
    assert_eq!((outcome.code, outcome.errors.as_str()), (2, ""));
    let findings = "\
line 3: never applies, because line 6 (\"Allow: /cart\") wins; remove one of both
line 4: \"Disalow\" is a spelling that only some crawlers read; write Disallow
line 5: \"Disallow: checkout\" matches nothing: a path begins with /; write the
    path from / on
line 8: no known crawler is called Gogglebot; write Googlebot, if it is meant
line 12: anthropic-ai is no longer read by its operator; write ClaudeBot
";
    let (found, table) = outcome.output.split_once("\n\n").expect("findings and a table");
    assert_eq!(format!("{found}\n"), findings);
    assert!(outcome.output.lines().all(|line| line.chars().count() <= 80), "{}", outcome.output);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let row = |operator: &str| rows.iter().find(|row| row[0] == operator).expect("a row for each operator").join(" ");
    assert_eq!(row("operator"), "operator crawlers may fetch /");
    assert_eq!(row("googlebot"), "googlebot all 4 yes no rule in group *");
    assert_eq!(row("gptbot"), "gptbot GPTBot no line 13: Disallow: /");
    assert_eq!(row("mediapartners-google"), "mediapartners-google Mediapartners-Google yes no group");
    for operator in OperatorTable::builtin().names() {
        assert!(rows.iter().any(|row| row[0] == operator), "{operator}");
    }
    assert_eq!(row("chatgpt-agent"), "chatgpt-agent no token - no group can name it");
}

#[test]
fn path_and_json_are_by_choice() {
    let outcome = check(&["--json", "--path", "/cart/7?x=1", "-"], "User-agent: *\nDisallow: /cart\n");
    assert_eq!(outcome.code, 0, "{}", outcome.errors);
    let result: Value = serde_json::from_str(&outcome.output).expect("JSON");
    assert_eq!((&result["findings"], &result["omitted"]), (&Value::Array(Vec::new()), &Value::from(0)));
    let google = &result["access"][0];
    assert_eq!((&google["operator"], &google["allowed"]), (&Value::from("googlebot"), &Value::from(false)));
    assert_eq!(google["rule"], serde_json::json!({ "line": 2, "text": "Disallow: /cart" }));
    for (arguments, error) in [
        (&["--path", "cart", "-"][..], "--path: found \"cart\"; write a path such as /search?q=a\n"),
        (&["ftp://example.com"], "ftp://example.com: not an address of the web; write https://example.com\n"),
    ] {
        let outcome = check(arguments, "");
        assert_eq!((outcome.code, outcome.errors.as_str(), outcome.output.as_str()), (2, error, ""));
    }
    let missing = check(&["no-such-file"], "");
    assert_eq!(missing.code, 2);
    assert!(missing.errors.starts_with("no-such-file: No such file"), "{}", missing.errors);
}

#[test]
fn text_of_a_site_is_fetched() {
    let origin = Origin::with_script(|request, connection| match request.target.as_str() {
        "/robots.txt" => connection.reply("200 OK", "", b"User-agent: *\nDisallow: /\n"),
        "/broken" => connection.reply("503 Service Unavailable", "", b""),
        "/busy" => connection.reply("429 Too Many Requests", "", b""),
        _ => connection.reply("404 Not Found", "", b"no such page"),
    });
    let url = format!("http://{}", origin.address());
    for site in [url.clone(), format!("{url}/"), format!("{url}/robots.txt")] {
        let outcome = check(&[&site], "");
        assert_eq!(outcome.code, 0, "{}", outcome.errors);
        assert!(outcome.output.starts_with(&format!("{site}: nothing found\n")), "{}", outcome.output);
        let row = outcome.output.lines().find(|line| line.starts_with("gptbot")).expect("a row");
        assert!(row.contains(" no ") && row.ends_with("line 2: Disallow: /"), "{row}");
    }
    let none = check(&[&format!("{url}/other.txt")], "");
    assert_eq!(none.code, 0);
    assert!(none.errors.contains("status 404 Not Found: without a robots.txt, crawlers may fetch everything"));
    for page in ["broken", "busy"] {
        let broken = check(&[&format!("{url}/{page}")], "");
        assert_eq!(broken.code, 1);
        assert!(broken.errors.contains("crawlers fetch nothing until this is over"), "{}", broken.errors);
    }
}

#[test]
fn five_redirects_are_followed_also_to_another_server() {
    let www = Origin::with_script(|request, connection| {
        let hop: u32 = request.target.trim_start_matches("/hop").parse().unwrap_or(5);
        match hop {
            0..5 => connection.reply("302 Found", &format!("Location: /hop{}\r\n", hop + 1), b""),
            _ => connection.reply("200 OK", "", b"User-agent: *\nDisallow: /\n"),
        }
    });
    let address = www.address();
    let site = Origin::with_script(move |request, connection| {
        let hop = if request.target == "/robots.txt" { 1 } else { 0 };
        connection.reply("301 Moved Permanently", &format!("Location: http://{address}/hop{hop}\r\n"), b"");
    });
    let url = format!("http://{}", site.address());
    let outcome = check(&[&url], "");
    assert_eq!(outcome.code, 0, "{}", outcome.errors);
    assert!(outcome.output.contains("line 2: Disallow: /"), "{}", outcome.output);
    let outcome = check(&[&format!("{url}/far.txt")], "");
    assert_eq!(outcome.code, 1);
    assert!(outcome.errors.contains("more than 5 redirects"), "{}", outcome.errors);
}

#[test]
fn terminal_is_not_changed_by_the_text() {
    let outcome = check(&["-"], "User-agent: *\nDisallow: /\u{1b}[2J\u{202e}\n\u{1b}]0;title\u{7}\n");
    let changes = |character: char| character.is_control() && character != '\n' || character == '\u{202e}';
    assert!(!outcome.output.chars().any(changes), "{:?}", outcome.output);
}

/// Directives that the gateway adds to a text give no reason for a finding.
#[test]
fn text_with_merged_delays_has_the_findings_of_the_original() {
    let crawlers = [("bingbot", "bingbot"), ("ccbot", "CCBot")];
    let directives = tidegate_crawlers::robots::RobotsDirectives {
        per_crawler: vec![("bingbot".into(), 30), ("CCBot".into(), 5)],
        default: Some(10),
        honeypot: Some("/trap".into()),
        usage: vec!["Content-Signal: ai-train=no".into(), "Content-Usage: train-ai=n".into()],
        license: Some("https://example.com/license.xml".into()),
    };
    for text in ["", "User-agent: *\nDisallow: /cart\n", "User-agent: bingbot\nDisallow:\n\nUser-agent: *\nAllow: /\n"]
    {
        let merged = merge_directives(text.as_bytes(), &directives).expect("short enough");
        let findings = check_robots(&merged, "/", &crawlers).findings;
        assert!(findings.is_empty(), "{findings:?}: {}", String::from_utf8_lossy(&merged));
    }
}

fn allows(text: &[u8], product: &str, path: &str) -> bool {
    check_robots(text, path, &[(product, product)]).access[0].allowed
}

proptest! {
    #[test]
    fn access_is_that_of_an_independent_reader(
        lines in prop::collection::vec("(User-agent: (\\*|bingbot|CCBot)|(Allow|Disallow): /[ab*]{0,4}[$]?|Disallow:|Crawl-delay: 3|# x)", 0..12),
        paths in prop::collection::vec("/[abc]{0,5}", 1..8),
    ) {
        let text = lines.join("\n").into_bytes();
        let reader = RobotsReader::parse_text(&text);
        for path in &paths {
            for product in ["bingbot", "CCBot", "nobody"] {
                prop_assert_eq!(allows(&text, product, path), reader.allows(product, path), "{} {}", product, path);
            }
        }
    }
}

#[test]
fn access_to_real_sites_is_that_of_other_parsers() {
    let Some(shared) = shared_data() else { return };
    let file = std::fs::File::open(shared.join("data/robots/real-robots-dev.jsonl.gz")).expect("file is readable");
    let mut lines = String::new();
    GzDecoder::new(file).read_to_string(&mut lines).expect("gzip of JSON lines");
    let (mut total, mut different) = (0, 0);
    for line in lines.lines() {
        let file: Value = serde_json::from_str(line).expect("JSON");
        let text = file["robots"].as_str().expect("a text").as_bytes();
        let urls: Vec<&str> = file["urls"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        for (agent, expected) in file["agents"].as_object().expect("agents") {
            let expected = expected["allowed"].as_str().expect("digits").bytes();
            for (path, expected) in urls.iter().zip(expected).filter(|_| agent != "*") {
                total += 1;
                different += usize::from(allows(text, agent, path) != (expected == b'1'));
            }
        }
    }
    // Other parsers also match crawler names by parts of a name.
    assert!(total > 10_000 && different * 200 <= total, "{different} of {total}");
}

#[test]
fn access_is_that_of_the_cases_of_a_crawler() {
    let Some(shared) = shared_data() else { return };
    let cases = std::fs::read(shared.join("data/robots/google-robotstxt-cases.json")).expect("cases are readable");
    let cases: Value = serde_json::from_slice(&cases).expect("JSON");
    let is_same = |case: &&Value| {
        let text = |key: &str| case[key].as_str().expect("a text");
        let url = text("url");
        let path = url.split_once("://").map_or(url, |(_, rest)| rest.find('/').map_or("/", |start| &rest[start..]));
        let path = path.split('#').next().unwrap_or(path);
        allows(text("robots").as_bytes(), text("agent"), path) == case["allowed"].as_bool().expect("a bool")
    };
    let cases = cases["cases"].as_array().expect("a list");
    let different: Vec<&Value> = cases.iter().filter(|case| !is_same(case)).collect();
    assert!(different.len() <= 12, "{} cases: {different:#?}", different.len());
}
