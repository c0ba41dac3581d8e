//! Tests of the summary.

use super::*;
use std::os::unix::fs::PermissionsExt;

const OPERATORS: [&str; 3] = ["googlebot", "bingbot", "applebot"];

fn summary(settings: &Settings) -> String {
    describe::summary(settings, &[], &crawlers::builtin_operators(&OperatorTable::builtin()))
}

#[test]
fn summary_describes_the_example_config() {
    let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/config/tidegate.yaml"));
    let shown = check(file, &[], &OPERATORS).unwrap_or_else(|errors| panic!("{errors}"));
    insta::assert_snapshot!(shown);
}

#[test]
fn loopback_listener_without_trusted_proxy_gives_a_warning() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("tidegate.yaml");
    let find_warning = |rules: &str| {
        std::fs::write(&file, format!("origin: {{ url: 'http://a' }}\n{rules}")).expect("the file is written");
        let shown = check(&file, &[], &OPERATORS).unwrap_or_else(|errors| panic!("{errors}"));
        shown.lines().find(|line| line.starts_with("  clients.address_from: peer")).map(str::to_owned)
    };
    let warning = find_warning("listen: [127.0.0.1:1, \"[::1]:1\"]").expect("a warning");
    assert!(
        warning.contains("{ address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8, \"::1/128\"] }"),
        "{warning}"
    );
    assert_eq!(find_warning("listen: [127.0.0.1:1, 0.0.0.0:2]"), None);
    assert_eq!(find_warning("clients: { address_from: forwarded, trusted_proxies: [127.0.0.0/8] }"), None);
}

#[test]
fn errors_of_error_pages_have_file_line_and_column() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("tidegate.yaml");
    let write = |name: &str, content: &[u8]| std::fs::write(dir.path().join(name), content).expect("a file");
    let pages = "error_pages:\n  429: absent.html\n  503: latin1.html\n  4xx: large.html\n  5xx: broken.html\n  502: empty.html\n";
    write("tidegate.yaml", format!("origin: {{ url: 'http://a' }}\n{pages}").as_bytes());
    write("latin1.html", b"<p>\ngr\xfc\xdfe");
    write("large.html", &vec![b'x'; (64 << 10) + 1]);
    write("broken.html", "<p>\u{e9} {{status}} {{statsu}}".as_bytes());
    write("empty.html", b" \n");
    let errors = check(&file, &[], &OPERATORS).expect_err("invalid pages");
    let place = dir.path().display().to_string();
    assert_eq!(
        errors.replace(&place, "").lines().collect::<Vec<_>>(),
        [
            "/tidegate.yaml:3:8: error_pages.429: cannot read /absent.html: No such file or directory (os error 2); name an \
             HTML file of at most 64 KiB",
            "/tidegate.yaml:4:8: error_pages.503: /latin1.html:2:3: found a byte that is not UTF-8; save the file in UTF-8",
            "/tidegate.yaml:5:8: error_pages.4xx: cannot read /large.html: larger than 64 KiB; name an HTML file of at most \
             64 KiB",
            "/tidegate.yaml:6:8: error_pages.5xx: /broken.html:1:17: found the unknown placeholder \"statsu\" (did you mean \
             \"status\"?); known: status, title, detail, retry_after, wait, decision; write &#123;{ for two braces",
            "/tidegate.yaml:7:8: error_pages.502: /empty.html:1:1: found no text; write the page, such as <h1>{{title}}</h1>",
        ]
    );
    let forms = "error_pages:\n  429: { json: opanai }\n  503: { json: broken.json }\n  5xx: { json: empty.json }\n";
    write("tidegate.yaml", format!("origin: {{ url: 'http://a' }}\n{forms}").as_bytes());
    write("broken.json", "{\"\u{e9}\": \"{{status}}\",\n \"wait\": {{wait}}}".as_bytes());
    write("empty.json", b"\n");
    let errors = check(&file, &[], &OPERATORS).expect_err("invalid documents");
    assert_eq!(
        errors.replace(&place, "").lines().collect::<Vec<_>>(),
        [
            "/tidegate.yaml:3:16: error_pages.429.json: cannot read /opanai: No such file or directory (os error 2); name a \
             JSON file of at most 64 KiB, or write openai, anthropic or problem",
            "/tidegate.yaml:4:16: error_pages.503.json: /broken.json:2:10: found no JSON: expected value; write placeholders \
             in strings, only status and retry_after also as numbers",
            "/tidegate.yaml:5:16: error_pages.5xx.json: /empty.json:1:1: found no text; write the document, such as \
             {\"error\": \"{{detail}}\"}",
        ]
    );

    write("tidegate.yaml", format!("origin: {{ url: 'http://a' }}\n{pages}").as_bytes());
    ["absent", "latin1", "large", "broken", "empty"]
        .iter()
        .for_each(|name| write(&format!("{name}.html"), b"{{title}}"));
    let shown = check(&file, &[], &OPERATORS).unwrap_or_else(|errors| panic!("{errors}"));
    assert!(shown.contains("\nerror pages, of the gateway's own responses: 429 in "), "{shown}");
}

