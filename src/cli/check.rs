//! `tidegate check`: is the file right, and what does it say in words?

use crate::config::settings::{AccessLog, CrawlerOperator, KnownBy, Ledger, Redis, Robots, Verify, WhenLost};
use crate::config::{self, Settings};
use crate::lists::Files;
use crate::policy::bucket::Bucket;
use crate::policy::class::{Class, KnownKeys, When};
use crate::policy::cost::Cost;
use crate::policy::crawl_delay::{self, CrawlDelay};
use crate::policy::guard::Guard;
use crate::policy::identity::Carrier;
use crate::policy::lists::{ListId, Listed};
use crate::policy::quota::{ClassLadder, Exhausted, Quota, SyncFrom};
use crate::policy::route::Route;
use crate::policy::throttle::course::Controller;
use crate::policy::throttle::gradient::Gradient;
use crate::policy::throttle::rampup::{Lever, Rampup};
use crate::policy::throttle::value::{ByValue, ValueFrom};
use crate::policy::throttle::{Queue, Scope};
use crate::policy::window::Window;
use crate::policy::{Kind, OperatorId, Rules, Units};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// Reads the file and sums it up, or says all that is wrong with it.
pub fn check(file: &Path, environment: &[(String, String)], operators: &[&str]) -> Result<String, String> {
    let settings = config::read(file, environment, &[], operators).map_err(|mistakes| mistakes.to_string())?;
    Files::read(&settings.list_files()).map_err(|mistakes| mistakes.to_string())?;
    Ok(summary(&settings))
}

/// The settings in words: listeners, quotas, classes in order, scopes, routes with their costs, and notes.
pub fn summary(settings: &Settings) -> String {
    let (rules, operators) = (&settings.rules, &settings.operator_names);
    let mut text = String::new();
    let mut line = |written: String| writeln!(text, "{written}").unwrap_or(());

    let listen: Vec<String> = settings.listen.iter().map(ToString::to_string).collect();
    line(format!("listens on {}, forwards to {}", listen.join(", "), settings.origin.authority));
    if let Some(admin) = &settings.admin {
        line(format!("operators: {}{}", admin.listen, if admin.token.is_some() { ", with a token" } else { "" }));
    }
    line(match &settings.log.access {
        AccessLog::Off => "access log: off".into(),
        AccessLog::Stdout => "access log: standard output".into(),
        AccessLog::File { path } => format!("access log: {}", path.display()),
    });

    line(match &settings.ledger {
        Ledger::File => format!("ledger: in {}", settings.state_dir.display()),
        Ledger::Memory => "ledger: in memory, a restart begins anew".into(),
        Ledger::Redis(redis) => shared(redis),
    });

    line(format!("crawlers: {}", verify(&settings.verify)));
    if !settings.operators.is_empty() {
        line(format!("\noperators of crawlers, added or changed: {}", settings.operators.len()));
        settings.operators.iter().for_each(|written| line(format!("  {}", operator(written))));
    }

    line(format!("\nquotas: {}", rules.quotas.len()));
    for quota in &rules.quotas {
        line(format!("  {}: {} units, {}{}", quota.name, quota.limit, window(&quota.window), shadow(quota.enforce)));
        told_by_origin(quota).into_iter().for_each(|told| line(format!("    {told}")));
        for (class, ladder) in rules.classes.iter().zip(&quota.ladders) {
            if let Some(ladder) = ladder {
                line(format!("    {}: {}", class.name, tiers(quota, ladder)));
            }
        }
    }

    line(format!("\nclasses, the first that fits: {}", rules.classes.len()));
    rules.classes.iter().for_each(|written| line(format!("  {}", class(written, operators, &rules.lists))));

    let throttled: Vec<String> = rules.scopes.iter().filter_map(scope).collect();
    if !throttled.is_empty() {
        line(format!("\nscopes that are throttled: {} of {}", throttled.len(), rules.scopes.len()));
        throttled.into_iter().for_each(|told| line(format!("  {told}")));
    }

    line(format!("\nroutes, the first that fits: {}", rules.routes.len()));
    rules.routes.iter().for_each(|written| line(format!("  {}", route(written, rules))));

    robots(settings, operators).into_iter().for_each(&mut line);

    if !settings.notes.is_empty() {
        line("\nnotes:".into());
        settings.notes.iter().for_each(|note| line(format!("  {note}")));
    }
    text
}

