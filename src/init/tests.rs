use super::*;
use crate::agents::Agents;
use crate::config;
use crate::replay::log::{Files, Source};
use crate::verify::Operators;
use proptest::prelude::*;
use std::io::Cursor;
use std::path::Path;
use std::sync::{Arc, LazyLock};

static OPERATORS: LazyLock<Operators> = LazyLock::new(Operators::builtin);
static AGENTS: LazyLock<Agents> = LazyLock::new(|| Agents::builtin(OPERATORS.tokens()));

fn proposed(log: &str) -> String {
    try_proposed(log.as_bytes().to_vec()).expect("there are requests in it")
}

fn try_proposed(log: Vec<u8>) -> Result<String, Nothing> {
    let source = Source::new("a log".into(), Box::new(Cursor::new(log)));
    let files = Files { sources: vec![source], bytes: None, read: Arc::default() };
    Findings::of(files, &AGENTS, &OPERATORS).map(|findings| findings.yaml(&["a log".into()]))
}

/// Panics with all that is wrong with it.
fn is_accepted(yaml: &str) -> config::Settings {
    let names: Vec<&str> = OPERATORS.names().collect();
    let settings = config::load(Path::new("proposed.yaml"), yaml, &[], &[], &names);
    settings.unwrap_or_else(|mistakes| panic!("{mistakes}\n{yaml}"))
}

/// A line on the `second` second of a day, by a clock at `zone`.
fn line(client: &str, second: u64, zone: &str, target: &str, agent: &str) -> String {
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let time = format!("07/Jun/2024:{hour:02}:{minute:02}:{second:02} {zone}");
    format!("{client} - - [{time}] \"GET {target} HTTP/1.1\" 200 5 \"-\" \"{agent}\"\n")
}

fn of_a_day(target: impl Fn(u64) -> String) -> String {
    (0..1000).map(|number| line("192.0.2.1", number * 86, "+0900", &target(number), BROWSER)).collect()
}

const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";
const GOOGLEBOT: &str = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";

#[test]
fn things_are_put_together_and_sections_told_apart() {
    let yaml = proposed(&of_a_day(|number| match number % 4 {
        0 => format!("/item/{number}"),
        1 => format!(
            "/post/{}",
            ["oak", "elm", "ash", "fir", "yew", "box", "bay", "fig", "may", "tea"][number as usize / 4 % 10]
        ),
        2 => "/search?q=oak".into(),
        _ => "/assets/shop.css".into(),
    }));
    is_accepted(&yaml);
    for (route, share) in [("\"/item/*\"", "33.3%"), ("\"/search\"", "33.3%")] {
        assert!(yaml.contains(&format!("{{ match: {route}, cost: {{ pages: 1 }} }}   # {share}")), "{yaml}");
    }
    assert!(!yaml.contains("assets/"), "assets cost nothing by the last route\n{yaml}");
    assert!(yaml.contains("0 for seldom pages, 250 for assets"), "{yaml}");
}

#[test]
fn many_seldom_names_are_things() {
    let yaml = proposed(&of_a_day(|number| {
        format!("/post/{}-{}", (b'a' + (number / 26 % 26) as u8) as char, (b'a' + (number % 26) as u8) as char)
    }));
    is_accepted(&yaml);
    assert!(yaml.contains("match: \"/post/*\", cost: { pages: 1 } }   # 100.0%"), "{yaml}");
}

#[test]
fn assets_beside_pages_are_free_before_them() {
    let yaml = proposed(&of_a_day(|number| match number % 2 {
        0 => format!("/item/{number}"),
        _ => format!("/item/{number}.JPG"),
    }));
    let settings = is_accepted(&yaml);
    let routes: Vec<&str> = settings.rules.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(routes, ["/item/*.jpg", "/item/*", "/**"]);
}

#[test]
fn a_search_of_the_front_page_is_a_route_of_its_own() {
    let yaml = proposed(&of_a_day(|number| if number % 2 == 0 { "/".into() } else { "/?s=oak".into() }));
    let settings = is_accepted(&yaml);
    let first = &settings.rules.routes[0];
    assert_eq!((first.name.as_str(), &first.query[..]), ("/", &[("s".to_owned(), None)][..]));
}

#[test]
fn the_limit_is_of_the_busiest_day_and_the_window_of_the_logs_clock() {
    let settings = is_accepted(&proposed(&of_a_day(|number| format!("/item/{number}"))));
    let quota = &settings.rules.quotas[0];
    assert_eq!(quota.limit.to_string(), "1000");
    let yaml = proposed(&of_a_day(|number| format!("/item/{number}")));
    assert!(yaml.contains("zone: Etc/GMT-9, "), "{yaml}");
    let yaml = proposed(&line("192.0.2.1", 0, "+0530", "/item/1", BROWSER));
    assert!(yaml.contains("zone: Asia/Kolkata, "), "{yaml}");
}