#[test]
fn summary_shows_cost_header_sync_and_exhaustion() {
    let yaml = "origin: { url: 'http://a' }\nclasses: []\nquotas:\n  api:\n    limit: 1\n    window: { fixed: 30s }\n    cost_header: X-Cost\n    sync_from:\n      \
        remaining_header: X-Left\n      reset_header: X-Reset\n      exhausted: { statuses: [429, 403], contains: spent }";
    let settings = config::load(Path::new("a.yaml"), yaml, &[], &[], &OPERATORS).expect("valid settings");
    let shown = summary(&settings);
    let lines = "  api: 1 unit, every 30s\n    actual cost from x-cost\n    \
        remaining units from x-left, renewal from x-reset\n    \
        exhausted on status 429 or 403 with \"spent\"\n";
    assert!(shown.contains(lines), "{shown}");
}

#[test]
fn class_without_tiers_is_not_shown_as_guarded() {
    let rules = "classes: [{ name: a, when: { operator: googlebot } }]\nquotas: { q: { limit: 1, window: { fixed: 1h }, \
                 tiers: { a: [{ above: 50%, shed: 100% }] } } }";
    let summary_of = |rules: &str| {
        let yaml = format!("origin: {{ url: 'http://a' }}\nbot_detection: {{ enabled: false }}\n{rules}");
        summary(&config::load(Path::new("a.yaml"), &yaml, &[], &[], &OPERATORS).expect("valid settings"))
    };
    let (shed, unshed) = (summary_of(rules), summary_of(&rules.replace("tiers: { a: ", "tiers: { other: ")));
    assert!(shed.contains("  a: googlebot; priority 0; crawler guard: one"), "{shed}");
    assert!(unshed.contains("  a: googlebot; priority 0\n") && unshed.contains("\nbot detection: off\n"), "{unshed}");
}

#[test]
fn bucket_summary_starts_with_its_key_source() {
    for (key, expected) in [
        ("address", "per client"),
        ("operator", "per operator (other clients: per address)"),
        ("class", "per class"),
        ("{ header: X-Api-Key }", "per value of the header x-api-key"),
        ("{ cookie: session }", "per value of the cookie session"),
    ] {
        let yaml =
            format!("origin: {{ url: 'http://a' }}\nclasses: [{{ name: a, bucket: {{ rate: 1/s, key: {key} }} }}]");
        let settings = config::load(Path::new("a.yaml"), &yaml, &[], &[], &OPERATORS).expect("valid settings");
        let line = format!("  a: all other clients; priority 0; bucket {expected}: burst 1, refill 1 per 1s\n");
        assert!(summary(&settings).contains(&line), "{}", summary(&settings));
    }
}

#[test]
fn summary_lists_configured_operators() {
    let text = "origin: { url: http://o }\nclasses: []\nverify: { dns: { nameservers: 127.0.0.1:53 }, refresh_interval: off, signatures: { enabled: false } }\noperators:\n  \
                acme: { product_tokens: AcmeBot, ranges: 192.0.2.0/24, dns_names: acme.example, exhaustive: [ranges, dns_names] }\n  \
                googlebot: { exhaustive: [] }\n  bingbot: {}\n  nobody: {}\n  \
                mine: { product_tokens: [GPTBot, MineBot], signature_agents: [https://chatgpt.com, https://b.example] }";
    let settings = config::load(Path::new("gate.yaml"), text, &[], &[], &OPERATORS);
    let shown = summary(&settings.unwrap_or_else(|errors| panic!("{errors}")));
    insta::assert_snapshot!(shown);
}

