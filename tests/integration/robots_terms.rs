//! What pages may be used for, in robots.txt and the crawl policy.

use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::robots::lines;
use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate_crawlers::robots::{RobotsDirectives, check_robots, merge_directives};

const LICENSE: &str = "https://example.com/license.xml";

fn directives() -> RobotsDirectives {
    RobotsDirectives {
        per_crawler: vec![("bingbot".into(), 30)],
        usage: vec!["Content-Signal: ai-train=no".into(), "Content-Usage: train-ai=n".into()],
        license: Some(LICENSE.into()),
        ..RobotsDirectives::default()
    }
}

fn merge(text: &str) -> String {
    String::from_utf8(merge_directives(text.as_bytes(), &directives()).expect("short enough")).expect("UTF-8")
}

#[test]
fn terms_are_written_to_each_group_and_the_license_above() {
    assert_eq!(
        merge("User-agent: *\nDisallow: /a\n\nUser-agent: GPTBot\nContent-Signal: ai-train=yes\nAllow: /\n"),
        "License: https://example.com/license.xml\n\nUser-agent: *\nContent-Signal: ai-train=no\nContent-Usage: train-ai=n\n\
         Disallow: /a\n\nUser-agent: GPTBot\nContent-Usage: train-ai=n\nContent-Signal: ai-train=yes\nAllow: /\n\n\
         User-agent: bingbot\nCrawl-delay: 30\nContent-Signal: ai-train=no\nContent-Usage: train-ai=n\nDisallow: /a\n"
    );
    let own = merge("license: https://example.com/own\nUser-agent: bingbot\nDisallow: /\n");
    assert!(
        own.starts_with("license: https://example.com/own\nUser-agent: bingbot\nCrawl-delay: 30\nContent-Signal"),
        "{own}"
    );
    assert!(merge("\u{feff}User-agent: bingbot\nDisallow: /\n").starts_with("\u{feff}\nLicense: "));
}

#[test]
fn classes_of_purposes_decide_the_terms() {
    let origin = Origin::with_script(|request, connection| match request.target.as_str() {
        "/robots.txt" => {
            connection.reply("200 OK", "Content-Type: text/plain\r\n", b"User-agent: *\nDisallow: /cart\n");
        }
        _ => connection.reply("200 OK", "", b"page"),
    });
    let classes = "
classes:
  - { name: training, when: { purpose: training }, block: true }
  - { name: search, when: { purpose: search } }
  - { name: person }
crawl_policy: on
";
    let gateway = TestGateway::with_rules(origin.address(), classes);
    assert_eq!(gateway.connect().get("/robots.txt", "").text(), "User-agent: *\nDisallow: /cart\n", "by choice");
    let rules = format!("{classes}robots: {{ terms: true, license: \"{LICENSE}\" }}\n");
    gateway.reload(origin.address(), &rules).expect("valid rules");
    assert_eq!(
        gateway.connect().get("/robots.txt", "").text(),
        format!(
            "License: {LICENSE}\n\nUser-agent: *\nContent-Signal: search=yes, ai-train=no\nContent-Usage: search=y, train-ai=n\n\
             Disallow: /cart\n"
        )
    );
    let policy = gateway.connect().get("/.well-known/crawl-policy", "");
    let policy: Value = policy.json();
    assert_eq!(
        (&policy["terms"], &policy["license"]),
        (&json!({ "search": true, "training": false }), &json!(LICENSE))
    );
}

proptest! {
    #[test]
    fn terms_change_no_access_and_are_written_once(
        text in prop::collection::vec(
            "(User-agent: (\\*|bingbot|GPTBot)|(Allow|Disallow): /[ab]{0,2}|Crawl-delay: 3|Content-Usage: train-ai=y|License: x|# x|)",
            0..14,
        ),
    ) {
        let text = text.join("\n");
        let merged = merge(&text);
        prop_assert_eq!(&merge(&merged), &merged, "a second merge changes the text");
        let mut rest = lines(merged.as_bytes()).into_iter();
        let kept = lines(text.as_bytes()).into_iter().filter(|line| !line.starts_with(b"Crawl"));
        prop_assert!(kept.clone().all(|line| rest.any(|other| other == line)), "a line is lost: {}", merged);
        for path in ["/", "/a", "/ab", "/b"] {
            for product in ["bingbot", "GPTBot", "CCBot"] {
                let [before, after] = [&text, &merged].map(|text| check_robots(text.as_bytes(), path, &[(product, product)]));
                prop_assert_eq!(before.access[0].allowed, after.access[0].allowed, "{} {}: {}", product, path, merged);
            }
        }
    }
}
