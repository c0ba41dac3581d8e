use super::*;
use crate::log::MergedLog;
use crate::report::PolicyReport;
use crate::{Assumptions, Policy, ReplayRequest, Simulator};
use proptest::prelude::*;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use tidegate_config as config;
use tidegate_crawlers::user_agents::UserAgentMatcher;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_policy::bot_detection::ResourceKind;

static OPERATORS: LazyLock<Arc<OperatorTable>> = LazyLock::new(|| Arc::new(OperatorTable::builtin()));
static AGENTS: LazyLock<Arc<UserAgentMatcher>> =
    LazyLock::new(|| Arc::new(UserAgentMatcher::builtin(OPERATORS.product_tokens())));

fn generated(log: &str) -> String {
    try_generated(log.as_bytes().to_vec()).expect("the log has requests")
}

fn try_generated(log: Vec<u8>) -> Result<String, InitError> {
    super::generate_config(&Logs::from_text("a log".into(), log), &AGENTS, &OPERATORS)
}

/// Replays the generated configuration on its log; returns the report and the charged assets.
fn replay_config(yaml: &str, log: &str) -> (PolicyReport, Vec<String>) {
    let logs = Logs::from_text("a log".into(), log.as_bytes().to_vec());
    let lines = MergedLog::new(logs.open().expect("in memory"), analysis::REORDER_WINDOW);
    let (operators, agents) = (Arc::clone(&OPERATORS), Arc::clone(&AGENTS));
    let settings = accepted_settings(yaml);
    let mut policy = Some(Policy {
        name: "x".into(),
        settings,
        operators,
        user_agents: agents,
        lists: Arc::default(),
        network_databases: Arc::default(),
    });
    let (mut simulator, mut charged) = (None, Vec::new());
    let ended = lines.for_each(|next, line| {
        let Some(request) = ReplayRequest::from_line(line) else { return };
        let simulator = simulator.get_or_insert_with(|| {
            Simulator::new(policy.take().expect("a single simulator"), &Assumptions::default(), next.at)
        });
        simulator.process(next, line, &request, &mut |_, decision| {
            let kind = ResourceKind::from_request(&http::Method::GET, &request.path, None, None);
            if kind == ResourceKind::Asset && decision.is_costly() {
                charged.push(request.path.to_string());
            }
        });
    });
    ended.map(drop).expect("in memory");
    (simulator.expect("the log has requests").finish(), charged)
}

/// Loads the configuration; panics with all its errors.
fn accepted_settings(yaml: &str) -> config::Settings {
    let names: Vec<&str> = OPERATORS.names().collect();
    let settings = config::load(Path::new("proposed.yaml"), yaml, &[], &[], &names);
    settings.unwrap_or_else(|errors| panic!("{errors}\n{yaml}"))
}

/// Returns a log line at `second` of a day, with a clock in `zone`.
fn log_line(client: &str, second: u64, zone: &str, target: &str, agent: &str) -> String {
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let time = format!("07/Jun/2024:{hour:02}:{minute:02}:{second:02} {zone}");
    format!("{client} - - [{time}] \"GET {target} HTTP/1.1\" 200 5 \"-\" \"{agent}\"\n")
}

fn day_log(target: impl Fn(u64) -> String) -> String {
    (0..1000).map(|number| log_line("192.0.2.1", number * 86, "+0900", &target(number), BROWSER)).collect()
}

const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";
const GOOGLEBOT: &str = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";

#[test]
fn variable_segments_are_merged_and_sections_kept() {
    let yaml = generated(&day_log(|number| match number % 4 {
        0 => format!("/item/{number}"),
        1 => format!(
            "/post/{}",
            ["oak", "elm", "ash", "fir", "yew", "box", "bay", "fig", "may", "tea"][number as usize / 4 % 10]
        ),
        2 => "/search?q=oak".into(),
        _ => "/assets/shop.css".into(),
    }));
    accepted_settings(&yaml);
    for (route, share) in [("\"/item/*\"", "33.3%"), ("\"/search\"", "33.3%")] {
        assert!(yaml.contains(&format!("{{ match: {route}, cost: {{ pages: 1 }} }}   # {share}")), "{yaml}");
    }
    assert!(yaml.contains("0 for rare pages, 250 for assets"), "{yaml}");
}

