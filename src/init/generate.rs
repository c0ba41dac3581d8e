//! The YAML that follows from a log, with a comment for every value.

use super::analysis::{InitError, LogAnalysis};
use super::bots::{Bots, OperatorTraffic, SEARCH_ENGINES};
use super::dry_run::DailyDemand;
use super::logs::Logs;
use super::request_rate::RequestRate;
use super::routes::{Route, Routes};
use super::self_requests::{CRON, WORDPRESS};
use crate::terminal::group_digits;
use crate::user_agents::UserAgentMatcher;
use crate::verify::OperatorTable;
use std::fmt::Write as _;
use std::mem::take;
use std::sync::Arc;

/// The whole file.
pub fn generate_config(
    logs: &Logs,
    agents: &Arc<UserAgentMatcher>,
    operators: &Arc<OperatorTable>,
) -> Result<String, InitError> {
    let mut findings = LogAnalysis::of(logs, agents, operators)?;
    let tree = take(&mut findings.tree);
    let routes = Routes::of(tree, findings.requests.pages, findings.asset_extensions());
    let draft = findings.yaml(logs, &routes, &DailyDemand::unknown());
    let demand = DailyDemand::replay(&draft, logs, &findings)?;
    Ok(findings.yaml(logs, &routes, &demand))
}

/// What follows from what a day needs.
struct QuotaFigures {
    limit: u64,
    /// From these shares of the limit on, in percent, search engines are refused half, three quarters and all.
    marks: [u64; 3],
}

impl QuotaFigures {
    fn of(demand: &DailyDemand) -> Self {
        let limit = rounded_up(demand.busiest);
        // What people take is put aside, and no less than the last tenth.
        let last =
            100_u64.saturating_sub((demand.people * 100).div_ceil(limit)).clamp(MIN_BOT_PERCENT, MAX_BOT_PERCENT);
        Self { limit, marks: [last * 6 / 10, last * 8 / 10, last] }
    }
}

