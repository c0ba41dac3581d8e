use super::super::model_calls::as_yaml;
use super::*;
use std::sync::LazyLock;
use tidegate_config::Settings;

static OPERATORS: LazyLock<Arc<OperatorTable>> = LazyLock::new(|| Arc::new(OperatorTable::builtin()));
static AGENTS: LazyLock<Arc<UserAgentMatcher>> =
    LazyLock::new(|| Arc::new(UserAgentMatcher::builtin(OPERATORS.product_tokens())));

const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";
const GOOGLEBOT: &str = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";
const SCRAPER: &str = "Scrapy/2.11 (+https://scrapy.org)";
const WORDPRESS: &str = "WordPress/6.4; https://shop.example";

#[test]
fn policy_has_a_few_lines_that_load() {
    let extensions: Vec<String> =
        (0..60).map(|number| format!("/theme/a{number}.{}", ["css", "js", "png"][number % 3])).collect();
    let log = Log::default()
        .with_people(20, &["/", "/item/1", "/item/2", "/about", "/theme/style.css", "/theme/shop.js", "/logo.PNG"])
        .with("192.0.2.9", BROWSER, extensions.iter().map(String::as_str))
        .with("192.0.2.200", WORDPRESS, std::iter::repeat_n("/wp-cron.php", 30))
        .with("10.0.0.3", "kube-probe/1.30", std::iter::repeat_n("/status/live", 40));
    let (plan, settings) = planned(&log, &options());
    let lines = plan.yaml.lines().filter(|line| !line.starts_with('#')).count();
    assert!(lines <= policy_text::MAX_LINES, "{}", plan.yaml);
    let cost =
        |path: &str| settings.rules.routes.iter().find(|route| route.path.matches(path)).map(|route| route.costs.len());
    for free in ["/theme/a.css", "/x/y/z.js", "/logo.PNG", "/wp-cron.php", "/status/live"] {
        assert_eq!(cost(free), Some(0), "{free}: {}", plan.yaml);
    }
    for page in ["/", "/item/77", "/never/seen/before"] {
        assert_eq!(cost(page), Some(1), "{page}: {}", plan.yaml);
    }
    assert!(
        plan.yaml.contains("30 calls of the site to itself (/wp-cron.php from 192.0.2.200) cost nothing"),
        "{}",
        plan.yaml
    );
    assert_eq!(settings.defaults.len(), 3, "classes, pacing and tiers: {:?}", settings.defaults);
}

#[test]
fn options_replace_what_the_log_shows() {
    let log = Log::default().with_people(20, &["/"]);
    let options =
        PlanOptions { limit: Some(777), zone: Some("Asia/Tokyo".into()), origin: "https://site.example".into() };
    let (plan, settings) = planned(&log, &options);
    assert_eq!(settings.rules.quotas[0].limit.to_string(), "777");
    assert!(
        plan.yaml.contains("zone: Asia/Tokyo") && plan.yaml.contains("origin: https://site.example"),
        "{}",
        plan.yaml
    );
    assert!(!plan.yaml.contains("--limit") && !plan.yaml.contains("--zone"), "{}", plan.yaml);
    assert!(plan.yaml.contains("#   verified search engines: none in the log\n"), "{}", plan.yaml);
}

#[test]
fn share_of_a_client_is_that_of_a_person_and_not_of_a_program() {
    let pages: Vec<String> = (0..3000).map(|number| format!("/item/{number}")).collect();
    let log = Log::default()
        .with_people(100, &["/", "/item/1", "/item/2", "/item/3", "/item/4", "/item/5", "/item/6", "/item/7"])
        .with("198.51.100.1", BROWSER, pages.iter().map(String::as_str));
    let (plan, settings) = planned(&log, &PlanOptions { limit: Some(1000), ..options() });
    let share = settings.rules.quotas[0].client_limit.expect("a share").as_f64();
    assert!((16.0..=40.0).contains(&share), "twice the pages of a person, in whole percent: {share}\n{}", plan.yaml);
}

