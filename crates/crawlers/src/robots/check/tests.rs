use super::*;
use proptest::prelude::*;

const CRAWLERS: [(&str, &str); 8] = [
    ("googlebot", "Googlebot"),
    ("googlebot", "Googlebot-Image"),
    ("adsbot-google", "AdsBot-Google"),
    ("bingbot", "bingbot"),
    ("applebot", "Applebot"),
    ("claudebot", "ClaudeBot"),
    ("sogou", "Sogou web spider"),
    ("gptbot", "GPTBot"),
];

fn findings(text: &str) -> Vec<String> {
    let check = check_robots(text.as_bytes(), "/", &CRAWLERS);
    check
        .findings
        .into_iter()
        .map(|finding| format!("{}: {}; {}", finding.line, finding.problem, finding.hint))
        .collect()
}

fn allows(text: &str, product: &str, path: &str) -> bool {
    let check = check_robots(text.as_bytes(), path, &CRAWLERS);
    check.access.iter().find(|access| access.products.iter().any(|other| other == product)).expect("listed").allowed
}

#[test]
fn usual_text_has_no_finding() {
    for text in [
        "",
        "# nothing\n\n",
        "User-agent: *\nDisallow: /cart\nAllow: /cart/help\n\nSitemap: https://example.com/sitemap.xml\n",
        "\u{feff}User-agent: Googlebot\nUser-agent: bingbot\nCrawl-delay: 5\nDisallow:\n\nUser-agent: *\nDisallow: /\n",
        "License: https://example.com/license.xml\n\nUser-agent: *\nContent-Signal: search=yes, ai-train=no\nAllow: /\n",
        "user-agent: SomeOtherBot # theirs\r\nDisallow: *.pdf$\r\n",
    ] {
        assert_eq!(findings(text), [""; 0], "{text}");
    }
}

#[test]
fn lines_that_crawlers_do_not_read_are_found() {
    for (line, expected) in [
        ("Disallow /a", "\"Disallow /a\" has no colon; only some crawlers read it; write Name: value"),
        ("be nice to us", "\"be nice to us\" has no colon; no crawler reads it; write # before a comment"),
        (": /a", "\": /a\" has no name before the colon; write Name: value"),
        ("Disalow: /a", "\"Disalow\" is a spelling that only some crawlers read; write Disallow"),
        ("useragent: x", "\"useragent\" is a spelling that only some crawlers read; write User-agent"),
        ("Disallows: /a", "\"Disallows\" is no directive that crawlers read; write Disallow"),
        ("Dsiallow: /a", "\"Dsiallow\" is no directive that crawlers read; write Disallow"),
        ("Frobnicate: 1", "\"Frobnicate\" is no directive that crawlers read; remove it, or write # before it"),
        (
            "noindex: /a",
            "\"noindex\" is read by no crawler any more (until 2019 by Google); send X-Robots-Tag: noindex with the page, and \
             remove it",
        ),
        (
            "Host: example.com",
            "\"Host\" is read by no crawler any more (until 2018 by Yandex); redirect from other hosts, and remove it",
        ),
        (
            "Request-rate: 1/5",
            "\"Request-rate\" is read by no known crawler but SeznamBot; write Crawl-delay for the others",
        ),
        ("Visit-time: 0600-0845", "\"Visit-time\" is read by no known crawler; remove it, or write # before it"),
        (
            "Sitemap: /sitemap.xml",
            "\"Sitemap: /sitemap.xml\" is no full URL; most crawlers do not read it; write the scheme and the host, too, such as \
             https://example.com/sitemap.xml",
        ),
        ("Crawl-delay: soon", "\"Crawl-delay: soon\" has no number; write seconds, such as Crawl-delay: 10"),
        ("Disallow: admin", "\"Disallow: admin\" matches nothing: a path begins with /; write the path from / on"),
        (
            "Allow: https://a/b",
            "\"Allow: https://a/b\" matches nothing: a path begins with /; write the path from / on",
        ),
    ] {
        let text = format!("User-agent: *\nDisallow: /q\n{line}\n");
        let found = findings(&text);
        assert!(found.contains(&format!("3: {expected}")), "{line}: {found:?}");
    }
    assert_eq!(
        findings("Visit-time: 0600-0845\nUser-agent: *\nDisallow: /a\n").len(),
        1,
        "a line that no crawler reads stands above no group"
    );
    assert_eq!(
        findings("Disallow: /a\nUser-agent: *\nDisallow: /b\n"),
        [
            "1: \"Disallow: /a\" stands above the first User-agent: it applies to no crawler; write User-agent: * above it"
        ]
    );
    assert_eq!(
        findings("User-agent: 360\nDisallow: /\n"),
        ["1: \"User-agent: 360\" names no crawler; write a product token of letters, - and _, such as Googlebot, or *"]
    );
}