impl LogAnalysis<'_> {
    fn yaml(&self, logs: &Logs, routes: &Routes, demand: &DailyDemand) -> String {
        let mut out = String::new();
        self.write_header(&mut out, &logs.names());
        out.push_str(GATE);
        let has_libraries = self.classes(&mut out);
        self.quota(&mut out, demand, has_libraries);
        write_routes(&mut out, routes, self.requests.pages, self.requests.assets);
        out
    }

    /// How the names of assets end, most frequent first.
    fn asset_extensions(&self) -> Vec<String> {
        let mut endings: Vec<(&String, &u64)> = self.extensions.iter().collect();
        endings.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        endings.into_iter().map(|(ending, _)| ending.clone()).collect()
    }

    fn write_header(&self, out: &mut String, names: &[String]) {
        let plain = |name: &String| name.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect();
        let names: Vec<String> = names.iter().map(plain).collect();
        let requests = &self.requests;
        let [from, to] = self.days.span().unwrap_or_default();
        let rest = requests.all - requests.pages - requests.assets - requests.robots;
        write_comment(out, 0, &format!("A first policy, proposed by `tidegate init` from {}.", names.join(", ")));
        let broken = match requests.broken {
            0 => String::new(),
            1 => " One line could not be read.".to_owned(),
            lines => format!(" {} lines could not be read.", group_digits(lines)),
        };
        write_comment(out, 0, &format!("{} requests from {from} to {to}.{broken}", group_digits(requests.all)));
        let told = format!(
            "Of these, {} were for pages, {} for assets, {} for robots.txt; {} led nowhere, to an icon or elsewhere.",
            group_digits(requests.pages),
            group_digits(requests.assets),
            group_digits(requests.robots),
            group_digits(rest)
        );
        write_comment(out, 0, &told);
        if !self.has_user_agents {
            write_comment(
                out,
                0,
                "No line says which program asked, so bots could not be told from people: all count as people.",
            );
        }
        write_comment(
            out,
            0,
            "Look at what says CHANGE; `tidegate check` says what the file means, `tidegate replay` what it would do.",
        );
    }

    /// Returns whether there is a class of libraries.
    fn classes(&self, out: &mut String) -> bool {
        let bots = &self.bots;
        out.push_str("\nclasses:                         # the first that fits\n");
        self.write_site(out);
        self.crawlers(out, "search", true);
        self.crawlers(out, "crawler", false);
        let impostors = summarize(&bots.impostors(self.operators));
        write_comment(
            out,
            2,
            &match impostors.is_empty() {
                true => "Nobody in the log claims to be a crawler that its address contradicts.".to_owned(),
                false => format!("Their addresses contradict them: {impostors}."),
            },
        );
        out.push_str("  - { name: impostor, when: { kind: impostor }, priority: 0 }\n");
        let libraries = bots.others(self.agents, true);
        if !libraries.is_empty() {
            write_comment(
                out,
                2,
                &format!("Programs without a name of their own: {}.", summarize(&requests(&libraries))),
            );
            let names: Vec<String> = libraries.iter().map(|(name, _)| format!("\"{name}\"")).collect();
            let when = format!("{{ kind: declared_bot, user_agent: [{}] }}", names.join(", "));
            writeln!(out, "  - name: library\n    when: {when}\n    priority: 0").unwrap_or(());
        }
        self.write_other_bots(out);
        write_comment(
            out,
            2,
            &format!(
                "{} requests of the log name no bot; those that hide are found by what they do.",
                group_digits(bots.people.requests)
            ),
        );
        let person = format!("name: {PEOPLE}, when: {{ kind: human }}, priority: 3, bucket: {{ {BUCKET} }}");
        writeln!(out, "  - {{ {person} }}   # one address cannot spend the day").unwrap_or(());
        !libraries.is_empty()
    }

    /// A class of crawlers that can be proven, if any came. Search engines are welcome before they have come.
    fn crawlers(&self, out: &mut String, name: &str, search: bool) {
        let found = self.bots.crawlers(self.operators, search);
        let operators: Vec<&str> = match (found.is_empty(), search) {
            (true, true) => SEARCH_ENGINES[..2].to_vec(),
            (true, false) => return,
            (false, _) => found.iter().map(|(name, _)| *name).collect(),
        };
        match found.is_empty() {
            true => {
                write_comment(out, 2, "No search engine in the log; these two come to every site that is linked to.")
            }
            false => found.iter().for_each(|(name, crawler)| write_comment(out, 2, &crawler_comment(name, crawler))),
        }
        let when =
            format!("when: {{ operator: [{}] }}       # never on the user agent's word alone", operators.join(", "));
        writeln!(out, "  - name: {name}\n    {when}\n    priority: {}", if search { 2 } else { 1 }).unwrap_or(());
        let delays: Vec<String> = found
            .iter()
            .filter(|(name, _)| !IGNORE_CRAWL_DELAY.contains(name))
            .filter_map(|(name, crawler)| Some(format!("{name}: {}s", delay(crawler.genuine())?)))
            .collect();
        if !delays.is_empty() {
            let why = "# in robots.txt: its busiest day, spread evenly";
            writeln!(out, "    crawl_delay: {{ {} }}   {why}", delays.join(", ")).unwrap_or(());
        }
    }

    fn write_other_bots(&self, out: &mut String) {
        let Bots { unnamed, .. } = &self.bots;
        let others = self.bots.others(self.agents, false);
        let mut named = requests(&others);
        if unnamed.requests > 0 {
            named.push(("bots that nobody has listed", unnamed.requests));
        }
        write_comment(
            out,
            2,
            &match named.is_empty() {
                true => "No other bot in the log.".to_owned(),
                false => format!("By their own word alone: {}.", summarize(&named)),
            },
        );
        out.push_str(
            "  - name: bot\n    when: { kind: [verified_bot, declared_bot, suspected_bot] }\n    priority: 1\n",
        );
        let fastest = others.iter().max_by_key(|(_, tally)| tally.busiest_hour.most);
        if let Some((name, tally)) = fastest
            && let Some(delay) = delay(tally)
        {
            let most = group_digits(tally.busiest_hour.most);
            writeln!(out, "    crawl_delay: {delay}s            # in robots.txt: {name} came {most} times in an hour")
                .unwrap_or(());
        }
    }

    /// A class of what the site asks of itself, if it does.
    fn write_site(&self, out: &mut String) {
        let Some((address, calls)) = self.self_requests.busiest() else { return };
        let calls = group_digits(calls);
        let told = format!(
            "CHANGE: is this the site's own server? {calls} requests for {CRON} came from it in the name of {WORDPRESS}: what \
             is due is run by them."
        );
        write_comment(out, 2, &told);
        let when = format!("{{ address: \"{address}\", user_agent: \"{WORDPRESS}\" }}");
        writeln!(out, "  - {{ name: site, when: {when}, priority: 3 }}").unwrap_or(());
    }

    fn quota(&self, out: &mut String, demand: &DailyDemand, has_libraries: bool) {
        let QuotaFigures { limit, marks: [half, most, all] } = QuotaFigures::of(demand);
        let zone = self.days.zone();
        writeln!(out, "\nquotas:\n  {QUOTA}:                         # one unit is one page").unwrap_or(());
        write_comment(
            out,
            4,
            "CHANGE: what you have bought for a day. Until then what these routes would have charged, rounded up:",
        );
        write_comment(out, 4, &format!("{}.", demand.reckoned));
        writeln!(out, "    limit: {limit}").unwrap_or(());
        out.push_str("    enforce: false               # CHANGE: remove this line once the rest is right; until then refusals are only counted\n");
        write_comment(out, 4, &format!("CHANGE: when your allowance is renewed; {}.", zone.remark));
        writeln!(out, "    window: {{ calendar: day, zone: {}, at: \"00:00\" }}", zone.name).unwrap_or(());
        out.push_str("    # pacing: learned            # spreads what bots get over the day; the tiers below stay as guard rails\n");
        write_comment(
            out,
            4,
            &format!(
                "From so much used on, refuse such a share. People have no tiers: they are refused only when nothing is left. \
                 On the busiest day of the log, people, as far as they can be told from bots, asked for {} pages.",
                group_digits(demand.people)
            ),
        );
        out.push_str("    tiers:\n");
        let ladder = format!(
            "[{{ above: {half}%, shed: 50% }}, {{ above: {most}%, shed: 75% }}, {{ above: {all}%, shed: 100% }}]"
        );
        let lower = format!("[{{ above: {}%, shed: 50% }}, {{ above: {half}%, shed: 100% }}]", half / 2);
        writeln!(out, "      search: {ladder}").unwrap_or(());
        if !self.bots.crawlers(self.operators, false).is_empty() {
            writeln!(out, "      crawler: {lower}").unwrap_or(());
        }
        writeln!(out, "      bot: {lower}").unwrap_or(());
        if has_libraries {
            out.push_str("      library: [{ above: 0%, shed: 100% }]    # what costs nothing they still get\n");
        }
        out.push_str("      impostor: [{ above: 0%, shed: 100% }]\n");
    }
}