/// What robots.txt asks of whom, while nobody knows what people use of a budget.
fn robots(settings: &Settings, operators: &[String]) -> Vec<String> {
    let Robots { delays, file, trap, .. } = &settings.robots;
    let text = file.as_ref().map_or_else(|| "the origin's".into(), |file| file.display().to_string());
    let mut lines = vec![format!("\nrobots.txt: {text}")];
    let name = |id: &OperatorId| operators.get(usize::from(id.0)).map_or("?", String::as_str);
    let mut asks = |whom: &str, delay: &CrawlDelay| {
        lines.push(match delay {
            CrawlDelay::Seconds(seconds) => format!("  asks {whom} for {seconds}s between two requests"),
            CrawlDelay::Auto(class) => {
                let budgets = crawl_delay::budgets(&settings.rules, *class, |_| Units::ZERO);
                match budgets.map(|budget| budget.affords()).max() {
                    Some(seconds) => format!("  asks {whom} for what the budget affords, at first {seconds}s"),
                    None => format!("  asks {whom} for nothing: auto follows a quota, and no route has a cost"),
                }
            }
        });
    };
    delays.of_operators.iter().for_each(|(operator, delay)| asks(name(operator), delay));
    delays.of_everybody.iter().for_each(|delay| asks("unknown bots", delay));
    lines.extend(trap.iter().map(|path| format!("  forbids {path}, which nothing links to")));
    lines
}

fn shared(redis: &Redis) -> String {
    let lost = match redis.when_lost {
        WhenLost::Refuse => "refuses",
        WhenLost::Share => "spends its share",
    };
    let host = if redis.host.contains(':') { format!("[{}]", redis.host) } else { redis.host.clone() };
    format!("ledger: shared in redis at {host}:{} as {}; a gate that is cut off {lost}", redis.port, redis.prefix)
}

fn verify(verify: &Verify) -> String {
    let lists = match verify.refresh {
        Some(every) => format!("lists fetched anew every {}", duration(every)),
        None => "no list is fetched".into(),
    };
    let dns = match &verify.dns {
        None => "DNS is not asked".into(),
        Some(dns) if dns.nameservers.is_empty() => "DNS is asked of the system's name servers".into(),
        Some(dns) => {
            let servers: Vec<String> = dns.nameservers.iter().map(ToString::to_string).collect();
            format!("DNS is asked of {}", servers.join(", "))
        }
    };
    format!("{lists}; {dns}")
}

fn operator(operator: &CrawlerOperator) -> String {
    let mut told = Vec::new();
    let mut tell = |what: &str, list: Option<Vec<String>>| {
        if let Some(list) = list {
            told.push(format!("{what} {}", if list.is_empty() { "none".into() } else { list.join(", ") }));
        }
    };
    tell("says", operator.tokens.clone());
    tell("comes from", operator.ranges.clone());
    tell("is called", operator.names.as_ref().map(|names| names.iter().map(ToString::to_string).collect()));
    let means = |known: &KnownBy| match known {
        KnownBy::Addresses => "addresses".to_owned(),
        KnownBy::Names => "names".to_owned(),
    };
    tell("always known by", operator.complete.as_ref().map(|complete| complete.iter().map(means).collect()));
    format!("{}: {}", operator.name, if told.is_empty() { "as built in".into() } else { told.join("; ") })
}

fn shadow(enforce: bool) -> &'static str {
    if enforce { "" } else { " (counted, not enforced)" }
}

fn window(window: &Window) -> String {
    match window {
        Window::Fixed { length } => format!("every {}", duration(*length)),
        Window::Calendar(calendar) => format!("each {calendar:?}"),
        Window::FirstUse { length } => format!("for {} from the first use on", duration(*length)),
        Window::Sliding { length, .. } => format!("in any span of {}", duration(*length)),
    }
}