#[test]
fn groups_that_apply_to_no_crawler_are_found() {
    let of = |text| findings(text).join("\n");
    assert_eq!(
        of("User-agent: Gogglebot\nDisallow: /a\n"),
        "1: no known crawler is called Gogglebot; write Googlebot, if it is meant"
    );
    assert_eq!(
        of("User-agent: GPTBto\nDisallow: /a\n"),
        "1: no known crawler is called GPTBto; write GPTBot, if it is meant"
    );
    assert_eq!(
        of("User-agent: anthropic-ai\nDisallow: /\n"),
        "1: anthropic-ai is no longer read by its operator; write ClaudeBot"
    );
    assert_eq!(
        of("User-agent: bingbot\nDisallow: /a\nUser-agent: BingBot\nDisallow: /b\n"),
        "3: BingBot has a group at line 1; some crawlers read only one of both; write all rules for it in one group"
    );
    assert_eq!(
        of("User-agent: bingbot\nUser-agent: bingbot\nDisallow: /b\n"),
        "2: bingbot is already named in line 1; remove it"
    );
    assert_eq!(
        of("User-agent: bingbot\n"),
        "1: a group without a rule allows everything; write Disallow: / or remove the group"
    );
    assert_eq!(
        of("User-agent: bingbot\nCrawl-delay: 1\nUser-agent: *\nDisallow: /\n"),
        "3: shares the rules below with the user agents from line 1 on: only a rule ends a group; write Disallow: at the end \
         of the group above, or no blank line if the rules are for all"
    );
    assert_eq!(
        of("User-agent: GPTBot\n\nUser-agent: *\nDisallow: /\n"),
        "3: shares the rules below with the user agents from line 1 on: only a rule ends a group; write Disallow: at the end \
         of the group above, or no blank line if the rules are for all"
    );
    assert_eq!(of("User-agent: GPTBot\n# and\nUser-agent: *\nDisallow: /\n"), "");
}

#[test]
fn line_with_several_names_is_found() {
    for (value, product) in [
        ("gptbot, bingbot", "gptbot"),
        ("gptbot,bingbot", "gptbot"),
        ("GoogleBot GPTBot", "GoogleBot"),
        ("Googlebot/2.1; bingbot # both", "Googlebot"),
        ("* GPTBot", "*"),
        ("Mozilla/5.0 (compatible; Some) Thing", "Mozilla"),
    ] {
        let expected =
            format!("1: crawlers read only {product} in this line; write a line User-agent: for each crawler");
        let found = findings(&format!("User-agent: {value}\nDisallow: /\n"));
        assert!(found.contains(&expected), "{value}: {found:?}");
    }
    for value in ["Sogou web spider", "sogou WEB spider # theirs", "Googlebot/2.1", "Googlebot / 2.1", "*", "bingbot,"]
    {
        assert_eq!(findings(&format!("User-agent: {value}\nDisallow: /\n")), [""; 0], "{value}");
    }
}