#[test]
fn people_of_one_network_have_room() {
    let carrier = |number: usize| format!("100.64.0.{number}");
    let mut log = Log::default().with_people(100, &["/", "/item/1", "/item/2"]);
    for number in 0..200 {
        log = log.with(&carrier(number), BROWSER, ["/", "/item/1", "/item/2", "/item/3", "/item/4", "/item/5"]);
    }
    let (plan, _) = planned(&log, &options());
    assert_eq!(plan.promise.refused_beyond_share, 0, "{}", plan.yaml);
}

#[test]
fn lines_that_are_not_read_and_short_logs_are_named() {
    let text = Log::default().with_people(20, &["/"]).text();
    let hour: String = text.lines().filter(|line| line.contains(":00:0")).map(|line| format!("{line}\n")).collect();
    let logs = Logs::from_text("a.log".into(), format!("nonsense\n{hour}").into_bytes());
    let plan = plan(&logs, &options(), &AGENTS, &OPERATORS).expect("the log has requests");
    assert!(plan.yaml.contains("#   not read: 1 of "), "{}", plan.yaml);
    assert!(
        plan.yaml.contains("the limit is a day at the rate of the log, which is shorter (--limit "),
        "{}",
        plan.yaml
    );
}

#[test]
fn log_that_is_not_in_the_order_of_time_is_refused() {
    let log = Log::default().with_people(400, &["/", "/item/1", "/item/2", "/item/3"]);
    let of = |lines: &[&str]| {
        let logs = Logs::from_text("a.log".into(), format!("{}\n", lines.join("\n")).into_bytes());
        plan(&logs, &options(), &AGENTS, &OPERATORS)
    };
    let text = log.text();
    let mut lines: Vec<&str> = text.lines().collect();
    let in_order = of(&lines).expect("in order");
    assert!(!in_order.yaml.contains("late"), "{}", in_order.yaml);
    let early = lines.remove(10);
    lines.insert(1500, early);
    let nearly = of(&lines).expect("nearly in order");
    assert!(nearly.yaml.contains("\n# 1 of the lines are over a minute late"), "{}", nearly.yaml);
    assert_eq!(nearly.limit, in_order.limit);
    lines.sort_unstable_by(|one, other| other.split('[').nth(1).cmp(&one.split('[').nth(1)));
    let error = of(&lines).map(|plan| plan.yaml).expect_err("the newest line is first").to_string();
    assert!(error.contains(" of 1600 lines are over a minute late"), "{error}");
    assert!(error.contains("sort the log by time"), "{error}");
}

#[test]
fn search_engines_that_are_never_proven_are_doubtful() {
    let pages: Vec<String> = (0..40).map(|number| format!("/item/{number}")).collect();
    let crawled_from = |address: &str| {
        Log::default().with_people(20, &["/"]).with(address, GOOGLEBOT, pages.iter().map(String::as_str))
    };
    let doubt = "doubtful: 40 requests claim to be search engines, and none of them has an address of one";
    for (address, is_doubtful) in [("198.51.100.1", true), ("66.249.66.1", false)] {
        let (plan, _) = planned(&crawled_from(address), &options());
        assert_eq!(plan.yaml.contains(doubt), is_doubtful, "{address}: {}", plan.yaml);
        assert!(plan.yaml.contains("#   read as combined; client: first column\n"), "{}", plan.yaml);
    }
}

#[test]
fn origin_is_quoted_where_yaml_needs_it() {
    let log = Log::default().with_people(20, &["/"]);
    let (plan, _) = planned(&log, &PlanOptions { origin: "unix:/tmp/a #b: 'c'".into(), ..options() });
    assert!(plan.yaml.contains("\norigin: 'unix:/tmp/a #b: ''c'''\n"), "{}", plan.yaml);
}

