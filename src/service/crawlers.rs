//! Crawler verification: the operator table built from the settings, and its background tasks.

use super::ServiceState;
use crate::telemetry::metrics::VERIFICATIONS;
use metrics::counter;
use std::sync::Arc;
use tidegate_config::Settings;
use tidegate_config::describe::BuiltinOperators;
use tidegate_config::settings::{CrawlerOperator, NetworkDatabaseFile};
use tidegate_crawlers::network_databases::NetworkDatabases;
use tidegate_crawlers::verify::fetch::Fetcher;
use tidegate_crawlers::verify::{OperatorOverride, OperatorTable, RangeRefresher, RangeSource, Resolver};
use tidegate_engine::clock::Clock;
use tidegate_policy::Proof;
use tracing::warn;

/// Returns the crawler operators of these settings, with DNS verification if configured.
pub fn operators(settings: &Settings) -> OperatorTable {
    let operators = without_dns(settings);
    match settings.verify.dns {
        Some(_) => operators.with_dns(),
        None => operators,
    }
}

/// Returns the crawler operators of these settings without DNS verification, for use without a network.
pub fn without_dns(settings: &Settings) -> OperatorTable {
    OperatorTable::with_overrides(settings.operators.iter().map(operator_override).collect())
}

/// Returns the names, product tokens and agents of `operators` for a summary of the settings.
pub fn builtin_operators(operators: &OperatorTable) -> BuiltinOperators<'_> {
    let with_name = |(text, id)| (text, operators.name(id));
    BuiltinOperators {
        names: operators.names().collect(),
        product_tokens: operators.product_tokens().map(with_name).collect(),
        signature_agents: operators.signature_agents().map(with_name).collect(),
    }
}

/// Returns the task that keeps the range lists up to date. Lists cached on disk are loaded at once.
pub(super) fn new_range_refresher(
    operators: &Arc<OperatorTable>,
    fetcher: &Fetcher,
    settings: &Settings,
    clock: &Clock,
    seed: u64,
) -> RangeRefresher {
    let (state_dir, interval) = (&settings.state_dir, settings.verify.refresh_interval);
    RangeRefresher::new(Arc::clone(operators), fetcher.clone(), state_dir, interval, clock.clone(), seed)
}

/// Returns a warning about range lists that could not be updated; one for all, because without internet access nearly
/// all fail.
pub(super) fn stale_ranges_warning(errors: &[(String, String)]) -> Option<String> {
    let (source, error) = errors.first()?;
    let others = match errors.len() {
        1 => String::new(),
        2 => " (and 1 more list)".to_owned(),
        count => format!(" (and {} more lists)", count - 1),
    };
    Some(format!("Cannot update {source}{others}: {error}; keeping the previous version"))
}

/// Runs DNS verification of queued crawler addresses until dropped.
pub(super) async fn run_dns_verification(state: Arc<ServiceState>) {
    let Some(verifier) = state.operators.dns() else { return };
    let Some(settings) = state.handle.with_settings(|settings| settings.verify.dns.clone()) else { return };
    let resolver = match Resolver::new(&settings.nameservers, settings.timeout) {
        Ok(resolver) => resolver,
        Err(error) => return warn!(%error, "DNS verification disabled: {error}"),
    };
    let handle = state.handle.clone();
    let on_result = move |operator, dns_result| {
        let result = match state.operators.interpret_dns(operator, dns_result) {
            Proof::Proven(_) => "verified",
            Proof::Disproven(_) => "impostor",
            Proof::Unknown | Proof::PrivateAddress => "unknown",
        };
        let operator = state.operators.name(operator).to_owned();
        state.telemetry.record(|| {
            counter!(VERIFICATIONS, "operator" => operator, "method" => "dns", "result" => result).increment(1);
        });
    };
    verifier.run(resolver, move || handle.uptime(), on_result).await;
}

/// Reads the databases of networks of the settings. Returns all errors, one line each.
pub fn network_databases(settings: &Settings) -> Result<NetworkDatabases, String> {
    NetworkDatabases::read(
        settings.asn_database.as_ref().map(NetworkDatabaseFile::source),
        settings.country_database.as_ref().map(NetworkDatabaseFile::source),
    )
}

fn operator_override(operator: &CrawlerOperator) -> OperatorOverride {
    OperatorOverride {
        name: operator.name.clone(),
        product_tokens: operator.product_tokens.clone(),
        ranges: operator.ranges.clone().map(|ranges| ranges.into_iter().map(RangeSource::from).collect()),
        dns_names: operator.dns_names.clone(),
        exhaustive: operator.exhaustive.clone(),
        signature_agents: operator.signature_agents.clone(),
        purpose: operator.purpose,
    }
}