/// What the origin's own answers say of a quota.
fn told_by_origin(quota: &Quota) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(header) = &quota.cost_header {
        told.push(format!("costs what the origin says in {header}"));
    }
    if quota.free_when_cached {
        told.push("costs nothing where the origin had it cached".into());
    }
    let Some(SyncFrom { remaining_header, reset_header, exhausted }) = &quota.sync_from else { return told };
    if let Some(header) = remaining_header {
        let renewal = reset_header.as_ref().map_or_else(String::new, |header| format!(", renewed when {header} says"));
        told.push(format!("never more than the origin says is left in {header}{renewal}"));
    }
    if let Some(Exhausted { statuses, says }) = exhausted {
        let statuses: Vec<String> = statuses.iter().map(ToString::to_string).collect();
        let says = says.as_ref().map_or_else(String::new, |text| format!(" with {text:?}"));
        told.push(format!("closed by an answer of {}{says}", statuses.join(" or ")));
    }
    told
}

fn tiers(quota: &Quota, of_class: &ClassLadder) -> String {
    let step = |tier: &crate::policy::tier::Tier| {
        let share = tier.above.as_f64() / quota.limit.as_f64() * 100.0;
        format!("from {} ({share:.0}%) sheds {}%", tier.above, tier.shed.ratio() * 100.0)
    };
    let steps: Vec<String> = of_class.ladder.tiers().iter().map(step).collect();
    format!("{}{}", steps.join(", "), shadow(of_class.enforce))
}

fn guard(guard: &Guard) -> String {
    format!(
        "guarded: one let through each {}, no page refused for over {}, with up to {}%",
        duration(guard.trickle),
        duration(guard.max_refused_for),
        guard.up_to.ratio() * 100.0
    )
}

fn class(class: &Class, operators: &[String], lists: &[String]) -> String {
    let bucket = class.bucket.as_ref().map_or_else(String::new, |written| format!("; {}", bucket(written)));
    let blocked = if class.blocked { "; blocked" } else { "" };
    let guard = class.guard.as_ref().map_or_else(String::new, |written| format!("; {}", guard(written)));
    format!("{}: {}{bucket}{guard}{blocked}{}", class.name, when(&class.when, operators, lists), shadow(class.enforce))
}

fn when(when: &When, operators: &[String], lists: &[String]) -> String {
    let mut conditions = Vec::new();
    if !when.kinds.is_empty() {
        conditions.push(when.kinds.iter().map(|kind| Kind::name(*kind)).collect::<Vec<_>>().join(" or "));
    }
    if !when.operators.is_empty() {
        let name = |id: &crate::policy::OperatorId| operators.get(usize::from(id.0)).map_or("?", String::as_str);
        conditions.push(when.operators.iter().map(name).collect::<Vec<_>>().join(" or "));
    }
    if !when.user_agents.is_empty() {
        conditions.push(format!("user agent with {:?}", when.user_agents.join(" or ")));
    }
    let on = |list: &ListId| when.lists.first_in_common(Listed::on([*list])).is_some();
    let named: Vec<&str> =
        (0..).map(ListId).zip(lists).filter(|(id, _)| on(id)).map(|(_, name)| name.as_str()).collect();
    if !named.is_empty() {
        conditions.push(format!("on the list {}", named.join(" or ")));
    }
    match when.addresses.len() {
        0 => {}
        1 => conditions.push("from one address range".into()),
        count => conditions.push(format!("from {count} address ranges")),
    }
    if let Some(KnownKeys { carrier, values }) = &when.keys {
        let place = match carrier {
            Carrier::Header(name) => format!("the header {name}"),
            Carrier::Cookie(name) => format!("the cookie {name}"),
        };
        conditions.push(match values.len() {
            1 => format!("with the known key in {place}"),
            count => format!("with one of {count} known keys in {place}"),
        });
    }
    if conditions.is_empty() { "everybody else".into() } else { conditions.join(", ") }
}

