//! Dependency rules between modules (docs/ARCHITECTURE.md), checked against the source.

mod source;

use source::{Package, packages};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Each module, and the modules of this package that it may use besides itself.
const MODULES: &[(&str, &[&str])] = &[
    ("policy", &[]),
    ("engine", &["policy"]),
    ("user_agents", &["policy"]),
    ("verify", &["policy", "clock", "http1", "files"]),
    ("robots", &["policy", "files"]),
    ("calendar", &["policy"]),
    ("clock", &["policy"]),
    ("ledger", &["policy", "engine", "files"]),
    ("demand_store", &["policy", "engine", "files"]),
    ("address_list_files", &["policy", "files"]),
    ("files", &[]),
    ("access_log", &["policy"]),
    ("telemetry", &["policy", "engine", "access_log"]),
    ("config", &["policy", "calendar"]),
    (
        "replay",
        &["policy", "engine", "user_agents", "verify", "config", "calendar", "access_log", "telemetry", "terminal"],
    ),
    ("init", &["policy", "user_agents", "verify", "config", "replay", "terminal"]),
    ("tune", &["policy", "config", "replay", "access_log", "telemetry", "terminal"]),
    ("http1", &[]),
    ("rate_limit_headers", &["policy", "engine", "config", "http1"]),
    ("terminal", &[]),
    (
        "gateway",
        &[
            "policy",
            "engine",
            "user_agents",
            "verify",
            "clock",
            "config",
            "telemetry",
            "http1",
            "robots",
            "rate_limit_headers",
        ],
    ),
    (
        "explain",
        &[
            "policy",
            "engine",
            "user_agents",
            "verify",
            "config",
            "telemetry",
            "replay",
            "rate_limit_headers",
            "terminal",
        ],
    ),
    ("admin", &["policy", "explain", "engine", "config", "access_log", "telemetry", "gateway", "clock"]),
    (
        "service",
        &[
            "policy",
            "engine",
            "ledger",
            "user_agents",
            "verify",
            "config",
            "clock",
            "demand_store",
            "address_list_files",
            "telemetry",
            "gateway",
            "replay",
            "explain",
            "admin",
        ],
    ),
];

/// Crates that a module may use. Modules that are not listed may use any crate.
const CRATES: &[(&str, &[&str])] = &[
    ("policy", &["std", "core", "http"]),
    ("engine", &["std", "core", "http", "dashmap", "foldhash", "parking_lot", "slab", "smallvec"]),
];

/// Words that must not occur in a module.
const FORBIDDEN: &[(&str, &[&str])] = &[
    (
        "policy",
        &[
            "Instant::now",
            "SystemTime",
            "std::fs",
            "std::io",
            "std::env",
            "std::thread",
            "Mutex",
            "RwLock",
            "Atomic",
            "async ",
        ],
    ),
    ("engine", &["Instant::now", "SystemTime", "std::fs", "std::io", "std::env", "async ", ".await"]),
    ("config", &["std::env", "SystemTime", "Instant::now"]),
    ("gateway", &["SystemTime::now", "Instant::now", "axum", "tower_http"]),
];

/// Type names that a package may declare more than once, by reason.
const DUPLICATE_TYPES: &[(&str, &[&str])] = &[
    (
        "a type of config::raw is the YAML as written, its namesake the validated value",
        &[
            "AddressListFile",
            "Admin",
            "Autothrottle",
            "Backoff",
            "BotDetection",
            "Bucket",
            "Class",
            "Clients",
            "CrawlDelay",
            "CrawlPolicy",
            "Dns",
            "Headers",
            "Ledger",
            "LedgerFailureMode",
            "Limits",
            "Log",
            "Operator",
            "Origin",
            "Pacing",
            "Quota",
            "Rampup",
            "Redis",
            "Robots",
            "Route",
            "Scope",
            "Signatures",
            "SyncFrom",
            "Tier",
            "Unit",
            "Verify",
            "Window",
        ],
    ),
    ("a type of cli::status reads the JSON that its namesake is written to", &["Correction", "Plan", "Settings"]),
    (
        "needs a distinct name or one type in place of two",
        &[
            "AccessLog",
            "Amount",
            "BodyError",
            "Bound",
            "Chart",
            "Connection",
            "Escaped",
            "InlineVec",
            "LogField",
            "Pattern",
            "PointReport",
            "Problem",
            "RefusedPages",
            "RequestBody",
            "ResponseBody",
            "Stage",
            "Stream",
            "Upload",
            "Verdict",
        ],
    ),
];