#[test]
fn many_rare_names_become_a_wildcard() {
    let yaml = generated(&day_log(|number| {
        format!("/post/{}-{}", (b'a' + (number / 26 % 26) as u8) as char, (b'a' + (number % 26) as u8) as char)
    }));
    accepted_settings(&yaml);
    assert!(yaml.contains("match: \"/post/*\", cost: { pages: 1 } }   # 100.0%"), "{yaml}");
}

#[test]
fn asset_routes_precede_pages_in_every_spelling() {
    let yaml = generated(&day_log(|number| match number % 2 {
        0 => format!("/item/{number}"),
        _ => format!("/item/{number}.{}", if number % 20 == 1 { "png" } else { "JPG" }),
    }));
    let settings = accepted_settings(&yaml);
    let routes: Vec<&str> = settings.rules.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(routes, ["/**/*.JPG", "/**/*.png", "/item/*", "/**"]);
    let yaml = generated(&day_log(|number| if number % 2 == 0 { "/".into() } else { "/logo.png".into() }));
    assert!(!yaml.contains(".png"), "no page route matches them\n{yaml}");
}

#[test]
fn proposed_share_of_one_client_is_twice_the_most_that_one_used() {
    let log = |agent: fn(u64) -> u64| -> String {
        let lines = (0..1000)
            .map(|number| log_line(&format!("192.0.2.{}", agent(number)), number * 86, "+0900", "/item/1", BROWSER));
        lines.collect()
    };
    // 1,000 pages of one network are those of eight clients with 125 each.
    for (clients, share) in [
        (log(|number| number % 200), "per_client: 25%"),
        (log(|number| number % 4), "per_client: 50%"),
        (log(|_| 7), "# per_client: 5% "),
    ] {
        let yaml = generated(&clients);
        assert!(yaml.contains(&format!("\n    {share}")), "{share}\n{yaml}");
        let enforced = yaml.replace("    enforce: false", "    # enforce: false");
        let (report, _) = replay_config(&enforced, &clients);
        let refused = report.classes.iter().map(|class| class.refused.get("client_share").copied().unwrap_or(0));
        assert_eq!(refused.sum::<u64>(), 0, "{enforced}");
    }
}

#[test]
fn proposed_config_refuses_nothing_in_shadow_mode() {
    let log = day_log(|number| format!("/item/{number}"));
    let log = log.replace(BROWSER, GOOGLEBOT);
    let yaml = generated(&log);
    let (report, _) = replay_config(&yaml, &log);
    assert_eq!((report.admitted, report.refused), (1000, 0));
    let enforced: String =
        yaml.lines().filter(|line| !line.contains("enforce: false")).map(|line| format!("{line}\n")).collect();
    assert!(replay_config(&enforced, &log).0.refused > 0, "{enforced}");
}

#[test]
fn human_demand_excludes_undeclared_bots() {
    let person = |number: u64| {
        let client = format!("198.51.100.{}", number % 50);
        ["/item/{}", "/style.css", "/logo.png"].map(|path| {
            log_line(&client, number * 800, "+0000", &path.replace("{}", &(number % 9).to_string()), BROWSER)
        })
    };
    let scraper = |number: u64| log_line("192.0.2.1", number * 20, "+0000", &format!("/item/{number}"), BROWSER);
    let mut lines: Vec<String> = (0..100).flat_map(person).chain((0..4000).map(scraper)).collect();
    lines.sort_by_key(|line| line.split_once('[').map(|(_, time)| time.to_owned()));
    let yaml = generated(&lines.concat());
    let text = yaml.split("not detected as bots) requested ").nth(1).expect("a figure");
    let pages: String = text.chars().take_while(|c| !c.is_whitespace()).filter(char::is_ascii_digit).collect();
    let pages: u64 = pages.parse().expect("a number");
    assert!((100..500).contains(&pages), "{pages} of 4,100\n{yaml}");
}