/// How hard a scope may be pressed, if it is throttled.
fn scope(scope: &Scope) -> Option<String> {
    let throttle = scope.throttle.as_ref()?;
    let mut rules = Vec::new();
    if let Some(ByValue { from, most }) = &scope.by_value {
        rules.push(format!("one for each {}, {most} at most", value(from)));
    }
    match (&throttle.controller, throttle.concurrency) {
        (Some(Controller::Gradient(Gradient { floor, ceiling })), _) => {
            rules.push(format!("{floor} to {ceiling} at once, by latency"));
        }
        (Some(Controller::Rampup(Rampup { lever: Lever::Concurrency { start, most }, .. })), _) => {
            rules.push(format!("1 to {most} at once, by complaints, beginning with {start}"));
        }
        (_, Some(most)) => rules.push(format!("{most} at once at most")),
        (_, None) => {}
    }
    match (&throttle.controller, throttle.spacing.delay) {
        (Some(Controller::Autothrottle(auto)), least) => {
            rules.push(format!("{} to {} apart, by latency", duration(least), duration(auto.max_delay)));
        }
        (Some(Controller::Rampup(Rampup { lever: Lever::Delay { start, least, most }, .. })), _) => {
            let (start, least, most) = (duration(*start), duration(*least), duration(*most));
            rules.push(format!("{least} to {most} apart, by complaints, beginning with {start}"));
        }
        (_, Duration::ZERO) => {}
        (_, delay) => rules.push(format!("{} apart", duration(delay))),
    }
    if !throttle.spacing.per_slot.is_zero() {
        rules.push(format!("{} apart in each slot", duration(throttle.spacing.per_slot)));
    }
    if let Some(backoff) = &throttle.backoff {
        let (first, longest) = (duration(backoff.min_delay), duration(backoff.max_delay));
        rules.push(format!("rests {first} to {longest} after a complaint"));
    }
    let waits = match throttle.queue {
        Queue { max_wait: Duration::ZERO, .. } => "nobody waits".into(),
        Queue { max_wait, max_length } => format!("{max_length} may wait for {}", duration(max_wait)),
    };
    Some(format!("{}: {}; {waits}", scope.name, rules.join(", ")))
}

fn value(from: &ValueFrom) -> String {
    match from {
        ValueFrom::Query(name) => format!("value of ?{name}="),
        ValueFrom::Header(name) => format!("value of {name}:"),
        ValueFrom::Host => "host".into(),
        ValueFrom::Path(number) => format!("segment {number} of the path"),
        ValueFrom::Route => "route".into(),
    }
}

fn bucket(bucket: &Bucket) -> String {
    let Bucket { capacity, fill, interval, smooth } = bucket;
    let how = if *smooth { "one by one" } else { "at once" };
    format!("each client {capacity} at most, {fill} more every {} {how}", duration(*interval))
}

fn route(route: &Route, rules: &Rules) -> String {
    let mut narrowed: Vec<String> = route.methods.iter().map(ToString::to_string).collect();
    narrowed.extend(route.hosts.iter().cloned());
    narrowed.extend(route.query.iter().map(|(name, value)| match value {
        Some(value) => format!("?{name}={value}"),
        None => format!("?{name}"),
    }));
    let narrowed = if narrowed.is_empty() { String::new() } else { format!(" [{}]", narrowed.join(" ")) };
    let cost = |(quota, cost): &(crate::policy::QuotaId, Cost)| {
        let name = rules.quotas.get(usize::from(quota.0)).map_or("?", |quota| quota.name.as_str());
        match cost {
            Cost::Known(units) => format!("{units} of {name}"),
            Cost::Learned => format!("what it is learned to cost of {name}"),
        }
    };
    let costs: Vec<String> = route.costs.iter().map(cost).collect();
    let costs = if costs.is_empty() { "free".into() } else { costs.join(", ") };
    format!("{}{narrowed}: {costs}", route.name)
}