/// Files in a cycle of references that is not cut yet.
const FILES_IN_CYCLES: &[&str] = &[
    "src/admin/corrections.rs",
    "src/admin/state.rs",
    "src/cli/explain/from_log.rs",
    "src/cli/explain/what_if.rs",
    "src/config/validate/partition.rs",
    "src/config/validate/scopes.rs",
    "src/demo/crawlers.rs",
    "src/demo/people.rs",
    "src/demo/traffic.rs",
    "src/engine/leases.rs",
    "src/engine/quota/mod.rs",
    "src/engine/throttle/group.rs",
    "src/engine/throttle/instance.rs",
    "src/engine/throttle/scheduler.rs",
    "src/engine/throttle/wait_queue.rs",
    "src/engine/throttle/waiter.rs",
    "src/explain/admission.rs",
    "src/explain/pacing.rs",
    "src/gateway/body/mod.rs",
    "src/gateway/body/request.rs",
    "src/gateway/connection.rs",
    "src/gateway/connection_timeouts.rs",
    "src/gateway/handler/mod.rs",
    "src/gateway/upstream/deadline.rs",
    "src/gateway/upstream/mod.rs",
    "src/gateway/worker.rs",
    "src/http1/server/conn.rs",
    "src/http1/server/request.rs",
    "src/init/analysis.rs",
    "src/init/dry_run.rs",
    "src/init/generate.rs",
    "src/policy/bot_detection/client_profile.rs",
    "src/policy/bot_detection/features.rs",
    "src/policy/bot_detection/network_profile.rs",
    "src/policy/bot_detection/score.rs",
    "src/policy/class.rs",
    "src/policy/decide.rs",
    "src/policy/facts.rs",
    "src/policy/identity/key.rs",
    "src/policy/pacing/mod.rs",
    "src/policy/quota.rs",
    "src/policy/route.rs",
    "src/replay/assumptions.rs",
    "src/replay/log/combined.rs",
    "src/replay/log/line.rs",
    "src/replay/log/native.rs",
    "src/replay/observer.rs",
    "src/replay/simulator.rs",
    "src/replay/summary.rs",
    "src/telemetry/access_log.rs",
    "src/telemetry/log_writer.rs",
    "src/tune/candidate.rs",
    "src/tune/config_editor.rs",
    "src/tune/feasibility.rs",
    "src/tune/goal.rs",
    "src/tune/in_memory_log.rs",
    "src/tune/measure.rs",
    "src/tune/pacing.rs",
    "src/tune/pareto.rs",
    "src/tune/rank.rs",
    "src/tune/report.rs",
    "src/tune/search.rs",
    "src/tune/space.rs",
    "src/tune/summary.rs",
    "src/tune/tiers.rs",
    "src/tune/tuner.rs",
];

