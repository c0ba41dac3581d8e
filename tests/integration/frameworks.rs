//! Real frameworks and servers as origins that report what each request has spent: whatever the spelling of a request,
//! the gateway has charged at least as much. `./test` installs them.

use crate::fuzz_corpus::policy::charge;
use crate::fuzz_corpus::policy::origin_models::{MODELS, OriginModel};
use crate::support::crawlers::InstalledClients;
use crate::support::gateway::TestGateway;
use crate::support::nginx::Nginx;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use tidegate_policy::path::PathPolicy;
use tidegate_policy::rng::Rng;

/// Costs as the origins spend them. The cost header has no effect on the charge: no quota names it.
const RULES: &str = "
quotas: { api: { limit: 1000000, window: { fixed: 24h } } }
routes:
  - { match: /search, method: GET, cost: { api: 4 } }
  - { match: /café, cost: { api: 5 } }
  - { match: \"/item/*\", cost: { api: 1 } }
  - { match: \"/use/**\", cost: { api: 2 } }
  - { match: /list, query: page, cost: { api: 3 } }
";

const TARGETS: [(&str, &str); 6] =
    [("/search", ""), ("/caf%C3%A9", ""), ("/item/1", ""), ("/use/a/b", ""), ("/list", "page=2"), ("/free/x", "")];

const NGINX: &str = "
location = /search { add_header X-API-Cost 4 always; return 200 page; }
location = /café { add_header X-API-Cost 5 always; return 200 page; }
location ~ ^/item/[^/]+$ { add_header X-API-Cost 1 always; return 200 page; }
location = /use { add_header X-API-Cost 2 always; return 200 page; }
location /use/ { add_header X-API-Cost 2 always; return 200 page; }
location = /list { if ($arg_page) { add_header X-API-Cost 3 always; return 200 page; } return 200 page; }
location / { return 200 page; }
";

/// A process that serves as the origin. It exits when its input is closed, even if it is the child of a wrapper.
struct OriginProcess {
    process: Child,
    address: SocketAddr,
}

impl OriginProcess {
    /// Starts a script of `tests/origins`, which prints its port.
    fn start(program: &str, script: &str, framework: &str) -> Self {
        let mut command = InstalledClients::locate().origin(program, script, framework);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the origin starts");
        let mut port = String::new();
        let output = process.stdout.take().expect("output is piped");
        BufReader::new(output).read_line(&mut port).expect("output is readable");
        let port = port.trim().parse().expect("the origin prints its port");
        Self { process, address: SocketAddr::from(([127, 0, 0, 1], port)) }
    }
}

impl Drop for OriginProcess {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// A made-up spelling of a request.
struct Spelling {
    method: &'static str,
    target: String,
    is_changed: bool,
}

/// Returns another spelling of one of the targets.
fn respell(rng: &mut Rng) -> Spelling {
    const PREFIXES: [&str; 7] = ["/x/..", "//host", "/\\host", "/free/..;", "/%2e", "//", "/free%2f.."];
    const SUFFIXES: [&str; 10] = ["/", "//", "/.", "/..", ";v=1", "%20", ".", "/x/..", "%2f", "\\"];
    const SLASHES: [&str; 9] = ["//", "/./", "/x/../", "/%2E%2e/x/", "%2f", "%2F", "\\", "%5c", "/;a/"];
    const NAMES: [&str; 6] = ["page[]=2", "page[0]=2", "[page]=2", "page%5B%5D=2", "a=1;page=2", "PAGE=2"];
    let pick = |rng: &mut Rng, texts: &[&'static str]| texts[rng.gen_below(texts.len() as u64) as usize];
    let (path, query) = TARGETS[rng.gen_below(TARGETS.len() as u64) as usize];
    let mut target = String::new();
    if rng.gen_bool(0.2) {
        target += pick(rng, &PREFIXES);
    }
    for letter in path.chars() {
        match (letter, rng.gen_below(20)) {
            ('/', 0 | 1) => target += pick(rng, &SLASHES),
            ('a'..='z' | '1', 0) => target += &format!("%{:02x}", letter as u32),
            ('a'..='z', 1) => target.push(letter.to_ascii_uppercase()),
            _ => target.push(letter),
        }
    }
    if rng.gen_bool(0.3) {
        target += pick(rng, &SUFFIXES);
    }
    let query = match (query.is_empty(), rng.gen_below(4)) {
        (true, 0) => "q=/../item/1".to_owned(),
        (true, _) => String::new(),
        (false, 0) => query.to_owned(),
        (false, 1) => pick(rng, &NAMES).to_owned(),
        (false, _) => query
            .chars()
            .map(|letter| match rng.gen_below(3) {
                0 if letter.is_ascii_alphabetic() => format!("%{:02X}", letter as u32),
                _ => letter.to_string(),
            })
            .collect(),
    };
    if !query.is_empty() {
        target = format!("{target}?{query}");
    }
    let is_changed = !TARGETS.iter().any(|(path, query)| target == *path || target == format!("{path}?{query}"));
    Spelling { method: if rng.gen_bool(0.1) { "HEAD" } else { "GET" }, target, is_changed }
}

/// Sends `count` spellings to `origin` through a gateway with the path policy `paths`, and asserts for each that the
/// charge covers what the origin has spent, and that `model` spends as much. Returns the costs that changed spellings
/// have spent.
fn assert_charges_cover_costs(origin: SocketAddr, paths: &str, model: &OriginModel, count: usize) -> BTreeSet<u64> {
    let policy = path_policy(paths);
    let gateway = TestGateway::with_rules(origin, &format!("paths: {paths}\n{RULES}"));
    let mut rng = Rng::from_seed(16, paths);
    let sent: Vec<(Spelling, u64)> = (0..count)
        .map(|number| {
            let spelling = respell(&mut rng);
            let Spelling { method, target, .. } = &spelling;
            let head = format!("{method} {target} HTTP/1.1\r\nHost: a.example\r\nUser-Agent: probe/{number}\r\n\r\n");
            let response = gateway.connect().send(head).response_to(method);
            let spent = response.fields.get("x-api-cost").map_or(0, |cost| cost.parse().expect("whole units"));
            (spelling, spent)
        })
        .collect();
    let charges: BTreeMap<String, f64> = gateway
        .read_log()
        .iter()
        .map(|line| {
            (line["user_agent"].as_str().unwrap_or_default().to_owned(), line["charged"]["api"].as_f64().unwrap_or(0.0))
        })
        .collect();
    let mut costs = BTreeSet::new();
    for (number, (Spelling { method, target, is_changed }, spent)) in sent.iter().enumerate() {
        let charged = charges.get(&format!("probe/{number}")).copied().unwrap_or(0.0);
        assert!(charged >= *spent as f64, "{paths}: {method} {target}: charged {charged}, spent {spent}");
        let modeled = charge(target, policy).map_or(0, |(_, sent)| (model.spend)(&sent));
        assert!(modeled >= *spent, "{paths}: {method} {target}: {} spends {spent}, its model {modeled}", model.name);
        if *is_changed {
            costs.insert(*spent);
        }
    }
    costs
}

/// Checks all path policies. Changed spellings must have reached every costed page, else the check proves little.
fn check_origin(origin: SocketAddr, model: &str) {
    let model = MODELS.iter().find(|candidate| candidate.name == model).expect("a model of the origin");
    for (paths, count) in [("strict", 2000), ("lenient", 1000), ("raw", 1000)] {
        let costs = assert_charges_cover_costs(origin, paths, model, count);
        assert_eq!(costs, BTreeSet::from([0, 1, 2, 3, 4, 5]), "{paths}");
    }
}

fn path_policy(name: &str) -> PathPolicy {
    match name {
        "strict" => PathPolicy::Strict,
        "lenient" => PathPolicy::Lenient,
        _ => PathPolicy::Raw,
    }
}

#[test]
fn charges_cover_what_models_spend_on_many_spellings() {
    for paths in ["strict", "lenient", "raw"] {
        let mut rng = Rng::from_seed(17, paths);
        let mut spent_costs = BTreeMap::new();
        for _ in 0..100_000 {
            let Spelling { target, .. } = respell(&mut rng);
            let Some((charged, sent)) = charge(&target, path_policy(paths)) else { continue };
            for model in &MODELS {
                let spent = (model.spend)(&sent);
                let name = model.name;
                assert!(charged >= spent, "{paths}: {name} spends {spent} on {sent}, charged {charged} for {target}");
                spent_costs.entry(name).or_insert_with(BTreeSet::new).insert(spent);
            }
        }
        let all = BTreeSet::from([0, 1, 2, 3, 4, 5]);
        assert!(
            spent_costs.len() == MODELS.len() && spent_costs.values().all(|costs| *costs == all),
            "{spent_costs:?}"
        );
    }
}

#[test]
fn charges_cover_what_express_spends() {
    check_origin(OriginProcess::start("node", "node.mjs", "express").address, "express");
}

#[test]
fn charges_cover_what_express_4_spends() {
    check_origin(OriginProcess::start("node", "node.mjs", "express4").address, "express");
}

#[test]
fn charges_cover_what_the_url_standard_reads() {
    check_origin(OriginProcess::start("node", "node.mjs", "url").address, "url");
}

#[test]
fn charges_cover_what_flask_spends() {
    check_origin(OriginProcess::start("python", "python.py", "flask").address, "flask");
}

#[test]
fn charges_cover_what_django_spends() {
    check_origin(OriginProcess::start("python", "python.py", "django").address, "django");
}

#[test]
fn charges_cover_what_nginx_spends() {
    check_origin(Nginx::start(NGINX).address, "nginx");
}
