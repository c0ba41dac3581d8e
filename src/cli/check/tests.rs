//! What the summary says of files.

use super::classes::conditions;
use super::scopes::scope;
use super::*;
use crate::policy::window::Window;
use std::time::Duration;

const OPERATORS: [&str; 3] = ["googlebot", "bingbot", "applebot"];

#[test]
fn it_says_in_words_what_our_example_means() {
    let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/config/tidegate.yaml"));
    let told = check(file, &[], &OPERATORS).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    for line in [
        "listens on 127.0.0.1:8080, forwards to 127.0.0.1:3000",
        "ledger: in ./state",
        "crawlers: lists fetched anew every 1d; DNS is asked of the system's name servers; operators' signatures count for up to 1d, by keys fetched from their agents",
        "behaviour: suspected from 100 points on, half of them forgotten after 1d",
        "  places_api: 10000 units, each day of America/Los_Angeles, from 00:00",
        "    search: from 6000 (60%) sheds 50%, from 8000 (80%) sheds 75%, from 9500 (95%) sheds 100%",
        "  search: googlebot or bingbot or applebot; priority 2; guarded: one let through each 5m, no page refused for over 1d, with up to 2%",
        "  bot: verified_bot or declared_bot or suspected_bot; priority 1; each client 60 at most, 10 more every 10s at once",
        "  person: human; priority 3; each client 60 at most, 1 more every 1s one by one, of requests that cost something",
        "  default: 64 at once at most, rests 1s to 5m after a complaint; 256 may wait for 2s",
        "  search_backend: 4 at once at most, 100ms to 5s apart, by latency; 256 may wait for 2s",
        "  /search: 4 of places_api; in search_backend",
        "  /**: free; in default",
        "robots.txt: the origin's",
        "  asks bingbot for 30s between two requests",
    ] {
        assert!(told.lines().any(|told| told == line), "no line {line:?} in\n{told}");
    }
}

#[test]
fn clients_that_a_proxy_hides_are_noted() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tidegate.yaml");
    let note = |rules: &str| {
        std::fs::write(&file, format!("origin: {{ url: 'http://a' }}\n{rules}")).expect("it can be written");
        let told = check(&file, &[], &OPERATORS).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        told.lines().find(|line| line.starts_with("  clients.address_from: peer")).map(str::to_owned)
    };
    let noted = note("listen: [127.0.0.1:1, \"[::1]:1\"]").expect("a note");
    assert!(
        noted.contains("{ address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8, \"::1/128\"] }"),
        "{noted}"
    );
    assert_eq!(note("listen: [127.0.0.1:1, 0.0.0.0:2]"), None);
    assert_eq!(note("clients: { address_from: forwarded, trusted_proxies: [127.0.0.0/8] }"), None);
}

#[test]
fn it_says_what_the_origin_s_answers_change() {
    let yaml = "origin: { url: 'http://a' }\nquotas:\n  api:\n    limit: 1\n    window: { fixed: 30s }\n    cost_header: X-Cost\n    sync_from:\n      \
        remaining_header: X-Left\n      reset_header: X-Reset\n      exhausted: { statuses: [429, 403], body_or_header: spent }";
    let settings = config::load(Path::new("a.yaml"), yaml, &[], &[], &OPERATORS).expect("all is well");
    let told = summary(&settings, &[]);
    let lines = "  api: 1 units, every 30s\n    costs what the origin says in x-cost\n    \
        never more than the origin says is left in x-left, renewed when x-reset says\n    \
        closed by an answer of 429 or 403 with \"spent\"\n";
    assert!(told.contains(lines), "{told}");
}

#[test]
fn a_class_that_no_tier_sheds_is_not_said_to_be_guarded() {
    let rules = "classes: [{ name: a, when: { operator: googlebot } }]\nquotas: { q: { limit: 1, window: { fixed: 1h }, \
                 tiers: { a: [{ above: 50%, shed: 100% }] } } }";
    let told = |rules: &str| {
        let yaml = format!("origin: {{ url: 'http://a' }}\nbehaviour: {{ enabled: false }}\n{rules}");
        summary(&config::load(Path::new("a.yaml"), &yaml, &[], &[], &OPERATORS).expect("all is well"), &[])
    };
    let (shed, never) = (told(rules), told(&rules.replace("tiers: { a: ", "tiers: { other: ")));
    assert!(shed.contains("  a: googlebot; priority 0; guarded: one"), "{shed}");
    assert!(
        never.contains("  a: googlebot; priority 0\n") && never.contains("\nbehaviour: not looked at\n"),
        "{never}"
    );
}