#[test]
fn modules_use_only_allowed_modules() {
    let mut violations = Vec::new();
    for (module, allowed) in MODULES {
        for (file, line) in module_lines(module) {
            for used in used_modules(&line) {
                if used != *module && !allowed.contains(&used.as_str()) {
                    violations.push(format!("{file}: {module} uses {used}: {}", line.trim()));
                }
            }
        }
    }
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

#[test]
fn inner_modules_use_only_allowed_crates() {
    let dependencies = dependencies();
    let mut violations = Vec::new();
    for (module, allowed) in CRATES {
        for (file, line) in module_lines(module) {
            let path = |name: &str| line.contains(&format!("{name}::")) && !line.contains(&format!("::{name}::"));
            for name in dependencies.iter().filter(|name| !allowed.contains(&name.as_str()) && path(name)) {
                violations.push(format!("{file}: {module} uses the crate {name}: {}", line.trim()));
            }
        }
    }
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

#[test]
fn modules_avoid_forbidden_apis() {
    let mut violations = Vec::new();
    for (module, forbidden) in FORBIDDEN {
        for (file, line) in module_lines(module) {
            for term in forbidden.iter().filter(|term| line.contains(**term)) {
                violations.push(format!("{file}: {module} says {term}: {}", line.trim()));
            }
        }
    }
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

#[test]
fn only_clock_module_reads_system_time() {
    let readers: BTreeSet<String> = dir_lines(&src_dir())
        .into_iter()
        .filter(|(_, line)| line.contains("SystemTime::now()") || line.contains("Instant::now()"))
        .map(|(file, _)| file)
        .collect();
    assert_eq!(readers, BTreeSet::from(["clock.rs".to_owned()]));
}

#[test]
fn only_engine_creates_permits() {
    let creators: Vec<String> = dir_lines(&src_dir())
        .into_iter()
        .filter(|(file, line)| line.contains("Permit::new") && !file.starts_with("engine/"))
        .map(|(file, line)| format!("{file}: {line}"))
        .collect();
    assert!(creators.is_empty(), "{creators:?}");
}

#[test]
fn no_type_name_is_declared_twice_in_a_package() {
    let allowed = DUPLICATE_TYPES.iter().flat_map(|(_, names)| *names);
    assert_exact(allowed, packages(&root_dir()).iter().flat_map(Package::duplicate_types));
}

#[test]
fn no_files_of_a_package_form_a_cycle() {
    assert_exact(FILES_IN_CYCLES, packages(&root_dir()).iter().flat_map(Package::files_in_cycles));
}

/// Compares a list of exceptions with what was found. An exception that is not needed is an error, too.
fn assert_exact<'a>(allowed: impl IntoIterator<Item = &'a &'a str>, found: impl Iterator<Item = String>) {
    let allowed: BTreeSet<String> = allowed.into_iter().map(|name| name.to_string()).collect();
    let found: BTreeSet<String> = found.collect();
    let new: Vec<_> = found.difference(&allowed).collect();
    let gone: Vec<_> = allowed.difference(&found).collect();
    assert!(new.is_empty() && gone.is_empty(), "not allowed: {new:?}; listed, but no longer found: {gone:?}");
}

#[test]
fn dependency_parser_detects_used_modules() {
    assert_eq!(used_modules("use crate::gateway::Gate;"), ["gateway"]);
    assert_eq!(used_modules("use crate::{engine::Engine, policy};"), ["engine", "policy"]);
    assert_eq!(used_modules("    let x = crate::admin::app();"), ["admin"]);
    assert!(used_modules("use super::Slot;").is_empty());
}

fn root_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn src_dir() -> PathBuf {
    root_dir().join("src")
}

/// Returns the lines of code of a module, without its tests.
fn module_lines(module: &str) -> Vec<(String, String)> {
    let file = src_dir().join(format!("{module}.rs"));
    let mut lines = dir_lines(&src_dir().join(module));
    if file.is_file() {
        lines.extend(file_code(&file));
    }
    lines
}

fn dir_lines(dir: &Path) -> Vec<(String, String)> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable directory").path()).collect();
    paths.sort();
    let read_lines = |path: PathBuf| if path.is_dir() { dir_lines(&path) } else { file_code(&path) };
    paths.into_iter().flat_map(read_lines).collect()
}

fn file_code(file: &Path) -> Vec<(String, String)> {
    let is_source = file.extension().is_some_and(|extension| extension == "rs");
    if !is_source || file.file_name().is_some_and(|name| name == "tests.rs") {
        return Vec::new();
    }
    let name = file.strip_prefix(src_dir()).expect("file is below src").display().to_string();
    let text = fs::read_to_string(file).expect("source is UTF-8");
    text.lines()
        .take_while(|line| line.trim() != "#[cfg(test)]" || !text.contains("mod tests {"))
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| (name.clone(), line.to_owned()))
        .collect()
}

fn used_modules(line: &str) -> Vec<String> {
    let identifier = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut modules = Vec::new();
    for (at, _) in line.match_indices("crate::") {
        let rest = &line[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(list) => modules.extend(list.split(',').map(|item| identifier(item.trim()))),
            None => modules.push(identifier(rest)),
        }
    }
    modules.retain(|name| MODULES.iter().any(|(module, _)| module == name));
    modules
}

fn dependencies() -> Vec<String> {
    let manifest = fs::read_to_string(src_dir().parent().expect("package directory").join("Cargo.toml"))
        .expect("readable manifest");
    let section = manifest
        .split("[dependencies]")
        .nth(1)
        .and_then(|rest| rest.split("\n[").next())
        .expect("manifest has dependencies");
    section
        .lines()
        .filter_map(|line| line.split_once(" = ").map(|(name, _)| name.replace('-', "_")))
        .filter(|name| !name.starts_with('#'))
        .collect()
}
