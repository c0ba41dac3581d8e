//! Dependency rules between modules (docs/ARCHITECTURE.md), checked against the source.

mod source;

use source::{Package, packages};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Each package, and the packages of this workspace that it may depend on. Cargo keeps what a manifest says; this keeps the
/// manifests.
const PACKAGES: &[(&str, &[&str])] = &[
    ("body-cost", &[]),
    ("http-cache", &[]),
    ("policy", &["http-cache"]),
    ("http1", &[]),
    ("engine", &["policy"]),
    ("crawlers", &["http-cache", "policy", "http1", "engine", "tls"]),
    ("config", &["body-cost", "http-cache", "policy"]),
    ("access-log", &["http-cache", "policy"]),
    ("rate-limit-headers", &["policy", "http1", "engine", "config"]),
    ("cache-disk", &[]),
    ("tls", &["engine"]),
    ("acme", &["policy", "engine", "tls"]),
    ("notify", &["policy", "engine", "config", "access-log", "tls"]),
    ("traces", &["policy", "config", "access-log", "tls"]),
    ("replay", &["http-cache", "policy", "engine", "crawlers", "config", "access-log", "rate-limit-headers"]),
];

/// Packages that decide on plain values, and all crates that they use.
const PURE: &[(&str, &[&str])] = &[
    ("http-cache", &["http", "httpdate", "sfv"]),
    ("policy", &["aho-corasick", "foldhash", "hashbrown", "http", "tidegate-http-cache"]),
];

/// APIs that have no place in [`PURE`] packages.
const IMPURE: &[&str] = &[
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
];

/// Directories and files, and the modules of their package that they may use besides themselves.
const MODULES: &[(&str, &[&str])] = &[
    ("src/telemetry", &[]),
    ("src/gateway", &["telemetry"]),
    ("src/admin", &["telemetry", "gateway"]),
    ("src/demo", &["admin"]),
    ("src/service", &["telemetry", "gateway", "admin"]),
    ("src/cli", &["telemetry", "gateway", "admin", "demo", "service"]),
    ("crates/crawlers/src/user_agents", &[]),
    ("crates/crawlers/src/verify", &[]),
    ("crates/crawlers/src/robots", &[]),
    ("crates/crawlers/src/address_list_files.rs", &[]),
    ("crates/replay/src/terminal.rs", &[]),
    ("crates/replay/src/explain", &["terminal"]),
    ("crates/replay/src/init", &["terminal"]),
    ("crates/replay/src/tune", &["terminal"]),
];

/// Modules of the engine that do I/O. The others are state under locks.
const ENGINE_IO: &[&str] =
    &["baseline_store", "clock", "demand_store", "files", "ledger", "state_file", "state_lock", "switch_store"];

/// Crates that the engine may use outside of [`ENGINE_IO`].
const ENGINE_CRATES: &[&str] = &["http", "dashmap", "foldhash", "parking_lot", "slab", "smallvec"];

/// Words that must not occur in a directory.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("crates/http-cache/src", IMPURE),
    ("crates/policy/src", IMPURE),
    ("crates/engine/src", &["std::fs", "std::io", "std::env", "async ", ".await"]),
    ("crates/config/src", &["std::env"]),
    ("src/gateway", &["axum", "tower_http"]),
];

/// Type names that a package may declare more than once, by reason.
const DUPLICATE_TYPES: &[(&str, &[&str])] = &[
    (
        "a type of config::raw is the YAML as written, its namesake the validated value",
        &["Admin", "Cache", "Dns", "Ledger", "Log", "Origin", "Redis", "Robots", "Signatures", "Verify"],
    ),
    ("problem documents of the admin API and of the data plane share nothing but the format", &["Problem"]),
];

/// References that are part of a circle of files that is not cut yet, as `file -> file`. The list may only shrink.
const CIRCULAR_REFERENCES: &[&str] = &[];

#[test]
fn packages_depend_only_on_allowed_packages() {
    let mut members = BTreeSet::new();
    for (package, allowed) in PACKAGES {
        let used = dependencies(&format!("crates/{package}/Cargo.toml"));
        let internal: BTreeSet<_> = used.iter().filter_map(|name| name.strip_prefix("tidegate-")).collect();
        assert_eq!(internal, allowed.iter().copied().collect(), "dependencies of {package}");
        members.insert((*package).to_owned());
    }
    assert_eq!(members, entries("crates"), "packages in crates");
    for (package, crates) in PURE {
        let crates = crates.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(dependencies(&format!("crates/{package}/Cargo.toml")), crates, "dependencies of {package}");
    }
}