#[test]
fn invalid_range_file_gives_a_warning() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let [yaml, ranges] = ["gate.yaml", "ours.txt"].map(|name| dir.path().join(name));
    let rules = format!("origin: {{ url: http://o }}\noperators: {{ googlebot: {{ ranges: {} }} }}", ranges.display());
    std::fs::write(&yaml, rules).expect("the file is written");
    let shown = || check(&yaml, &[], &OPERATORS).unwrap_or_else(|errors| panic!("{errors}"));
    let prefix =
        format!("  {}:2:35: operators.googlebot.ranges: {} cannot be used: ", yaml.display(), ranges.display());
    assert!(shown().contains(&format!("{prefix}No such file")), "{}", shown());
    std::fs::write(&ranges, "192.0.2.0/24\nnobody\n").expect("the file is written");
    let consequence = "; it verifies no client until it can";
    assert!(shown().contains(&prefix) && shown().contains("`nobody`") && shown().contains(consequence), "{}", shown());
    std::fs::write(&ranges, "192.0.2.0/24\n").expect("the file is written");
    assert!(!shown().contains("cannot be used"), "{}", shown());
}

#[test]
fn quota_that_one_client_may_spend_gives_a_warning() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let yaml = dir.path().join("gate.yaml");
    let warnings = |quota: &str, class: &str, cost: &str| {
        let rules = format!(
            "origin: {{ url: http://o }}\nquotas: {{ api: {{ limit: 100, window: {{ fixed: 24h }}{quota} }} }}\n\
             classes: [{{ name: bots, when: {{ kind: declared_bot }}, block: true }}, {{ name: people{class} }}]\n\
             routes: [{{ match: /page{cost} }}]"
        );
        std::fs::write(&yaml, rules).expect("the file is written");
        let shown = check(&yaml, &[], &OPERATORS).unwrap_or_else(|errors| panic!("{errors}"));
        shown.lines().filter(|line| line.contains("may spend the whole window")).map(str::to_owned).collect::<Vec<_>>()
    };
    const COST: &str = ", cost: { api: 1 }";
    let expected = "  quotas.api.per_client: not set, so one client of the class people may spend the whole window; write per_client: 5%, \
                    or a bucket for the class";
    assert_eq!(warnings("", "", COST), [expected]);
    for (quota, class, cost) in [
        (", per_client: 5%", "", COST),
        (", tiers: { people: [{ above: 50%, shed: 100% }] }", "", COST),
        (", enforce: false", "", COST),
        ("", ", bucket: { rate: 1/s, burst: 60 }", COST),
        ("", "", ""),
    ] {
        assert!(warnings(quota, class, cost).is_empty(), "{quota} {class} {cost}");
    }
}

#[test]
fn origin_without_limited_scopes_gives_a_warning() {
    let warning = |rules: &str| {
        let text = format!("origin: {{ url: http://o }}\n{rules}");
        let settings = config::load(Path::new("gate.yaml"), &text, &[], &[], &OPERATORS);
        unbounded_connections_warning(&settings.unwrap_or_else(|errors| panic!("{errors}")).rules)
    };
    let expected = "scopes: not set, so one client may occupy all connections to the origin";
    assert!(warning("").is_some_and(|warning| warning.starts_with(expected)));
    assert!(warning("scopes: { slow: { concurrency: 4 } }\nroutes: [{ match: /a }]").is_some(), "no route is in it");
    assert_eq!(warning("scopes: { default: { concurrency: 4 } }"), None);
}

#[test]
fn state_directory_that_others_may_write_to_gives_a_warning() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let [yaml, state] = ["gate.yaml", "state"].map(|name| dir.path().join(name));
    std::fs::write(&yaml, format!("origin: {{ url: http://o }}\nstate_dir: {}", state.display())).expect("written");
    let shown = || check(&yaml, &[], &OPERATORS).unwrap_or_else(|errors| panic!("{errors}"));
    assert!(!shown().contains("is refused at the start"), "it is created at the start");
    std::fs::create_dir(&state).expect("created");
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o770)).expect("mode is set");
    let expected = format!(
        "  state_dir: {0} is refused at the start: other users may write to it (mode 770): run chmod go-w {0}\n",
        state.display()
    );
    assert!(shown().contains(&expected), "{}", shown());
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o750)).expect("mode is set");
    assert!(!shown().contains("is refused at the start"), "{}", shown());
}