#[test]
fn an_hour_of_a_log_is_reckoned_up_to_a_day() {
    let log: String = (0..60).map(|minute| line("192.0.2.1", minute * 60, "+0000", "/item/1", BROWSER)).collect();
    let yaml = proposed(&log);
    assert!(yaml.contains("60 requests for pages in about 1 h; as many all day long would be 1,440."), "{yaml}");
    assert_eq!(is_accepted(&yaml).rules.quotas[0].limit.to_string(), "1500");
}

#[test]
fn bots_are_told_by_what_proves_them() {
    let mut log: String = (0..400).map(|number| line("66.249.66.1", number, "+0000", "/item/1", GOOGLEBOT)).collect();
    log += &line("203.0.113.9", 500, "+0000", "/item/1", GOOGLEBOT);
    log += &line(
        "20.171.206.7",
        500,
        "+0000",
        "/item/1",
        "Mozilla/5.0 (compatible; GPTBot/1.3; +https://openai.com/gptbot)",
    );
    log += &line("203.0.113.9", 500, "+0000", "/item/1", "curl/8.0");
    log += &line(
        "203.0.113.9",
        500,
        "+0000",
        "/item/1",
        "Mozilla/5.0 (compatible; SemrushBot/7~bl; +http://www.semrush.com/bot.html)",
    );
    let yaml = proposed(&log);
    let settings = is_accepted(&yaml);
    let classes: Vec<&str> = settings.rules.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(classes, ["search", "crawler", "impostor", "library", "bot", "person", "other"]);
    for told in [
        "googlebot: 400 requests proven by address, 1 of others in its name; up to 400 in an hour",
        "operator: [gptbot]",
        "Their addresses contradict them: googlebot 1.",
        "user_agent: [\"curl\"]",
        "By their own word alone: SemrushBot 1.",
    ] {
        assert!(yaml.contains(told), "{told}\n{yaml}");
    }
}

#[test]
fn a_fast_crawler_is_asked_to_slow_down() {
    let bingbot = "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)";
    let log: String = (0..8640).map(|number| line("157.55.39.7", number * 10, "+0000", "/item/1", bingbot)).collect();
    let yaml = proposed(&log);
    is_accepted(&yaml);
    assert!(yaml.contains("crawl_delay: { bingbot: 10s }"), "{yaml}");
}

#[test]
fn where_there_is_no_request_nothing_is_proposed() {
    for (log, told) in [("", "no request in 0 lines; give an access log"), ("hello\nworld\n", "no request in 2 lines")]
    {
        let nothing = try_proposed(log.into()).expect_err("there is nothing to go by").to_string();
        assert!(nothing.starts_with(told), "{nothing}");
    }
}

#[test]
fn made_up_paths_fill_no_memory_and_hide_no_busy_page() {
    let word = |number: u64| -> String {
        (0..5).map(|place| (b'a' + (number / 26_u64.pow(place) % 26) as u8) as char).collect()
    };
    let log: String = (0..60_000)
        .map(|number| match number % 3 {
            0 => line("192.0.2.1", number, "+0000", "/busy/page", BROWSER),
            _ => line("192.0.2.1", number, "+0000", &format!("/{}/{}", word(number * 7919), word(number)), BROWSER),
        })
        .collect();
    let yaml = proposed(&log);
    is_accepted(&yaml);
    assert!(yaml.contains("match: \"/busy/page\", cost: { pages: 1 } }   # 33.3%"), "{yaml}");
    assert!(yaml.contains("match: \"/*/*\", cost: { pages: 1 } }   # 66.7%"), "{yaml}");
}

proptest! {
    #[test]
    fn whatever_a_log_says_the_proposal_is_accepted_and_the_same_each_time(
        visits in prop::collection::vec((
            prop_oneof!["/[a-z0-9*.$%{}~\u{e9}-]{0,12}(/[ -~]{0,12}){0,3}", "/(item|a)/[0-9]{1,3}(\\.css|)(\\?q=x|)"],
            prop_oneof![Just(BROWSER), Just(GOOGLEBOT), Just("curl/8"), Just("\\\"\\x0a# ${HOME}"), Just("-")],
            0..86_400_u64,
            prop_oneof![Just("+0000"), Just("-0330"), Just("+1400"), Just("+9959")],
        ), 1..60)
    ) {
        let log: String = visits.iter().map(|(path, agent, second, zone)| line("192.0.2.1", *second, zone, path, agent)).collect();
        if let Ok(yaml) = try_proposed(log.clone().into_bytes()) {
            is_accepted(&yaml);
            prop_assert_eq!(Ok(yaml), try_proposed(log.into_bytes()).map_err(|nothing| nothing.to_string()));
        }
    }
}
