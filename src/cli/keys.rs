//! `tidegate keys`: creates the API keys of customers.

use super::{CommandError, ConfigArg, environment, print};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use clap::Subcommand;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use tidegate_config::Settings;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_crawlers::verify::api_key::key_hash;
use tidegate_engine::files;
use tidegate_policy::budget::BudgetKey;

/// Subcommands of `tidegate keys`.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum KeysCommand {
    /// Creates a key for a customer and prints it once
    ///
    /// Adds its hash to the file of `api_keys`, which a running gateway reads within seconds. If the configuration has the list
    /// itself, prints the entry to add. Only the customer has the key afterwards: the file has its SHA-256.
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
    let read = || {
        tidegate_config::read(&config, &environment(), &[], &OperatorTable::builtin_names())
            .map_err(|errors| CommandError::Usage(errors.to_string()))
    };
    let settings = read()?;
    let mut random = [0; 32];
    aws_lc_rs::rand::fill(&mut random)
        .map_err(|_| CommandError::Failed("the system has no random numbers".to_owned()))?;
    let key = format!("tg_{}", BASE64_URL_SAFE_NO_PAD.encode(random));
    let entry = entry(new, &key, &settings)?;
    let Some(file) = &settings.api_key_file else {
        return Ok(format!("{key}\n\nAdd to api_keys of {}, with the other keys:\n{entry}", config.display()));
    };
    let before = std::fs::read_to_string(file).map_err(|error| failed(file, &error))?;
    files::replace(file, with_entry(&before, &entry).as_bytes()).map_err(|error| failed(file, &error))?;
    if let Err(error) = read() {
        files::replace(file, before.as_bytes()).map_err(|error| failed(file, &error))?;
        return Err(error);
    }
    Ok(format!("{key}\n"))
}

/// Returns the line of a key in the file.
fn entry(new: &NewKey<'_>, key: &str, settings: &Settings) -> Result<String, CommandError> {
    let NewKey { name, class, limits, expires } = new;
    let hash = key_hash(key.as_bytes()).expect("a created key is short");
    let mut entry = format!("  - {{ name: {name}, class: {class}, sha256: \"");
    hash.iter().for_each(|byte| _ = write!(entry, "{byte:02x}"));
    entry.push('"');
    if let Some(day) = expires {
        let _ = write!(entry, ", expires: {day}");
    }
    if !limits.is_empty() {
        let limits = limits.iter().map(|limit| limit_of(limit, settings)).collect::<Result<Vec<_>, _>>()?;
        let _ = write!(entry, ", limits: {{ {} }}", limits.join(", "));
    }
    Ok(entry + " }\n")
}

/// Returns a limit as the file has it.
fn limit_of(text: &str, settings: &Settings) -> Result<String, CommandError> {
    if let Some((quota, units)) = text.split_once('=') {
        return Ok(format!("{quota}: {units}"));
    }
    let of_customers = settings
        .rules
        .quotas
        .iter()
        .filter(|quota| quota.budget.as_ref().is_some_and(|budget| budget.per == BudgetKey::Customer));
    match of_customers.map(|quota| quota.name.as_str()).collect::<Vec<_>>()[..] {
        [quota] => Ok(format!("{quota}: {text}")),
        [] => Err(CommandError::Usage("command line: no quota counts by key; write per: api_key at one".to_owned())),
        ref quotas => Err(CommandError::Usage(format!(
            "command line: several quotas count by key; write --limit {}={text}",
            quotas.join(&format!("={text} or --limit "))
        ))),
    }
}

/// Returns the text of a file of keys with one more.
fn with_entry(text: &str, entry: &str) -> String {
    let has_list = text.lines().any(|line| line.starts_with("api_keys:"));
    let separator = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let heading = if has_list { "" } else { "api_keys:\n" };
    format!("{text}{separator}{heading}{entry}")
}

fn failed(file: &Path, error: &std::io::Error) -> CommandError {
    CommandError::Failed(format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_added_to_the_file_and_names_its_customer() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let config = dir.path().join("tidegate.yaml");
        let text = "origin: http://127.0.0.1:1\napi_keys: { file: keys.yaml }\n\
                    quotas: { customer: { limit: 10, window: day, per: api_key } }\n\
                    classes: [{ name: pro, when: { api_key: own } }]\n";
        let keys = dir.path().join("keys.yaml");
        std::fs::write(&config, text).expect("the directory is writable");
        std::fs::write(&keys, "# keys\n").expect("the directory is writable");
        let add = |name, class, limits: &[&str], expires| {
            let limits: Vec<String> = limits.iter().map(|limit| (*limit).to_owned()).collect();
            let new = NewKey { name, class, limits: &limits, expires };
            add(&new, &ConfigArg { config: Some(config.clone()) })
        };
        let key = add("acme", "pro", &["500"], Some("2027-01-01")).expect("a valid key");
        let _ = add("other", "pro", &["customer=7"], None).expect("a valid key");
        let settings = tidegate_config::read(&config, &[], &[], &[]).expect("valid settings");
        let hash = key_hash(key.trim_end().as_bytes()).expect("a key");
        let (_, listed) =
            settings.rules.api_keys.iter().find(|(listed, _)| **listed == hash).expect("the key is listed");
        assert_eq!(listed.name, "acme");
        assert_eq!(settings.rules.quotas[0].budget.as_ref().expect("budgets").key_limits.len(), 2);
        let before = std::fs::read_to_string(&keys).expect("the file exists");
        assert!(before.starts_with("# keys\napi_keys:\n  - { name: acme, class: pro, sha256: \""), "{before}");
        for (name, class, limits, expires) in [
            ("acme", "pro", &[][..], None),
            ("a", "none", &[], None),
            ("a", "pro", &["0"], None),
            ("a", "pro", &[], Some("soon")),
        ] {
            assert!(add(name, class, limits, expires).is_err(), "{name} {class}");
            assert_eq!(std::fs::read_to_string(&keys).expect("the file exists"), before, "the file is as it was");
        }
    }
}