#[test]
fn token_taken_from_another_operator_gives_a_warning() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let yaml = dir.path().join("gate.yaml");
    for (keys, consequence) in
        [("ranges: 192.0.2.0/24", "declared bots"), ("exhaustive: dns_names, dns_names: a.example", "impostors")]
    {
        let rules = format!(
            "origin: {{ url: http://o }}\noperators: {{ acme: {{ product_tokens: [googlebot, Acme/1.0], {keys} }} }}"
        );
        std::fs::write(&yaml, rules).expect("the file is written");
        let shown = check(&yaml, &[], &OPERATORS).unwrap_or_else(|errors| panic!("{errors}"));
        for line in [
            format!(
                "  operators.acme.product_tokens: Googlebot moves from googlebot to acme, so genuine crawlers of googlebot are {consequence}, \
                 unless the ranges, dns_names or signature_agents of acme verify them"
            ),
            "  operators.acme.product_tokens[1]: \"Acme/1.0\" matches this version only; Acme matches all versions"
                .into(),
        ] {
            assert!(shown.lines().any(|shown_line| shown_line == line), "no line {line:?} in\n{shown}");
        }
    }
}

#[test]
fn auto_crawl_delay_shows_an_insufficient_budget() {
    for (tiers, expected) in [
        (
            "bot: [{ above: 10%, shed: 100% }]",
            "30s; the budget needs 87s, but the maximum is 30s: it lasts about 9h of 1d",
        ),
        ("bot: [{ above: 0%, shed: 100% }]", "30s; no budget: the tiers refuse all its requests"),
        ("", "9s"),
    ] {
        let text = format!(
            "origin: {{ url: http://o }}\nclasses: [{{ name: bot, when: {{ kind: declared_bot }}, crawl_delay: auto }}]\n\
             quotas: {{ api: {{ limit: 10000, window: {{ fixed: 24h }}, tiers: {{ {tiers} }} }} }}\n\
             routes: [{{ match: /**, cost: {{ api: 1 }} }}]"
        );
        let settings = config::load(Path::new("gate.yaml"), &text, &[], &[], &OPERATORS);
        let summary = summary(&settings.unwrap_or_else(|errors| panic!("{errors}")));
        let line = format!("  crawl delay of unknown bots: auto, initially {expected}");
        assert!(summary.lines().any(|shown_line| shown_line == line), "no line {line:?} in\n{summary}");
    }
}

#[test]
fn route_summary_shows_non_default_spelling() {
    let text = "origin: { url: http://o }\nclasses: []\nquotas: { api: { limit: 9, window: { fixed: 1h } } }\nroutes:\n  \
                - { match: /a, method: GET, cost: { api: 1 } }\n  - { match: /b, case: exact, trailing_slash: exact, cost: { api: 1 } }\n  \
                - { match: /c, case: ignore }\n  - { match: /d }\n";
    let settings = config::load(Path::new("gate.yaml"), text, &[], &[], &OPERATORS);
    let shown = summary(&settings.unwrap_or_else(|errors| panic!("{errors}")));
    insta::assert_snapshot!(shown);
}

#[test]
fn crawl_delay_of_a_class_is_one_line() {
    let operators: Vec<String> = (0..7).map(|number| format!("bot-{number}")).collect();
    let names: Vec<&str> = operators.iter().map(String::as_str).collect();
    let text = "origin: { url: http://o }\nclasses:\n  - { name: few, when: { operator: [bot-0, bot-1] }, crawl_delay: 5s }\n  \
                - { name: many, when: { kind: [verified_bot, declared_bot] }, crawl_delay: 10s }\n\
                crawl_policy: { contact: mailto:a@b.example, show_units: true }\n\
                robots: { override_file: no/such.txt }";
    let settings = config::load(Path::new("gate.yaml"), text, &[], &[], &names);
    let settings = settings.unwrap_or_else(|errors| panic!("{errors}"));
    insta::assert_snapshot!(summary(&settings));
    let warning = robots_override_warning(&settings).expect("the file does not exist");
    assert!(warning.starts_with("robots.override_file: no/such.txt cannot be read: "), "{warning}");
}