fn write_routes(out: &mut String, routes: &Routes, pages: u64, assets: u64) {
    out.push_str("\nroutes:                          # the first that fits\n");
    write_comment(out, 2, "CHANGE: what each really costs; nothing for those that spend none of the allowance.");
    for ending in &routes.assets {
        writeln!(out, "  - {{ match: \"/**/*.{ending}\" }}").unwrap_or(());
    }
    let mut covered = 0;
    for Route { pattern, parameter, visits } in &routes.pages {
        let query = parameter.map_or_else(String::new, |parameter| format!(", query: [{parameter}]"));
        covered += visits.all;
        let share = visits.all as f64 * 100.0 / pages as f64;
        let people = visits.people * 100 / visits.all.max(1);
        let all = group_digits(visits.all);
        let told = format!("{share:.1}% of the pages asked for ({all}); {people}% of these name no bot");
        writeln!(out, "  - {{ match: \"{pattern}\"{query}, cost: {{ {QUOTA}: 1 }} }}   # {told}").unwrap_or(());
    }
    let rest = pages.saturating_sub(covered);
    let told = format!("{} for seldom pages, {} for assets", group_digits(rest), group_digits(assets));
    writeln!(out, "  - {{ match: \"/**\" }}             # free, hence open to all: {told}").unwrap_or(());
}

