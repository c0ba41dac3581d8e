//! Proof of crawlers, put together from the settings, and what it needs in the background.

use super::Running;
use crate::clock::Clock;
use crate::config::Settings;
use crate::config::settings::{CrawlerOperator, KnownBy};
use crate::policy::Proof;
use crate::telemetry::{Finding, Method as Counted};
use crate::verify::fetch::Fetcher;
use crate::verify::{Declared, Dns, Method, Operators, Refresh, Source};
use std::sync::Arc;
use tracing::warn;

/// The operators of crawlers under these settings.
pub fn operators(settings: &Settings) -> Operators {
    let operators = without_dns(settings);
    match settings.verify.dns {
        Some(_) => operators.asking_dns(),
        None => operators,
    }
}

/// The same, for whoever has no network to ask.
pub fn without_dns(settings: &Settings) -> Operators {
    Operators::with(settings.operators.iter().map(declared).collect())
}

/// Who keeps the lists of addresses up to date; what is on this disk is taken over at once.
pub(super) fn refresh(
    operators: &Arc<Operators>,
    fetcher: &Fetcher,
    settings: &Settings,
    clock: &Clock,
    seed: u64,
) -> Refresh {
    let (folder, every) = (&settings.state_dir, settings.verify.refresh);
    Refresh::new(Arc::clone(operators), fetcher.clone(), folder, every, clock.clone(), seed)
}

/// One sentence on operators' lists that cannot be taken over: where there is no way out, that is nearly all of them.
pub(super) fn note_of_stale(troubles: &[(String, String)]) -> Option<String> {
    let (source, trouble) = troubles.first()?;
    let others = match troubles.len() {
        1 => String::new(),
        count => format!(" (and {} lists more)", count - 1),
    };
    Some(format!("{source}{others} is not taken over, what was known of it stays: {trouble}"))
}

/// Asks DNS about those whom requests have come across, for as long as it is polled.
pub(super) async fn ask_dns(running: Arc<Running>) {
    let Some(names) = running.operators.by_name() else { return };
    let Some(settings) = running.handle.with_settings(|settings| settings.verify.dns.clone()) else { return };
    let dns = match Dns::new(&settings.nameservers, settings.timeout) {
        Ok(dns) => dns,
        Err(error) => return warn!(%error, "No crawler is proven by name: {error}"),
    };
    let clock = running.handle.clone();
    let told = move |operator, said| {
        let finding = match running.operators.judge(operator, said) {
            Proof::Proven(_) => Finding::Verified,
            Proof::Disproven(_) => Finding::Impostor,
            Proof::Unknown | Proof::PrivateAddress => Finding::Unknown,
        };
        running.telemetry.verification(running.operators.name(operator), Counted::Dns, finding);
    };
    names.serve(dns, move || clock.uptime(), told).await;
}

fn declared(operator: &CrawlerOperator) -> Declared {
    let method = |known: &KnownBy| match known {
        KnownBy::Addresses => Method::Addresses,
        KnownBy::Names => Method::Names,
    };
    Declared {
        name: operator.name.clone(),
        tokens: operator.tokens.clone(),
        ranges: operator.ranges.clone().map(|ranges| ranges.into_iter().map(Source::from).collect()),
        names: operator.names.clone(),
        complete: operator.complete.as_ref().map(|complete| complete.iter().map(method).collect()),
        signature_agents: operator.signature_agents.clone(),
    }
}
