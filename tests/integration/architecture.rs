//! Dependency rules between modules (docs/ARCHITECTURE.md), checked against the source.

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
    ("telemetry", &["policy", "engine"]),
    ("config", &["policy", "calendar"]),
    ("replay", &["policy", "engine", "user_agents", "verify", "config", "calendar", "telemetry", "terminal"]),
    ("init", &["policy", "user_agents", "verify", "config", "replay", "terminal"]),
    ("tune", &["policy", "config", "replay", "telemetry", "terminal"]),
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
    ("admin", &["policy", "explain", "engine", "config", "telemetry", "gateway", "clock"]),
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
fn dependency_parser_detects_used_modules() {
    assert_eq!(used_modules("use crate::gateway::Gate;"), ["gateway"]);
    assert_eq!(used_modules("use crate::{engine::Engine, policy};"), ["engine", "policy"]);
    assert_eq!(used_modules("    let x = crate::admin::app();"), ["admin"]);
    assert!(used_modules("use super::Slot;").is_empty());
}

fn src_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
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
