//! `tidegate keys`: creates the API keys of customers.

use super::{CommandError, ConfigArg, environment, print};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use clap::Subcommand;
use std::borrow::Cow;
use std::fmt::Write;
use std::fs::metadata;
use std::io::Error;
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;
use tidegate_config::key_list::with_key;
use tidegate_config::{ConfigErrors, SettingPath, Settings, SourceLocation};
use tidegate_crawlers::verify::OperatorTable;
use tidegate_crawlers::verify::api_key::key_hash;
use tidegate_engine::clock::Clock;
use tidegate_engine::files::{self, Replacement};
use tidegate_policy::Timestamp;
use tidegate_policy::budget::BudgetKey;

/// Maximum size of a file of keys, in bytes.
const MAX_FILE_BYTES: usize = 8 << 20;

/// Subcommands of `tidegate keys`.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum KeysCommand {
    /// Creates a key for a customer and prints it once
    ///
    /// Adds its hash to the file of `api_keys`, which a running gateway reads within seconds. The file keeps its owner and mode; a new
    /// one gets those of the configuration. If the configuration has the list itself, prints the entry to add. Only the customer has
    /// the key afterwards: the file has its SHA-256.
    Add {
        /// Name of the customer.
        name: String,
        /// Class of the customer, which has the condition `api_key: own`.
        #[arg(long)]
        class: String,
        /// Units of the customer per window of the quota that counts by key, in place of the limit of its class. With several such
        /// quotas, QUOTA=UNITS; may be repeated.
        #[arg(long, value_name = "[QUOTA=]UNITS")]
        limit: Vec<String>,
        /// Day from whose start in UTC on the key is invalid, such as 2027-01-01.
        #[arg(long, value_name = "DAY")]
        expires: Option<String>,
        #[command(flatten)]
        config: ConfigArg,
    },
}

/// Creates a key.
pub(super) fn run(command: &KeysCommand) -> ExitCode {
    let KeysCommand::Add { name, class, limit, expires, config } = command;
    let new = NewKey { name, class, limits: limit, expires: expires.as_deref() };
    match add(&new, config) {
        Ok(text) => print(&text),
        Err(error) => error.report(),
    }
}

/// A key to create.
struct NewKey<'a> {
    name: &'a str,
    class: &'a str,
    limits: &'a [String],
    expires: Option<&'a str>,
}

fn add(new: &NewKey<'_>, config: &ConfigArg) -> Result<String, CommandError> {
    let config = config.path()?;
    let read =
        |keys: &str| tidegate_config::read_with_keys(&config, &environment(), &OperatorTable::builtin_names(), keys);
    let settings = read("").map_err(|errors| usage(&errors))?;
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|_| CommandError::Failed("the system has no random numbers".to_owned()))?;
    let key = format!("tg_{}", BASE64_URL_SAFE_NO_PAD.encode(random));
    let entry = entry(new, &key, &settings)?;
    let Some(file) = &settings.api_key_file else {
        let text = tidegate_config::read_text(&config).map_err(|errors| usage(&errors))?;
        let after = with_key(&config, &text, &entry).map_err(|errors| usage(&errors))?;
        let settings = tidegate_config::load(&config, &after, &environment(), &[], &OperatorTable::builtin_names())
            .map_err(|errors| usage(&of_options(errors)))?;
        check_expiry(new, &key, &settings, Clock::system().now())?;
        return Ok(format!("{key}\n\nAdd to api_keys of {}, with the other keys:\n  - {entry}\n", config.display()));
    };
    let failed = |error: Error| CommandError::Failed(format!("{}: {error}", file.display()));
    // Open until the end: a command at the same time reads what this one has written.
    let replacement = Replacement::of_target(file).map_err(failed)?;
    let before = files::read_if_exists(replacement.path(), MAX_FILE_BYTES).map_err(failed)?;
    let is_new = before.is_none();
    let before = String::from_utf8(before.unwrap_or_default()).map_err(|_| failed(Error::other("not UTF-8")))?;
    read(&before).map_err(|errors| usage(&errors))?;
    let after = with_key(file, &before, &entry).map_err(|errors| usage(&errors))?;
    // What is wrong now was right before.
    let settings = read(&after).map_err(|errors| usage(&of_options(errors)))?;
    check_expiry(new, &key, &settings, Clock::system().now())?;
    let like = metadata(if is_new { &config } else { replacement.path() }).map_err(failed)?;
    replacement.set_access(&like).map_err(|error| {
        let owner = format!("cannot be given to its owner, user {} and group {}: {error}", like.uid(), like.gid());
        failed(Error::other(format!("{owner}; run the command as root or as that user")))
    })?;
    replacement.write(after.as_bytes()).map_err(failed)?;
    Ok(format!("{key}\n"))
}