#[test]
fn how_hard_a_scope_may_be_pressed_is_said_in_words() {
    let told = |keys: &str| {
        let yaml = format!("origin: {{ url: 'http://a' }}\nscopes: {{ default: {{ {keys} }} }}");
        let settings = config::load(Path::new("a.yaml"), &yaml, &[], &[], &OPERATORS).expect("all is well");
        scope(&settings.rules.scopes[0]).expect("it is throttled")
    };
    for (keys, words) in [
        ("concurrency: 2, queue: { max_wait: 0s }", "default: 2 at once at most; nobody waits"),
        (
            "delay: 1s, backoff: {}, rampup: {}",
            "default: 100ms to 10s apart, by complaints, beginning with 1s, rests 1s to 5m after a complaint; 256 may wait for 2s",
        ),
        (
            "concurrency: 4, backoff: {}, rampup: {}",
            "default: 1 to 40 at once, by complaints, beginning with 4, rests 1s to 5m after a complaint; 256 may wait for 2s",
        ),
    ] {
        assert_eq!(told(keys), words);
    }
}

#[test]
fn whose_a_bucket_is_stands_before_it() {
    for (key, whose) in [
        ("address", "each client"),
        ("operator", "each operator's crawlers together (others each)"),
        ("class", "the class together"),
        ("{ header: X-Api-Key }", "each value of the header x-api-key"),
        ("{ cookie: session }", "each value of the cookie session"),
    ] {
        let yaml =
            format!("origin: {{ url: 'http://a' }}\nclasses: [{{ name: a, bucket: {{ rate: 1/s, key: {key} }} }}]");
        let settings = config::load(Path::new("a.yaml"), &yaml, &[], &[], &OPERATORS).expect("all is well");
        let line = format!("  a: everybody else; priority 0; {whose} 1 at most, 1 more every 1s one by one\n");
        assert!(summary(&settings, &[]).contains(&line), "{}", summary(&settings, &[]));
    }
}

#[test]
fn known_keys_are_counted() {
    for (values, words) in [
        ("a-key-that-is-long", "with the known key in the header x-api-key"),
        ("[a-key-that-is-long, another-that-is-long]", "with one of 2 known keys in the header x-api-key"),
    ] {
        let yaml = format!(
            "origin: {{ url: 'http://a' }}\nclasses: [{{ name: a, when: {{ key: {{ header: X-Api-Key, value: {values} }} }} }}]"
        );
        let settings = config::load(Path::new("a.yaml"), &yaml, &[], &[], &OPERATORS).expect("all is well");
        assert_eq!(conditions(&settings.rules.classes[0].when, &[], &[]), words);
    }
}

#[test]
fn operators_of_the_file_are_told() {
    let text = "origin: { url: http://o }\nverify: { dns: { nameservers: 127.0.0.1:53 }, refresh: off, signatures: { enabled: false } }\noperators:\n  \
                acme: { tokens: AcmeBot, ranges: 192.0.2.0/24, names: acme.example, complete: [addresses, names] }\n  \
                googlebot: { complete: [] }\n  bingbot: {}\n  nobody: {}\n  \
                mine: { tokens: [GPTBot, MineBot], signature_agents: [https://chatgpt.com, https://b.example] }";
    let settings = config::load(Path::new("gate.yaml"), text, &[], &[], &OPERATORS);
    let told = summary(&settings.unwrap_or_else(|mistakes| panic!("{mistakes}")), &[]);
    for line in [
        "crawlers: no list is fetched; DNS is asked of 127.0.0.1:53; signatures are not looked at",
        "operators of crawlers, added or changed: 5",
        "  acme: says AcmeBot; comes from 192.0.2.0/24; is called acme.example; always known by addresses, names",
        "  googlebot: never an impostor",
        "  bingbot: as built in",
        "  nobody: nothing is said of it",
        "  mine: says GPTBot (no longer gptbot), MineBot; signs as https://chatgpt.com (no longer chatgpt-agent), https://b.example",
    ] {
        assert!(told.lines().any(|told| told == line), "no line {line:?} in\n{told}");
    }
}

#[test]
fn a_file_of_ranges_that_is_no_list_is_a_note() {
    let folder = tempfile::tempdir().expect("a folder");
    let [yaml, ranges] = ["gate.yaml", "ours.txt"].map(|name| folder.path().join(name));
    let rules = format!("origin: {{ url: http://o }}\noperators: {{ googlebot: {{ ranges: {} }} }}", ranges.display());
    std::fs::write(&yaml, rules).expect("it can be written");
    let told = || check(&yaml, &[], &OPERATORS).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let place = format!("  {}:2:35: operators.googlebot.ranges: {} cannot be used: ", yaml.display(), ranges.display());
    assert!(told().contains(&format!("{place}No such file")), "{}", told());
    std::fs::write(&ranges, "192.0.2.0/24\nnobody\n").expect("it can be written");
    let why = "it is no list of networks: `nobody` is no network; until it can, it proves nobody";
    assert!(told().contains(&format!("{place}{why}")), "{}", told());
    std::fs::write(&ranges, "192.0.2.0/24\n").expect("it can be written");
    assert!(!told().contains("cannot be used"), "{}", told());
}