#[test]
fn modules_use_only_allowed_modules() {
    let mut violations = Vec::new();
    for (place, allowed) in MODULES {
        let module = Path::new(place).file_stem().expect("name").to_string_lossy();
        let siblings: Vec<_> = MODULES.iter().map(|(other, _)| Path::new(other)).collect();
        for (file, line) in code_of(place) {
            let is_listed =
                |name: &String| siblings.iter().any(|other| other.file_stem().is_some_and(|stem| *stem == **name));
            for used in used_modules(&line).into_iter().filter(is_listed) {
                if used != *module && !allowed.contains(&used.as_str()) {
                    violations.push(format!("{file}: {module} uses {used}: {}", line.trim()));
                }
            }
        }
    }
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

#[test]
fn architecture_document_says_what_each_place_uses() {
    let text = fs::read_to_string(root_dir().join("docs/ARCHITECTURE.md")).expect("readable");
    let mut documented = BTreeSet::new();
    for row in text.lines() {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [place, _, uses] = cells[..] else { continue };
        let place = place.trim_matches('`');
        let package = place.strip_prefix("crates/");
        let used: BTreeSet<String> = match package {
            Some(package) => dependencies(&format!("crates/{package}/Cargo.toml"))
                .iter()
                .filter_map(|name| name.strip_prefix("tidegate-").map(str::to_owned))
                .collect(),
            None if place.starts_with("src/") => used_by_module(place),
            None => continue,
        };
        // What stands in parentheses is the part that is used.
        let uses = uses.replace(" (`files`)", "");
        let names = uses.split([',', ';']).map(|name| name.trim().to_owned());
        let named: BTreeSet<String> = names.filter(|name| name != "no other package").collect();
        assert_eq!(named, used, "{place}");
        documented.insert(place.to_owned());
    }
    let places = PACKAGES.iter().map(|(package, _)| format!("crates/{package}"));
    let modules = MODULES.iter().map(|(place, _)| (*place).to_owned()).filter(|place| place.starts_with("src/"));
    assert_eq!(documented, places.chain(modules).collect());
}

/// Returns the modules and packages that a directory of the root package uses.
fn used_by_module(place: &str) -> BTreeSet<String> {
    let module = place.trim_start_matches("src/");
    let is_module = |name: &&str| MODULES.iter().any(|(other, _)| other.strip_prefix("src/") == Some(name));
    let mut used = BTreeSet::new();
    for (_, line) in code_of(place) {
        let names = used_modules(&line);
        used.extend(names.iter().filter(|name| is_module(&name.as_str()) && **name != module).cloned());
        for (package, _) in PACKAGES {
            if line.contains(&format!("tidegate_{}::", package.replace('-', "_"))) {
                used.insert((*package).to_owned());
            }
        }
    }
    used
}

#[test]
fn state_of_the_engine_does_no_io() {
    let mut violations = Vec::new();
    let foreign: Vec<_> = dependencies("crates/engine/Cargo.toml")
        .into_iter()
        .map(|name| name.replace('-', "_"))
        .filter(|name| !ENGINE_CRATES.contains(&name.as_str()) && !name.starts_with("tidegate_"))
        .collect();
    assert!(!foreign.is_empty(), "the ledger uses crates of its own");
    for (file, line) in code_of("crates/engine/src").into_iter().filter(|(file, _)| !is_engine_io(file)) {
        let uses = |name: &&String| line.contains(&format!("{name}::")) && !line.contains(&format!("::{name}::"));
        violations.extend(foreign.iter().filter(uses).map(|name| format!("{file}: {name}: {}", line.trim())));
    }
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

#[test]
fn modules_avoid_forbidden_apis() {
    let mut violations = Vec::new();
    for (place, forbidden) in FORBIDDEN {
        for (file, line) in code_of(place).into_iter().filter(|(file, _)| !is_engine_io(file)) {
            for term in forbidden.iter().filter(|term| line.contains(**term)) {
                violations.push(format!("{file}: {term}: {}", line.trim()));
            }
        }
    }
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

#[test]
fn only_the_clock_reads_the_time() {
    let reads = |(_, line): &(String, String)| line.contains("SystemTime::now()") || line.contains("Instant::now()");
    let readers: BTreeSet<_> = all_code().into_iter().filter(reads).map(|(file, _)| file).collect();
    assert_eq!(readers, BTreeSet::from(["crates/engine/src/clock.rs".to_owned()]));
}

#[test]
fn only_one_function_writes_the_json_of_commands() {
    // It escapes what would change a terminal. Responses of the admin API pass through it, too: `admin_client`.
    let is_of_commands = |file: &str| file.starts_with("src/cli/") || file.starts_with("crates/replay/");
    let writes = |(file, line): &(String, String)| {
        is_of_commands(file) && ["serde_json::to_", "serde_json::ser"].iter().any(|call| line.contains(call))
    };
    let writers: BTreeSet<_> = all_code().into_iter().filter(writes).map(|(file, _)| file).collect();
    assert_eq!(writers, BTreeSet::from(["crates/replay/src/terminal.rs".to_owned()]));
}

#[test]
fn only_engine_creates_permits() {
    let creates = |(file, line): &(String, String)| line.contains("Permit::new") && !file.starts_with("crates/engine/");
    let creators: Vec<_> = all_code().into_iter().filter(creates).collect();
    assert!(creators.is_empty(), "{creators:?}");
}

#[test]
fn no_type_name_is_declared_twice_in_a_package() {
    let allowed = DUPLICATE_TYPES.iter().flat_map(|(_, names)| *names);
    assert_exact(allowed, packages(&root_dir()).iter().flat_map(Package::duplicate_types));
}

/// A circle is a closed path of references between files. It does not count if one of its files is a module that has all
/// others inside it: a module and the modules inside it are one unit. It does count if it leaves that unit, as in
/// `cache/mod -> cache/recorder -> shared -> cache/mod`. To declare or re-export a module inside is no reference.
#[test]
fn no_files_of_a_package_form_a_cycle() {
    assert_exact(CIRCULAR_REFERENCES, packages(&root_dir()).iter().flat_map(Package::circular_references));
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

fn is_engine_io(file: &str) -> bool {
    let module = file.strip_prefix("crates/engine/src/").and_then(|rest| rest.split(['/', '.']).next());
    module.is_some_and(|module| ENGINE_IO.contains(&module))
}

/// Returns the names in a directory of the repository.
fn entries(dir: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root_dir().join(dir)).expect("readable directory");
    entries.map(|entry| entry.expect("readable directory").file_name().to_string_lossy().into_owned()).collect()
}

fn all_code() -> Vec<(String, String)> {
    let crates = entries("crates").into_iter().map(|package| format!("crates/{package}/src"));
    crates.chain(["src".to_owned()]).flat_map(|place| code_of(&place)).collect()
}

/// Returns the lines of code below `place` with their file, without tests.
fn code_of(place: &str) -> Vec<(String, String)> {
    let path = root_dir().join(place);
    let mut lines = Vec::new();
    if path.is_file() {
        lines.extend(file_code(&path));
    } else {
        for entry in entries(place) {
            lines.extend(code_of(&format!("{place}/{entry}")));
        }
    }
    assert!(!lines.is_empty() || !place.ends_with("src"), "{place} has no code");
    lines
}

fn file_code(file: &Path) -> Vec<(String, String)> {
    let is_source = file.extension().is_some_and(|extension| extension == "rs");
    if !is_source || file.file_name().is_some_and(|name| name == "tests.rs") {
        return Vec::new();
    }
    let name = file.strip_prefix(root_dir()).expect("file is in the repository").display().to_string();
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
    modules
}

/// Returns the names of `[dependencies]` in a manifest.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root_dir().join(manifest)).expect("readable manifest");
    let section = text.split("[dependencies]").nth(1).and_then(|rest| rest.split("\n[").next()).expect("dependencies");
    section
        .lines()
        .filter_map(|line| Some(line.split_once([' ', '.', '='])?.0.to_owned()))
        .filter(|name| !name.starts_with('#'))
        .collect()
}