fn usage(errors: &ConfigErrors) -> CommandError {
    CommandError::Usage(errors.to_string())
}

/// Returns the errors of a new key at the options that they come from.
fn of_options(mut errors: ConfigErrors) -> ConfigErrors {
    for error in &mut errors.errors {
        let path = error.path.to_string();
        let key = path.strip_prefix("api_keys[").and_then(|rest| rest.split_once("]."));
        let option = match key.map(|(_, key)| key.split('.').next().unwrap_or(key)) {
            Some("name") => "NAME",
            Some("class") => "--class",
            Some("limits") => "--limit",
            Some("expires") => "--expires",
            _ => continue,
        };
        error.location = SourceLocation::Option(format!("command line: {option}"));
        error.path = SettingPath::ROOT;
    }
    errors
}

/// Returns an error if a new key is invalid from the start.
fn check_expiry(new: &NewKey<'_>, key: &str, settings: &Settings, now: Timestamp) -> Result<(), CommandError> {
    let hash = key_hash(key.as_bytes()).expect("a created key is short");
    match settings.rules.api_keys.get(&hash).is_none_or(|listed| listed.is_valid(now)) {
        true => Ok(()),
        false => Err(CommandError::Usage(format!(
            "command line: --expires: the key would be invalid at once, because {} has begun in UTC; write a later day",
            new.expires.unwrap_or("the day")
        ))),
    }
}

/// Returns a key as the file has it.
fn entry(new: &NewKey<'_>, key: &str, settings: &Settings) -> Result<String, CommandError> {
    let NewKey { name, class, limits, expires } = new;
    let hash = key_hash(key.as_bytes()).expect("a created key is short");
    let mut entry = format!("{{ name: {}, class: {}, sha256: \"", name_text(name), name_text(class));
    hash.iter().for_each(|byte| _ = write!(entry, "{byte:02x}"));
    entry.push('"');
    if let Some(day) = expires {
        let _ = write!(entry, ", expires: {}", word(day));
    }
    if !limits.is_empty() {
        let limits = limits.iter().map(|limit| limit_of(limit, settings)).collect::<Result<Vec<_>, _>>()?;
        let _ = write!(entry, ", limits: {{ {} }}", limits.join(", "));
    }
    Ok(entry + " }")
}

/// Returns a limit as the file has it.
fn limit_of(text: &str, settings: &Settings) -> Result<String, CommandError> {
    if let Some((quota, units)) = text.split_once('=') {
        return Ok(format!("{}: {}", name_text(quota), word(units)));
    }
    let of_customers = settings
        .rules
        .quotas
        .iter()
        .filter(|quota| quota.budget.as_ref().is_some_and(|budget| budget.per == BudgetKey::Customer));
    match of_customers.map(|quota| quota.name.as_str()).collect::<Vec<_>>()[..] {
        [quota] => Ok(format!("{}: {}", name_text(quota), word(text))),
        [] => Err(CommandError::Usage("command line: no quota counts by key; write per: api_key at one".to_owned())),
        ref quotas => Err(CommandError::Usage(format!(
            "command line: several quotas count by key; write --limit {}={text}",
            quotas.join(&format!("={text} or --limit "))
        ))),
    }
}