fn duration(span: Duration) -> String {
    let milliseconds = span.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    let whole = units.iter().find(|(unit, _)| milliseconds >= *unit && milliseconds.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{milliseconds}ms"), |(unit, name)| format!("{}{name}", milliseconds / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATORS: [&str; 3] = ["googlebot", "bingbot", "applebot"];

    #[test]
    fn it_says_in_words_what_our_example_means() {
        let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/config/tidegate.yaml"));
        let told = check(file, &[], &OPERATORS).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        for line in [
            "listens on 127.0.0.1:8080, forwards to 127.0.0.1:3000",
            "ledger: in ./state",
            "crawlers: lists fetched anew every 1d; DNS is asked of the system's name servers",
            "  places_api: 10000 units, each day of America/Los_Angeles, from 00:00",
            "    search: from 6000 (60%) sheds 50%, from 8000 (80%) sheds 75%, from 9500 (95%) sheds 100%",
            "  search: googlebot or bingbot or applebot; guarded: one let through each 5m, no page refused for over 1d, with up to 2%",
            "  bot: verified_bot or declared_bot or suspected_bot; each client 60 at most, 10 more every 10s at once",
            "  other: everybody else",
            "  default: 64 at once at most, rests 1s to 5m after a complaint; 256 may wait for 2s",
            "  search_backend: 4 at once at most, 100ms to 5s apart, by latency; 256 may wait for 2s",
            "  /search: 4 of places_api",
            "  /**: free",
            "robots.txt: the origin's",
            "  asks bingbot for 30s between two requests",
        ] {
            assert!(told.lines().any(|told| told == line), "no line {line:?} in\n{told}");
        }
    }

    #[test]
    fn it_says_what_the_origin_s_answers_change() {
        let yaml = "origin: { url: 'http://a' }\nquotas:\n  api:\n    limit: 1\n    window: { fixed: 30s }\n    cost_header: X-Cost\n    sync_from:\n      \
            remaining_header: X-Left\n      reset_header: X-Reset\n      exhausted: { statuses: [429, 403], body_or_header: spent }";
        let settings = config::load(Path::new("a.yaml"), yaml, &[], &[], &OPERATORS).expect("all is well");
        let told = summary(&settings);
        let lines = "  api: 1 units, every 30s\n    costs what the origin says in x-cost\n    \
            never more than the origin says is left in x-left, renewed when x-reset says\n    \
            closed by an answer of 429 or 403 with \"spent\"\n";
        assert!(told.contains(lines), "{told}");
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
    fn known_keys_are_counted() {
        for (values, words) in [
            ("a-key-that-is-long", "with the known key in the header x-api-key"),
            ("[a-key-that-is-long, another-that-is-long]", "with one of 2 known keys in the header x-api-key"),
        ] {
            let yaml = format!(
                "origin: {{ url: 'http://a' }}\nclasses: [{{ name: a, when: {{ key: {{ header: X-Api-Key, value: {values} }} }} }}]"
            );
            let settings = config::load(Path::new("a.yaml"), &yaml, &[], &[], &OPERATORS).expect("all is well");
            assert_eq!(when(&settings.rules.classes[0].when, &[], &[]), words);
        }
    }

    #[test]
    fn operators_of_the_file_are_told() {
        let text = "origin: { url: http://o }\nverify: { dns: { nameservers: 127.0.0.1:53 }, refresh: off }\noperators:\n  \
                    acme: { tokens: AcmeBot, ranges: 192.0.2.0/24, names: acme.example, complete: [addresses, names] }\n  \
                    googlebot: { complete: [] }";
        let settings = config::load(Path::new("gate.yaml"), text, &[], &[], &OPERATORS);
        let told = summary(&settings.unwrap_or_else(|mistakes| panic!("{mistakes}")));
        for line in [
            "crawlers: no list is fetched; DNS is asked of 127.0.0.1:53",
            "operators of crawlers, added or changed: 2",
            "  acme: says AcmeBot; comes from 192.0.2.0/24; is called acme.example; always known by addresses, names",
            "  googlebot: always known by none",
        ] {
            assert!(told.lines().any(|told| told == line), "no line {line:?} in\n{told}");
        }
    }

    #[test]
    fn every_window_has_its_words() {
        let told = |window: &Window| super::window(window);
        let day = Duration::from_secs(86_400);
        assert_eq!(told(&Window::Fixed { length: day }), "every 1d");
        assert_eq!(told(&Window::FirstUse { length: day }), "for 1d from the first use on");
        assert_eq!(told(&Window::Sliding { length: day, parts: 60 }), "in any span of 1d");
    }

    #[test]
    fn a_file_that_is_not_there_is_a_mistake() {
        let told = check(Path::new("no/such.yaml"), &[], &OPERATORS);
        assert!(told.as_ref().is_err_and(|told| told.starts_with("no/such.yaml:1:1: cannot be read: ")), "{told:?}");
    }
}