/// A comment, broken between words.
fn write_comment(out: &mut String, indent: usize, text: &str) {
    let margin = " ".repeat(indent);
    let wrapped = crate::terminal::wrap(text, indent + 2, 0, WIDTH - indent - 2);
    wrapped.lines().for_each(|line| writeln!(out, "{margin}# {line}").unwrap_or(()));
}

fn crawler_comment(name: &str, crawler: &OperatorTraffic) -> String {
    let OperatorTraffic { verified: proven, unverified: open, mismatched: contradicted } = crawler;
    let mut told = format!("{name}: {} requests proven by address", group_digits(proven.requests));
    if open.requests > 0 {
        told += &format!(", {} left open (the gate asks DNS, where that can tell)", group_digits(open.requests));
    }
    if contradicted.requests > 0 {
        told += &format!(", {} of others in its name", group_digits(contradicted.requests));
    }
    let tally = crawler.genuine();
    told + &format!(
        "; up to {} in an hour, {} in a day.",
        group_digits(tally.busiest_hour.most),
        group_digits(tally.busiest_day.most)
    )
}

fn requests<'a>(bots: &[(&'a str, &RequestRate)]) -> Vec<(&'a str, u64)> {
    bots.iter().map(|(name, tally)| (*name, tally.requests)).collect()
}

/// The busiest of them by name, the others by their number.
fn summarize(bots: &[(&str, u64)]) -> String {
    let few = bots.iter().take(MAX_NAMED_BOTS).map(|(name, requests)| format!("{name} {}", group_digits(*requests)));
    let mut told: Vec<String> = few.collect();
    if bots.len() > MAX_NAMED_BOTS {
        let rest: u64 = bots[MAX_NAMED_BOTS..].iter().map(|(_, requests)| requests).sum();
        told.push(format!("{} more {}", bots.len() - MAX_NAMED_BOTS, group_digits(rest)));
    }
    told.join(", ")
}

/// How many seconds apart its requests would be if its busiest day were even; nothing where it is slow anyhow.
fn delay(tally: &RequestRate) -> Option<u64> {
    let even = 86_400 / tally.busiest_day.most.max(1);
    (tally.busiest_hour.most >= FAST_CRAWLER_PER_HOUR).then_some(even.clamp(1, MAX_CRAWL_DELAY_S))
}

/// To two figures, so that nobody takes it for more exact than it is.
fn rounded_up(pages: u64) -> u64 {
    let step = 10_u64.pow(pages.max(1).ilog10().saturating_sub(1)).max(10);
    pages.max(1).div_ceil(step) * step
}

/// What is counted.
pub(super) const QUOTA: &str = "pages";

/// What one client that names no bot may spend; a request a second is more than a person reads. Free requests do not count.
const BUCKET: &str = "rate: 1/s, burst: 60, counts: costed";

/// The class of people.
pub(super) const PEOPLE: &str = "person";

const GATE: &str = r#"
listen: 127.0.0.1:8080
admin: { listen: 127.0.0.1:9090 }
origin:
  url: http://127.0.0.1:3000     # CHANGE: where the site itself answers
# The proxy in front, on this machine. CHANGE where it is another: its addresses.
clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8, "::1/128"] }
log:
  access: { path: ./state/access.log, format: json }   # `tidegate replay` reads it, and learns more from it than from others
"#;

/// As wide as the comments of our own files.
const WIDTH: usize = 118;

/// So many bots are named in a comment.
const MAX_NAMED_BOTS: usize = 6;

/// From one request in twenty seconds on, for an hour, a crawler is asked to slow down.
const FAST_CRAWLER_PER_HOUR: u64 = 180;

/// As much as a `crawl_delay` may be, in seconds.
const MAX_CRAWL_DELAY_S: u64 = 30;

/// It says so itself: its pace is set elsewhere.
const IGNORE_CRAWL_DELAY: [&str; 1] = ["googlebot"];

/// However much people ask for, search engines have this share of the limit, in percent ...
const MIN_BOT_PERCENT: u64 = 30;

/// ... and however little, the last of it is theirs.
const MAX_BOT_PERCENT: u64 = 90;