/// Returns a word of the command line as YAML has it, in quotes if it could be more than one value.
fn word(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    // YAML has words for infinite numbers, which begin with a point.
    let is_finite = text.trim_start_matches('.').parse::<f64>().ok().is_none_or(f64::is_finite);
    match !text.is_empty() && text.bytes().all(is_plain) && is_finite {
        true => Cow::Borrowed(text),
        false => Cow::Owned(serde_json::Value::from(text).to_string()),
    }
}

/// Returns a text of the command line as YAML has it, in quotes if it could be another value.
fn name_text(text: &str) -> Cow<'_, str> {
    const OTHER_VALUES: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let is_text = text.starts_with(|first: char| first.is_ascii_alphabetic()) && !OTHER_VALUES.contains(&text);
    if is_text { word(text) } else { Cow::Owned(serde_json::Value::from(text).to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::{Path, PathBuf};

    const CONFIG: &str = "origin: http://127.0.0.1:1\napi_keys: { file: keys.yaml }\n\
                          quotas: { customer: { limit: 10, window: day, per: api_key } }\n\
                          classes: [{ name: pro, when: { api_key: own } }]\n";

    fn directory() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (config, keys) = (dir.path().join("tidegate.yaml"), dir.path().join("keys.yaml"));
        std::fs::write(&config, CONFIG).expect("the directory is writable");
        (dir, config, keys)
    }

    /// Adds a key with one limit and an expiry, each unless it is "".
    fn add_entry([name, class, limit, expires]: [&str; 4], config: &Path) -> Result<String, CommandError> {
        let limits: Vec<String> = Some(limit.to_owned()).filter(|limit| !limit.is_empty()).into_iter().collect();
        let expires = Some(expires).filter(|day| !day.is_empty());
        add(&NewKey { name, class, limits: &limits, expires }, &ConfigArg { config: Some(config.to_owned()) })
    }

    fn add_named(name: &str, config: &Path) -> Result<String, CommandError> {
        add_entry([name, "pro", "", ""], config)
    }

    fn names(config: &Path) -> Vec<String> {
        let settings = tidegate_config::read(config, &[], &[], &[]).expect("valid settings");
        let mut names: Vec<String> = settings.rules.api_keys.iter().map(|(_, key)| key.name.clone()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn first_key_begins_the_file_with_the_mode_of_the_configuration() {
        let mode = |path: &Path| metadata(path).expect("metadata").mode() & 0o777;
        for wanted in [0o640, 0o644] {
            let (_dir, config, keys) = directory();
            std::fs::set_permissions(&config, Permissions::from_mode(wanted)).expect("set mode");
            assert!(add_named("Not a name", &config).is_err() && !keys.exists(), "an invalid key begins no file");
            add_named("first", &config).expect("a valid key");
            assert_eq!((mode(&keys), names(&config)), (wanted, vec!["first".to_owned()]));
        }
    }

    #[test]
    fn file_keeps_its_mode_and_the_link_to_it() {
        let (dir, config, keys) = directory();
        let real = dir.path().join("real.yaml");
        std::fs::write(&real, "api_keys: []\n").expect("the directory is writable");
        std::fs::set_permissions(&real, Permissions::from_mode(0o644)).expect("set mode");
        symlink("real.yaml", &keys).expect("create link");
        for name in ["true", "1e3", "a.b-c", "x, disabled: true"] {
            let is_valid = name != "x, disabled: true";
            assert_eq!(add_named(name, &config).is_ok(), is_valid, "{name}");
        }
        assert_eq!(names(&config), ["1e3", "a.b-c", "true"]);
        assert_eq!(metadata(&real).expect("metadata").mode() & 0o777, 0o644);
        assert!(std::fs::symlink_metadata(&keys).expect("metadata").is_symlink());
    }

    #[test]
    fn link_that_leads_nowhere_is_reported_and_kept() {
        let (dir, config, keys) = directory();
        symlink("gone/real.yaml", &keys).expect("create link");
        let error = add_named("acme", &config).expect_err("the link leads nowhere").to_string();
        let expected = "a symbolic link to gone/real.yaml, which does not exist; create that file, or remove the link";
        assert!(error.contains(expected), "{error}");
        assert!(std::fs::symlink_metadata(&keys).expect("metadata").is_symlink());
        assert_eq!(std::fs::read_dir(dir.path()).expect("read directory").count(), 2, "no draft");
    }

    /// Entries that may not be added beside that of `acme`: name, class, limit or "", expiry or "", and the error.
    const INVALID: [[&str; 5]; 9] = [
        ["acme", "pro", "", "", "NAME: duplicate name \"acme\""],
        ["A b", "pro", "", "", "NAME: invalid name \"A b\""],
        ["a", "none", "", "", "--class: unknown class \"none\""],
        ["a", "pro", "0", "", "--limit: found 0"],
        ["a", "pro", "none=1", "", "--limit: unknown quota \"none\""],
        ["a", "pro", "1e400", "", "--limit: found \"1e400\", needs an amount"],
        ["a", "pro", ".inf", "", "--limit: found \".inf\", needs an amount"],
        ["a", "pro", "", "soon", "--expires: found \"soon\", needs a day"],
        ["a", "pro", "", "2001-01-01", "--expires: the key would be invalid at once, because 2001-01-01"],
    ];

    #[test]
    fn entry_for_a_list_in_the_configuration_is_valid() {
        let (_dir, config, _keys) = directory();
        let hash = "0".repeat(64);
        let list = format!("api_keys:\n  - {{ name: acme, class: pro, sha256: \"{hash}\" }}\n");
        let text = CONFIG.replace("api_keys: { file: keys.yaml }\n", &list);
        std::fs::write(&config, &text).expect("the directory is writable");
        let added = add_entry(["other", "pro", "7", ""], &config).expect("a valid key");
        assert!(added.contains("\n  - { name: other, class: pro, sha256: \""), "{added}");
        for [name, class, limit, expires, error] in INVALID {
            let found = add_entry([name, class, limit, expires], &config).expect_err("an invalid key").to_string();
            assert!(found.starts_with(&format!("command line: {error}")), "{found}");
        }
        assert_eq!(std::fs::read_to_string(&config).expect("the file exists"), text, "the file is as it was");
    }

    #[test]
    fn keys_that_are_added_at_once_are_all_listed() {
        let (dir, config, keys) = directory();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let config = &config;
                scope.spawn(move || {
                    for number in 0..5 {
                        add_named(&format!("own-{thread}-{number}"), config).expect("a valid key");
                        let _ = add_named(&format!("common-{number}"), config);
                    }
                });
            }
        });
        let names = names(&config);
        assert_eq!((names.len(), names.iter().filter(|name| name.starts_with("common")).count()), (25, 5));
        assert!(keys.exists());
        assert_eq!(std::fs::read_dir(dir.path()).expect("read directory").count(), 2, "no draft");
    }

    #[test]
    fn key_is_added_to_the_file_and_names_its_customer() {
        let (_dir, config, keys) = directory();
        std::fs::write(&keys, "# keys\n").expect("the directory is writable");
        let key = add_entry(["acme", "pro", "500", "2999-01-01"], &config).expect("a valid key");
        let _ = add_entry(["other", "pro", "customer=7", ""], &config).expect("a valid key");
        let settings = tidegate_config::read(&config, &[], &[], &[]).expect("valid settings");
        let hash = key_hash(key.trim_end().as_bytes()).expect("a key");
        let (_, listed) =
            settings.rules.api_keys.iter().find(|(listed, _)| **listed == hash).expect("the key is listed");
        assert_eq!(listed.name, "acme");
        assert_eq!(settings.rules.quotas[0].budget.as_ref().expect("budgets").key_limits.len(), 2);
        let before = std::fs::read_to_string(&keys).expect("the file exists");
        assert!(before.starts_with("# keys\napi_keys:\n  - { name: acme, class: pro, sha256: \""), "{before}");
        for [name, class, limit, expires, error] in INVALID {
            let found = add_entry([name, class, limit, expires], &config).expect_err("an invalid key").to_string();
            assert!(found.starts_with(&format!("command line: {error}")), "{found}");
            assert_eq!(std::fs::read_to_string(&keys).expect("the file exists"), before, "the file is as it was");
        }
    }
}