#[test]
fn promise_says_what_people_and_search_engines_get() {
    let pages: Vec<String> = (0..2000).map(|number| format!("/item/{number}")).collect();
    let log = Log::default()
        .with_people(100, &["/", "/item/1", "/item/2"])
        .with("66.249.66.1", GOOGLEBOT, pages.iter().take(300).map(String::as_str))
        .with("198.51.100.1", SCRAPER, pages.iter().map(String::as_str));
    let (plan, _) = planned(&log, &PlanOptions { limit: Some(1000), ..options() });
    let promise = &plan.promise;
    assert_eq!(promise.people_refused, Some(0.0));
    assert!(promise.search_admitted.is_some_and(|share| share > 0.9), "{promise:?}");
    assert!(promise.bots_admitted.is_some_and(|share| share < 0.3), "{promise:?}");
    assert!(promise.spent_without.is_some() && promise.overrun.is_zero(), "{promise:?}");
    assert_eq!(promise.engines[0].0, "googlebot");
    assert!(plan.yaml.contains("#   people: 0.0 % of their pages refused\n"), "{}", plan.yaml);
    assert!(
        plan.yaml.contains("nothing would be left for anyone on 1 of 1 days (parts included), at the earliest from "),
        "{}",
        plan.yaml
    );
}

#[test]
fn model_api_without_logged_costs_gets_usual_ones_and_says_so() {
    let calls = |paths: &[&str]| {
        let lines = (0..240).flat_map(|call| {
            let time = format!("07/Jun/2024:{:02}:{:02}:00 +0000", call / 10, call % 10);
            let line = move |path: &&str| {
                format!("192.0.2.1 - - [{time}] \"POST {path} HTTP/1.1\" 200 5 \"-\" \"OpenAI/Python 1.2\"\n")
            };
            paths.iter().map(line).collect::<Vec<_>>()
        });
        plan_of(&lines.collect::<String>(), &options())
    };
    for (paths, costs, limit) in [
        (&["/v1/chat/completions"][..], "usage.total_tokens", 240_000),
        (&["/v1/responses", "/v1/embeddings"], "[usage.total_tokens, response.usage.total_tokens]", 340_000),
        (&["/v1/messages"], "[usage.input_tokens, usage.output_tokens]", 240_000),
        (
            &["/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"],
            "[usage.prompt_tokens, usage.completion_tokens, usage.input_tokens, usage.output_tokens, \
             response.usage.input_tokens, response.usage.output_tokens]",
            820_000,
        ),
    ] {
        let (plan, settings) = calls(paths);
        let yaml = &plan.yaml;
        assert!(yaml.lines().filter(|line| !line.starts_with('#')).count() <= policy_text::MAX_LINES, "{yaml}");
        let window = "window: { calendar: day, zone: UTC }";
        let quota = format!("\n  tokens: {{ limit: {limit}, {window}, cost_json: {costs} }}\n");
        assert!(yaml.contains(&quota), "{quota}{yaml}");
        assert!(
            yaml.contains("# Assumed: the log says of no call what it has cost, so that the limit comes from"),
            "{yaml}"
        );
        assert!(yaml.contains("\nclasses: []\n") && !yaml.contains("api_key") && !yaml.contains("promise:"), "{yaml}");
        assert_eq!(plan.promise.calls.as_ref().and_then(|calls| calls.refused), Some(0.0), "{yaml}");
        let mut routes: Vec<&str> = settings.rules.routes.iter().map(|route| route.name.as_str()).collect();
        routes.retain(|name| paths.contains(name));
        assert_eq!(routes.len(), paths.len(), "{yaml}");
    }
    let (plan, _) = calls(&["/v1/chat/completions", "/", "/about", "/v1/messages"]);
    assert!(plan.yaml.contains("{ pages: { limit: "), "calls are not nearly all requests: {}", plan.yaml);
    let (plan, _) = calls(&["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/embeddings", "/"]);
    assert!(plan.yaml.contains("{ pages: { limit: "), "who sends four calls for each page plans none: {}", plan.yaml);
}