#[test]
fn of_too_many_findings_the_important_ones_are_kept() {
    let noise = "Frobnicate: 1\n".repeat(MAX_READ_BYTES / 14 + 1);
    let check = check_robots(format!("User-agent: *\nDisallow: /\n{noise}").as_bytes(), "/", &CRAWLERS);
    assert!(check.findings.len() == MAX_FINDINGS && check.omitted > 0);
    assert!(check.findings.is_sorted_by_key(|finding| finding.line));
    assert!(check.findings.last().is_some_and(|finding| finding.problem.ends_with("crawlers read the first 512000")));
}

#[test]
fn rules_that_never_win_are_found() {
    let of = |rules: &[&str]| findings(&format!("User-agent: *\n{}\n", rules.join("\n"))).join("\n");
    assert_eq!(
        of(&["Disallow: /a", "Allow: /a"]),
        "2: never applies, because line 3 (\"Allow: /a\") wins; remove one of both"
    );
    assert_eq!(
        of(&["Disallow: /a", "Allow: /a*"]),
        "2: never applies, because line 3 (\"Allow: /a*\") wins; remove one of both"
    );
    assert_eq!(
        of(&["Allow: /*", "Disallow: /**"]),
        "2: never applies, because line 3 (\"Disallow: /**\") wins; remove one of both"
    );
    assert_eq!(of(&["Disallow: /a", "Disallow: /%61"]), "3: repeats line 2 (\"Disallow: /a\"); remove it");
    for useful in [
        &["Disallow: /a", "Allow: /a/b"][..],
        &["Disallow: /", "Allow: /$"],
        &["Disallow: /*.pdf$", "Allow: /docs/"],
        &["Allow: /a", "Disallow: /a"][..1],
        &["Disallow: /a*b", "Allow: /ab*"],
    ] {
        assert_eq!(of(useful), "", "{useful:?}");
    }
    let text = "User-agent: a\nDisallow: /x\n\nUser-agent: a\nUser-agent: b\nAllow: /x\n";
    assert!(!findings(text).iter().any(|finding| finding.starts_with("6:")), "it decides for b");
}

#[test]
fn text_beyond_what_crawlers_read_is_found() {
    let filler = "# filler\n".repeat(MAX_READ_BYTES / 9 + 1);
    let found = findings(&format!("{filler}User-agent: *\nDisallow: /\n"));
    assert!(
        found.len() == 1 && found[0].ends_with("crawlers read the first 512000; move the rules that matter to the top"),
        "{found:?}"
    );
    assert!(allows(&format!("{filler}User-agent: *\nDisallow: /\n"), "bingbot", "/"));
    assert_eq!(
        findings("<!DOCTYPE html>\n<html>\n"),
        ["1: an HTML page, not a robots.txt; let the origin answer with its robots.txt or 404"]
    );
}

#[test]
fn longest_rule_of_the_own_group_decides() {
    let text = "User-agent: *\nDisallow: /\n\nUser-agent: Googlebot\nDisallow: /private\nAllow: /private/open\n\
                Disallow: /*.pdf$\n";
    for (product, path, expected) in [
        ("bingbot", "/a", false),
        ("bingbot", "/robots.txt", true),
        ("Googlebot", "/a", true),
        ("Googlebot", "/private/x", false),
        ("Googlebot", "/private/open/x", true),
        ("Googlebot", "/doc.pdf", false),
        ("Googlebot", "/doc.pdf?x=1", true),
        ("Googlebot-Image", "/a", true),
        ("Applebot", "/a", true),
        ("AdsBot-Google", "/a", true),
        ("Sogou web spider", "/a", false),
    ] {
        assert_eq!(allows(text, product, path), expected, "{product} {path}");
    }
    for (rule, path, is_match) in [
        ("/fish*", "/fishheads/yummy.html", true),
        ("/fish/", "/fish", false),
        ("/*.php", "/folder/any.php.file", true),
        ("/*.php$", "/a.php/", false),
        ("/a*b*c$", "/a-b-b-c", true),
        ("/a*b*c$", "/a-c-b", false),
        ("/%C3%A4", "/\u{e4}", true),
        ("/\u{e4}", "/%c3%a4", true),
        ("/%7Ejoe", "/~joe", true),
        ("/a%2Fb", "/a/b", false),
        ("/search?q=*", "/search?q=a", true),
        ("/a$b", "/a$b", true),
        ("/a%24b", "/a$b", true),
        ("/a$b", "/a%24b", true),
        ("/a%24", "/a$", true),
        ("/a%24", "/a$b", true),
        ("/a%24", "/a", false),
        ("/a$$", "/a$", true),
        ("/a$$", "/a$b", false),
        // RFC 9309 section 2.2.3.
        ("/path/file-with-a-%2A.html", "/path/file-with-a-*.html", true),
        ("/path/file-with-a-%2A.html", "/path/file-with-a-b.html", false),
        ("/path/file-with-a-%2a.html", "/path/file-with-a-%2A.html", true),
        ("/path/*.html", "/path/*.html", true),
        ("*", "/x", true),
    ] {
        assert_eq!(!allows(&format!("User-agent: *\nDisallow: {rule}\n"), "bingbot", path), is_match, "{rule} {path}");
    }
}

