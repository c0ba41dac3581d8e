//! The secret that signs session cookies and hashes credentials: in the state directory, and shared by gateways with one ledger.

use super::{ServiceState, ledger};
use crate::gateway::SessionSecret;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_config::settings::Ledger;
use tidegate_engine::files;
use tidegate_engine::ledger::redis::SharedSessionSecret;
use tidegate_policy::budget::CustomerSource;
use tidegate_policy::identity::KeySource;
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};

/// Interval at which gateways compare their secrets, which are the same unless the server of the ledger has lost its own. With
/// another secret, of a gateway that starts just then, the customers of all would begin with new budgets.
const EXCHANGE_INTERVAL: Duration = Duration::from_secs(1);

/// Length of the file: a secret in hexadecimal digits.
const TEXT_LEN: usize = 2 * size_of::<SessionSecret>();

/// Returns the secret in the state directory of the settings, or a new one. A failure is only logged: sessions then end with the
/// process.
pub(super) fn secret(settings: &Settings) -> SessionSecret {
    let mut new = SessionSecret::default();
    getrandom::fill(&mut new).expect("the system has random numbers");
    if !is_kept(settings) {
        return new;
    }
    let path = path(settings);
    match read(&path) {
        Ok(Some(secret)) => return secret,
        Ok(None) => {}
        Err(error) => warn!("{} is unusable, and all sessions begin anew: {error}", path.display()),
    }
    store(&path, &new);
    new
}

/// Returns the connection to the secret of all gateways, if they share a ledger.
pub(super) fn shared(settings: &Settings) -> std::result::Result<Option<SharedSessionSecret>, String> {
    match &settings.ledger {
        Ledger::Redis(redis) => Ok(Some(SharedSessionSecret::new(ledger::endpoint(redis, settings)?, &redis.prefix))),
        Ledger::Memory | Ledger::File => Ok(None),
    }
}

impl ServiceState {
    /// Returns why no budgets are leased, if gateways have not agreed on a secret.
    pub(super) fn session_secret_error(&self) -> Option<String> {
        let holds = self.engine.holds_key_leases();
        let error = self.session_secret_error.lock().clone().filter(|_| holds)?;
        Some(format!("no budgets, because gateways do not share the secret that hashes credentials: {error}"))
    }

    /// Stores the secret in use if sessions are on and there is none, because a reload has turned them on.
    pub(super) fn keep_session_secret(&self) {
        let path = self.handle.with_settings(|settings| is_kept(settings).then(|| path(&self.startup_settings)));
        if let Some(path) = path.filter(|path| !path.exists()) {
            store(&path, &self.handle.session_secret());
        }
    }

    /// Agrees with other gateways on one secret, until dropped. Returns at once if there are none.
    pub(super) async fn share_session_secret(&self) {
        let Some(shared) = &self.shared_session_secret else { return };
        let mut shared = shared.lock().await;
        let mut ticks = tokio::time::interval(EXCHANGE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut is_failing, mut is_agreed) = (false, false);
        loop {
            ticks.tick().await;
            let (own, now) = (self.handle.session_secret(), self.handle.now());
            let agreed = shared.agree(&to_text(&own), now).await.map_err(|error| error.to_string());
            let result = agreed.and_then(|text| {
                let invalid =
                    || "the ledger has an invalid secret; delete its key that ends with :session_secret".to_owned();
                from_text(text.as_bytes()).ok_or_else(invalid)
            });
            match (&result, is_failing) {
                (Err(error), false) => {
                    warn!("The secret of sessions and credentials is not shared with other gateways: {error}");
                }
                (Ok(_), true) => info!("The secret of sessions and credentials is shared with other gateways again"),
                _ => {}
            }
            is_failing = result.is_err();
            *self.session_secret_error.lock() = result.as_ref().err().cloned();
            if let Some(secret) = result.ok().filter(|secret| *secret != own) {
                self.handle.replace_session_secret(secret);
                if self.handle.with_settings(is_kept) {
                    store(&path(&self.startup_settings), &secret);
                }
            }
            // With another secret, a customer would have another budget here than at the other gateways.
            is_agreed |= !is_failing;
            self.engine.hold_key_leases(!is_agreed && self.handle.with_settings(has_budgets_by_credential));
        }
    }
}

/// Returns true if customers or clients with budgets are known by the hashes of credentials.
fn has_budgets_by_credential(settings: &Settings) -> bool {
    let rules = &settings.rules;
    let has_credentials = rules.classes.iter().any(|class| matches!(class.key, KeySource::Credential(_)));
    let names_customers = matches!(rules.customer, Some(CustomerSource::Credential(_)));
    names_customers || (has_credentials && rules.quotas.iter().any(|quota| quota.budget.is_some()))
}

/// Returns true if what the secret is for outlives the process: sessions, or usage by credential.
fn is_kept(settings: &Settings) -> bool {
    let rules = &settings.rules;
    let has_client_limits = rules.quotas.iter().any(|quota| quota.client_limit.is_some() || quota.budget.is_some());
    let has_credentials = rules.classes.iter().any(|class| matches!(class.key, KeySource::Credential(_)));
    let names_customers = matches!(rules.customer, Some(CustomerSource::Credential(_)));
    settings.sessions.is_some() || names_customers || (has_client_limits && has_credentials)
}

fn path(settings: &Settings) -> PathBuf {
    settings.state_dir.join("session_secret")
}

fn read(path: &Path) -> Result<Option<SessionSecret>> {
    let Some(text) = files::read_if_exists(path, TEXT_LEN + 1)? else { return Ok(None) };
    let invalid = || Error::other(format!("it needs {TEXT_LEN} hexadecimal digits; it is replaced"));
    from_text(text.trim_ascii_end()).map(Some).ok_or_else(invalid)
}

fn store(path: &Path, secret: &SessionSecret) {
    let directory = path.parent().unwrap_or(Path::new("."));
    let stored = files::create_dir(directory).and_then(|()| files::replace(path, to_text(secret).as_bytes()));
    if let Err(error) = stored {
        warn!("Cannot store {}: {error}; sessions end with this process", path.display());
    }
}

fn to_text(secret: &SessionSecret) -> String {
    secret.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_text(text: &[u8]) -> Option<SessionSecret> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() == TEXT_LEN)?;
    let mut secret = SessionSecret::default();
    for (index, byte) in secret.iter_mut().enumerate() {
        let digits =
            text.get(2 * index..2 * index + 2).filter(|digits| digits.bytes().all(|it| it.is_ascii_hexdigit()))?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_outlives_the_process_and_a_broken_file_is_replaced() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let rules = format!(
            "origin: http://127.0.0.1:1\nsessions: on\nquotas: {{ api: {{ limit: 1 }} }}\nstate_dir: {}\n",
            dir.path().join("state").display()
        );
        let file = Path::new("tidegate.yaml");
        let settings = tidegate_config::load(file, &rules, &[], &[], &[]).expect("valid settings");
        let first = secret(&settings);
        assert_eq!(secret(&settings), first);
        let path = path(&settings);
        std::fs::write(&path, "0123").expect("directory is writable");
        let second = secret(&settings);
        assert_ne!(second, first);
        assert_eq!(secret(&settings), second, "the broken file is replaced");
        assert_eq!(from_text(to_text(&first).as_bytes()), Some(first));
    }
}