#[test]
fn self_requests_get_their_own_class() {
    let self_requests = (0..50).map(|number| {
        log_line(
            "203.0.113.7",
            number * 60,
            "+0000",
            "/wp-cron.php?doing_wp_cron=1",
            "WordPress/5.9; https://shop.example",
        )
    });
    let other_request = log_line("192.0.2.9", 9, "+0000", "/feed/", "WordPress/6.0; https://other.example");
    let yaml = generated(&(other_request + &self_requests.collect::<String>()));
    let settings = accepted_settings(&yaml);
    assert_eq!(settings.rules.classes[0].name, "site");
    assert!(yaml.contains("when: { address: \"203.0.113.7\", user_agent: \"WordPress\" }"), "{yaml}");
}

#[test]
fn typical_day_is_shown_after_three_full_days() {
    let days = |count: u32| -> String {
        let day = |day: u32| {
            (0..100 + u64::from(day)).map(move |number| {
                log_line("192.0.2.1", number * 800, "+0000", "/item/1", BROWSER)
                    .replace("07/Jun", &format!("{day:02}/Jun"))
            })
        };
        (1..=count).flat_map(day).collect()
    };
    let [two, three] = [2, 3].map(|count| generated(&days(count)));
    assert!(two.contains("# 102 on the busiest of 2 days.\n"), "{two}");
    assert!(three.contains("# 103 on the busiest of 3 days, 102 on a median day.\n"), "{three}");
}

#[test]
fn front_page_search_gets_its_own_route() {
    let yaml = generated(&day_log(|number| if number % 2 == 0 { "/".into() } else { "/?s=oak".into() }));
    let settings = accepted_settings(&yaml);
    let first = &settings.rules.routes[0];
    assert_eq!((first.name.as_str(), &first.query[..]), ("/ (?s)", &[("s".to_owned(), None)][..]));
}

#[test]
fn limit_fits_busiest_day_and_zone_fits_log() {
    let settings = accepted_settings(&generated(&day_log(|number| format!("/item/{number}"))));
    let quota = &settings.rules.quotas[0];
    assert_eq!(quota.limit.to_string(), "1000");
    let yaml = generated(&day_log(|number| format!("/item/{number}")));
    assert!(
        yaml.contains("zone: Etc/GMT-9, ") && yaml.contains("the log's clock shows +0900, which is Etc/GMT-9"),
        "{yaml}"
    );
    let yaml = generated(&log_line("192.0.2.1", 0, "+0530", "/item/1", BROWSER));
    assert!(yaml.contains("zone: Asia/Kolkata, "), "{yaml}");
}

#[test]
fn partial_day_is_extrapolated_to_a_day() {
    let log: String = (0..60).map(|minute| log_line("192.0.2.1", minute * 60, "+0000", "/item/1", BROWSER)).collect();
    let yaml = generated(&log);
    assert!(yaml.contains("# 60 in about 1 h, which is 1,440 in a whole day.\n"), "{yaml}");
    assert_eq!(accepted_settings(&yaml).rules.quotas[0].limit.to_string(), "1500");
}

#[test]
fn bots_are_grouped_by_their_proof() {
    let mut log: String =
        (0..400).map(|number| log_line("66.249.66.1", number, "+0000", "/item/1", GOOGLEBOT)).collect();
    log += &log_line("203.0.113.9", 500, "+0000", "/item/1", GOOGLEBOT);
    log += &log_line(
        "20.171.206.7",
        500,
        "+0000",
        "/item/1",
        "Mozilla/5.0 (compatible; GPTBot/1.3; +https://openai.com/gptbot)",
    );
    log += &log_line("203.0.113.9", 500, "+0000", "/item/1", "curl/8.0");
    log += &log_line(
        "203.0.113.9",
        500,
        "+0000",
        "/item/1",
        "Mozilla/5.0 (compatible; SemrushBot/7~bl; +http://www.semrush.com/bot.html)",
    );
    let yaml = generated(&log);
    let settings = accepted_settings(&yaml);
    let classes: Vec<&str> = settings.rules.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(classes, ["search", "crawler", "impostor", "library", "bot", "person", "other"]);
    insta::assert_snapshot!(yaml);
}