#[test]
fn names_of_classes_stay_texts_in_yaml() {
    for (name, expected) in
        [("pro", "pro"), ("pro.eu", "pro.eu"), ("1", "\"1\""), ("null", "\"null\""), ("-a", "\"-a\"")]
    {
        assert_eq!(as_yaml(name), expected);
    }
}

/// Requests in the order of time, spread over a day.
#[derive(Default)]
struct Log(Vec<(String, &'static str, Vec<String>)>);

impl Log {
    /// Adds requests of one client, evenly over the day.
    fn with<'a>(mut self, client: &str, agent: &'static str, targets: impl IntoIterator<Item = &'a str>) -> Self {
        self.0.push((client.to_owned(), agent, targets.into_iter().map(str::to_owned).collect()));
        self
    }

    /// Adds people who each request these targets.
    fn with_people(mut self, count: usize, targets: &[&str]) -> Self {
        for number in 0..count {
            self = self.with(&format!("203.{}.{}.1", number % 200, number / 200), BROWSER, targets.iter().copied());
        }
        self
    }

    fn text(&self) -> String {
        let mut lines: Vec<(u64, String)> = Vec::new();
        for (index, (client, agent, targets)) in self.0.iter().enumerate() {
            let step = 86_000 / targets.len().max(1) as u64;
            for (number, target) in targets.iter().enumerate() {
                let second = (number as u64 * step + index as u64 * 7) % 86_000;
                let (hour, minute, second_of_minute) = (second / 3600, second / 60 % 60, second % 60);
                let time = format!("07/Jun/2024:{hour:02}:{minute:02}:{second_of_minute:02} +0000");
                lines.push((
                    second,
                    format!("{client} - - [{time}] \"GET {target} HTTP/1.1\" 200 5 \"-\" \"{agent}\"\n"),
                ));
            }
        }
        lines.sort();
        lines.into_iter().map(|(_, line)| line).collect()
    }
}

fn options() -> PlanOptions {
    PlanOptions { origin: "http://127.0.0.1:3000".into(), limit: None, zone: None }
}

/// Returns the plan for the log, and its settings.
fn planned(log: &Log, options: &PlanOptions) -> (Plan, Settings) {
    plan_of(&log.text(), options)
}

fn plan_of(log: &str, options: &PlanOptions) -> (Plan, Settings) {
    let logs = Logs::from_text("a.log".into(), log.as_bytes().to_vec());
    let plan = plan(&logs, options, &AGENTS, &OPERATORS).expect("the log has requests");
    let names: Vec<&str> = OPERATORS.names().collect();
    let settings = config::load(Path::new("plan.yaml"), &plan.yaml, &[], &[], &names);
    let settings = settings.unwrap_or_else(|errors| panic!("{errors}\n{}", plan.yaml));
    (plan, settings)
}

#[test]
fn promise_of_the_file_is_rounded_towards_the_lenient_side() {
    let log = Log::default().with_people(20, &["/", "/item/1"]);
    let (plan, settings) = planned(&log, &options());
    assert_eq!(settings.promise, plan.promise.rounded());
    assert!(plan.yaml.contains("\npromise: { people_refused: 0.1% }\n"), "{}", plan.yaml);
    let shares = |people_refused: f64, search: f64, left_over: f64| {
        let mut promise = plan.promise.clone();
        (promise.people_refused, promise.search_worst_hour, promise.left_over) =
            (Some(people_refused), Some(search), Some(left_over));
        let rounded = promise.rounded();
        assert_eq!(rounded.missed(&promise.figures()), [], "what was measured keeps it");
        [rounded.people_refused, rounded.search_served, rounded.left_over].map(|share| share.map(|it| it.to_string()))
    };
    let written = |figures: [&str; 3]| figures.map(|share| Some(share.to_owned()));
    assert_eq!(shares(0.0, 0.882, 0.007), written(["0.1%", "88%", "1%"]));
    assert_eq!(shares(0.0011, 1.0, 0.0101), written(["0.2%", "98%", "2%"]));
    assert_eq!(shares(1.0, 0.0, 1.0), written(["100%", "0%", "100%"]));
}