#[test]
fn a_token_that_was_anothers_is_a_note() {
    let folder = tempfile::tempdir().expect("a folder");
    let yaml = folder.path().join("gate.yaml");
    for (keys, become_what) in
        [("ranges: 192.0.2.0/24", "declared bots"), ("complete: names, names: a.example", "impostors")]
    {
        let rules =
            format!("origin: {{ url: http://o }}\noperators: {{ acme: {{ tokens: [googlebot, Acme/1.0], {keys} }} }}");
        std::fs::write(&yaml, rules).expect("it can be written");
        let told = check(&yaml, &[], &OPERATORS).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        for line in [
            format!(
                "  operators.acme.tokens: whoever says Googlebot is held to acme now, so the real crawlers of googlebot are {become_what}, \
                 unless acme's ranges, names or keys prove them"
            ),
            "  operators.acme.tokens[1]: \"Acme/1.0\" is that version alone; Acme is all of them".into(),
        ] {
            assert!(told.lines().any(|told| told == line), "no line {line:?} in\n{told}");
        }
    }
}

#[test]
fn a_delay_that_cannot_make_the_budget_last_is_told() {
    for (tiers, told) in [
        ("bot: [{ above: 10%, shed: 100% }]", "30s; it needs 87s, crawlers read 30s at most: it lasts about 9h of 1d"),
        ("bot: [{ above: 0%, shed: 100% }]", "30s; it has no budget, tiers refuse it wholly"),
        ("", "9s"),
    ] {
        let text = format!(
            "origin: {{ url: http://o }}\nclasses: [{{ name: bot, when: {{ kind: declared_bot }}, crawl_delay: auto }}]\n\
             quotas: {{ api: {{ limit: 10000, window: {{ fixed: 24h }}, tiers: {{ {tiers} }} }} }}\n\
             routes: [{{ match: /**, cost: {{ api: 1 }} }}]"
        );
        let settings = config::load(Path::new("gate.yaml"), &text, &[], &[], &OPERATORS);
        let summary = summary(&settings.unwrap_or_else(|mistakes| panic!("{mistakes}")), &[]);
        let line = format!("  asks unknown bots for what the budget affords, at first {told}");
        assert!(summary.lines().any(|told| told == line), "no line {line:?} in\n{summary}");
    }
}

#[test]
fn a_route_says_which_spellings_it_is_for_where_it_is_not_the_default() {
    let text = "origin: { url: http://o }\nquotas: { api: { limit: 9, window: { fixed: 1h } } }\nroutes:\n  \
                - { match: /a, method: GET, cost: { api: 1 } }\n  - { match: /b, case: exact, trailing_slash: exact, cost: { api: 1 } }\n  \
                - { match: /c, case: ignore }\n  - { match: /d }\n";
    let settings = config::load(Path::new("gate.yaml"), text, &[], &[], &OPERATORS);
    let told = summary(&settings.unwrap_or_else(|mistakes| panic!("{mistakes}")), &[]);
    for line in [
        "  /a [GET HEAD]: 1 of api; in default",
        "  /b [case: exact trailing_slash: exact]: 1 of api; in default",
        "  /c [case: ignore]: free; in default",
        "  /d: free; in default",
        "  /**: free; in default",
    ] {
        assert!(told.lines().any(|told| told == line), "no line {line:?} in\n{told}");
    }
}

#[test]
fn what_robots_txt_asks_of_a_class_is_one_line() {
    let operators: Vec<String> = (0..7).map(|number| format!("bot-{number}")).collect();
    let names: Vec<&str> = operators.iter().map(String::as_str).collect();
    let text = "origin: { url: http://o }\nclasses:\n  - { name: few, when: { operator: [bot-0, bot-1] }, crawl_delay: 5s }\n  \
                - { name: many, when: { kind: [verified_bot, declared_bot] }, crawl_delay: 10s }\n\
                crawl_policy: { contact: mailto:a@b.example, units: true }\n\
                robots: { file: no/such.txt }";
    let settings = config::load(Path::new("gate.yaml"), text, &[], &[], &names);
    let mut settings = settings.unwrap_or_else(|mistakes| panic!("{mistakes}"));
    settings.warnings.extend(robots_override_warning(&settings));
    let told = summary(&settings, &[]);
    let lines = "robots.txt: no/such.txt\n  asks bot-0, bot-1 for 5s between two requests\n  \
                 asks the 5 operators of class many for 10s between two requests\n  \
                 asks unknown bots for 10s between two requests\n\
                 crawl policy: told at /.well-known/crawl-policy, with units, more from mailto:a@b.example\n";
    assert!(told.contains(lines), "{told}");
    assert!(told.contains("  robots.file: no/such.txt cannot be read: "), "{told}");
}

#[test]
fn every_window_has_its_words() {
    let told = |window: &Window| super::quotas::window(window);
    let day = Duration::from_secs(86_400);
    assert_eq!(told(&Window::Fixed { length: day }), "every 1d");
    assert_eq!(told(&Window::FirstUse { length: day }), "for 1d from the first use on");
    assert_eq!(told(&Window::Sliding { length: day, sub_windows: 60 }), "in any span of 1d");
}

#[test]
fn a_file_that_is_not_there_is_a_mistake() {
    let told = check(Path::new("no/such.yaml"), &[], &OPERATORS);
    assert!(told.as_ref().is_err_and(|told| told.starts_with("no/such.yaml: cannot be read: ")), "{told:?}");
}