#[test]
fn fast_crawler_gets_a_crawl_delay() {
    let bingbot = "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)";
    let log: String =
        (0..8640).map(|number| log_line("157.55.39.7", number * 10, "+0000", "/item/1", bingbot)).collect();
    let yaml = generated(&log);
    accepted_settings(&yaml);
    assert!(yaml.contains("crawl_delay: { bingbot: 10s }"), "{yaml}");
}

#[test]
fn log_without_requests_is_an_error() {
    for (log, expected) in [
        ("", "no requests found in 0 lines; expected an access log"),
        (
            "\nhello\nworld\n",
            "no requests found in 3 lines; first invalid line a log:2: in no known format; --format takes",
        ),
    ] {
        let error = try_generated(log.into()).expect_err("no requests").to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn random_paths_are_bounded_and_busy_page_kept() {
    let word = |number: u64| -> String {
        (0..5).map(|index| (b'a' + (number / 26_u64.pow(index) % 26) as u8) as char).collect()
    };
    let log: String = (0..60_000)
        .map(|number| match number % 3 {
            0 => log_line("192.0.2.1", number, "+0000", "/busy/page", BROWSER),
            _ => log_line("192.0.2.1", number, "+0000", &format!("/{}/{}", word(number * 7919), word(number)), BROWSER),
        })
        .collect();
    let yaml = generated(&log);
    accepted_settings(&yaml);
    assert!(yaml.contains("match: \"/busy/page\", cost: { pages: 1 } }   # 33.3%"), "{yaml}");
    assert!(yaml.contains("match: \"/*/*\", cost: { pages: 1 } }   # 66.7%"), "{yaml}");
}

proptest! {
    #[test]
    fn proposal_is_valid_and_deterministic_for_any_log(
        requests in prop::collection::vec((
            prop_oneof![
                "/[a-z0-9*.$%{}~\u{e9}-]{0,12}(/[ -~]{0,12}){0,3}",
                "/(item|a|favicon)/[0-9]{1,3}(\\.(css|JPG|ico|x)|)(\\?q=x|)",
                "/[ab.%]{0,3}(/[ab]{1,2}){0,3}\\.(css|js|Png|php)",
            ],
            prop_oneof![Just(BROWSER), Just(GOOGLEBOT), Just("curl/8"), Just("\\\"\\x0a# ${HOME}"), Just("-")],
            0..86_400_u64,
            prop_oneof![Just("+0000"), Just("-0330"), Just("+1400"), Just("+9959")],
        ), 1..60)
    ) {
        let log: String = requests.iter().map(|(path, agent, second, zone)| log_line("192.0.2.1", *second, zone, path, agent)).collect();
        if let Ok(yaml) = try_generated(log.clone().into_bytes()) {
            let (report, charged_assets) = replay_config(&yaml, &log);
            prop_assert!(charged_assets.is_empty(), "{:?}\n{}", charged_assets, yaml);
            prop_assert_eq!(report.refused, 0);
            let quota = &report.quotas[0];
            prop_assert!(quota.windows.iter().all(|window| window.used <= quota.limit), "{}", yaml);
            prop_assert_eq!(Ok(yaml), try_generated(log.into_bytes()).map_err(|error| error.to_string()));
        }
    }
}

#[test]
fn one_route_covers_all_spellings_of_a_page() {
    let targets = ["/Search", "/search/", "/search", "/search?q=a", "/Search/?q=b", "/"];
    let log: String = (0..300)
        .map(|second| log_line("192.0.2.1", second, "+0000", targets[second as usize % targets.len()], "Mozilla/5.0"))
        .collect();
    let yaml = generated(&log);
    accepted_settings(&yaml);
    let routes: Vec<&str> = yaml.lines().filter(|line| line.to_lowercase().contains("match: \"/search")).collect();
    assert_eq!(routes.len(), 2, "one with the parameter and one without: {yaml}");
    let (report, _) = replay_config(&yaml, &log);
    assert_eq!(report.quotas[0].windows[0].used, tidegate_policy::Units::from_whole(300), "{yaml}");
}