#[test]
fn crawlers_with_the_same_result_are_one_entry() {
    let text = "User-agent: Googlebot-Image\nDisallow: / # pictures\n";
    let access = check_robots(text.as_bytes(), "/", &CRAWLERS).access;
    let of_google: Vec<_> = access.iter().filter(|access| access.operator == "googlebot").collect();
    assert_eq!(of_google.len(), 2);
    assert_eq!((of_google[0].products.as_slice(), &of_google[0].rule), (["Googlebot".to_owned()].as_slice(), &None));
    let rule = DecidingRule { line: 2, text: "Disallow: /".into() };
    assert_eq!((of_google[1].allowed, &of_google[1].rule), (false, &Some(rule)));
}

#[test]
fn hostile_text_takes_bounded_time_and_space() {
    let rules: String = (0..40_000).map(|number| format!("Allow: /*a*b{number}\n")).collect();
    let agents: String = (0..20_000).map(|number| format!("User-agent: a{}\n", "b".repeat(number % 7))).collect();
    for text in
        [format!("User-agent: *\n{rules}"), format!("{agents}{rules}"), "x\n".repeat(250_000), "*".repeat(500_000)]
    {
        let check = check_robots(text.as_bytes(), &"/a".repeat(500), &CRAWLERS);
        assert!(check.findings.len() <= MAX_FINDINGS);
    }
}

proptest! {
    #[test]
    fn no_text_panics_and_lines_exist(text in prop::collection::vec(any::<u8>(), 0..300), path in "/\\PC{0,20}") {
        let check = check_robots(&text, &path, &CRAWLERS);
        let lines = super::super::parser::lines(&text).count().max(1);
        prop_assert!(check.findings.iter().all(|finding| (1..=lines).contains(&finding.line)));
    }

    /// A rule that is said to decide nothing can be removed.
    #[test]
    fn rule_that_never_wins_can_be_removed(
        rules in prop::collection::vec(("(Allow|Disallow)", "/[ab*]{0,3}[$]?"), 1..6),
        paths in prop::collection::vec("/[ab]{0,4}", 1..20),
    ) {
        let lines: Vec<String> = rules.iter().map(|(name, pattern)| format!("{name}: {pattern}")).collect();
        let text = |lines: &[String]| format!("User-agent: *\n{}\n", lines.join("\n"));
        let found = check_robots(text(&lines).as_bytes(), "/", &CRAWLERS).findings;
        for finding in found.iter().filter(|finding| finding.problem.starts_with("never") || finding.problem.starts_with("repeats")) {
            let mut others = lines.clone();
            others.remove(finding.line - 2);
            for path in &paths {
                let verdicts = [&lines, &others].map(|lines| allows(&text(lines), "bingbot", path));
                prop_assert_eq!(verdicts[0], verdicts[1], "{} without {:?}", path, finding);
            }
        }
    }
}