#[test]
fn missing_config_file_is_an_error() {
    let result = check(Path::new("no/such.yaml"), &[], &OPERATORS);
    assert!(result.as_ref().is_err_and(|error| error.starts_with("no/such.yaml: cannot be read: ")), "{result:?}");
}

#[test]
fn signing_operators_without_own_hosts_give_a_warning() {
    let warning = |rules: &str| {
        let yaml = format!("origin: {{ url: 'http://a' }}\n{rules}");
        let builtin = OperatorTable::builtin();
        let operators: Vec<&str> = builtin.names().collect();
        let settings = config::load(Path::new("a.yaml"), &yaml, &[], &[], &operators).expect("valid settings");
        foreign_signature_warning(&settings, &builtin)
    };
    let class = "classes: [{ name: a, when: { operator: [googlebot, chatgpt-agent, acme] } }]\n";
    let acme = "operators: { acme: { signature_agents: https://bot.acme.example } }\n";
    let both = warning(&format!("{class}{acme}")).expect("a warning");
    assert_eq!(
        both,
        "hosts: not set, so a signature that chatgpt-agent or acme made for another site counts here, too; write \
         hosts: [example.com] with the hosts of your site"
    );
    assert!(warning(acme).expect("a warning").contains(" acme made "));
    let unsigned = "classes: [{ name: a, when: { operator: googlebot } }]\n";
    let disabled = "verify: { signatures: { enabled: false } }\n";
    let unsigned_agent = "operators: { chatgpt-agent: { signature_agents: [] } }\n";
    for rules in [
        String::new(),
        unsigned.to_owned(),
        format!("{class}{acme}hosts: example.com"),
        format!("{class}{acme}{disabled}"),
        format!("classes: [{{ name: a, when: {{ operator: chatgpt-agent }} }}]\n{unsigned_agent}"),
    ] {
        assert_eq!(warning(&rules), None, "{rules}");
    }
}

#[test]
fn summary_shows_own_hosts() {
    let yaml = "origin: { url: 'http://a' }\nhosts: [Example.com, \"*.example.com\"]";
    let settings = config::load(Path::new("a.yaml"), yaml, &[], &[], &OPERATORS).expect("valid settings");
    assert!(summary(&settings).contains("\nown hosts: example.com, *.example.com\n"), "{}", summary(&settings));
}

#[test]
fn quota_that_no_request_is_charged_to_gives_a_warning() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("tidegate.yaml");
    let has_warning = |rules: &str| {
        std::fs::write(&file, format!("origin: http://a\n{rules}")).expect("the file is written");
        let shown = check(&file, &[], &OPERATORS).unwrap_or_else(|errors| panic!("{errors}"));
        shown.contains("  quotas.api: no request is charged, so nothing is limited; write ")
    };
    assert!(has_warning("quotas: { api: { limit: 1000 } }\n"));
    assert!(!has_warning("quotas: { api: { limit: 1000, cost_header: X-Cost } }\n"));
    assert!(!has_warning("quotas: { api: { limit: 1000 } }\nroutes: [{ match: /a, cost: { api: 1 } }]\n"));
}

#[test]
fn defaults_are_shown_and_written_into_the_file() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("tidegate.yaml");
    let written = |text: &str| {
        std::fs::write(&file, text).expect("the file is written");
        explain_defaults(&file, &[], &OPERATORS)
    };
    let complete = written("# My site.\norigin: http://a\nquotas: { api: { limit: 1000 } }\n").expect("a valid file");
    insta::assert_snapshot!(complete);
    assert_eq!(written(&complete), Ok(complete.clone()), "nothing is left out");
    let shown = check(&file, &[], &OPERATORS).unwrap_or_else(|errors| panic!("{errors}"));
    assert!(!shown.contains("not in the file"), "{shown}");

    let error = written("{ origin: http://a, quotas: { api: { limit: 1000 } } }\n").expect_err("no line for classes");
    assert!(error.contains("tidegate.yaml: the defaults do not fit into its layout"), "{error}");
    assert!(
        written("origin: http://a\nquotas: { api: { limit: x } }\n")
            .expect_err("invalid")
            .contains(":2:25: quotas.api.limit")
    );
}
