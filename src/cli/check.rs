//! `tidegate check`: validates a configuration file and prints a summary or all errors.

mod classes;
mod crawlers;
mod format;
mod ledger;
mod quotas;
mod routes;
mod scopes;
#[cfg(test)]
mod tests;
use crate::address_list_files::{AddressListFiles, count_text};

use crate::config::settings::AccessLog;
use crate::config::{self, Settings};
use crate::policy::ClassId;
use crate::policy::bot_detection::BotDetection;
use crate::policy::identity::AddressSource;
use crate::policy::quota::Quota;
use crate::robots;
use crate::verify::OperatorTable;
use std::fmt::Write as _;
use std::path::Path;

/// Reads `file` and returns its summary. `Err` contains all errors, one per line.
pub fn check(file: &Path, environment: &[(String, String)], operators: &[&str]) -> Result<String, String> {
    let mut settings = config::read(file, environment, &[], operators).map_err(|errors| errors.to_string())?;
    let files = AddressListFiles::read(settings.address_list_files()).map_err(|errors| errors.to_string())?;
    settings.warnings.extend(loopback_listener_warning(&settings));
    settings.warnings.extend(robots_override_warning(&settings));
    settings.warnings.extend(crawlers::range_file_warnings(&settings));
    settings.warnings.extend(crawlers::reassigned_tokens(&settings));
    Ok(summary(&settings, files.lists().network_counts()))
}

/// Returns a warning if the gateway listens on loopback only and reads no address header: it has a proxy in front, or
/// local clients only.
fn loopback_listener_warning(settings: &Settings) -> Option<String> {
    let only_local = settings.listen.iter().all(|address| address.ip().is_loopback());
    (only_local && settings.rules.trust.source == AddressSource::Peer).then(|| {
        "clients.address_from: peer, and the gateway listens on loopback only: behind a proxy all clients share one address, and \
         no crawler can be verified; write clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8, \
         \"::1/128\"] }"
            .into()
    })
}

/// Returns a warning if `robots.override_file` is unreadable. This is not an error: the file may exist at the start.
fn robots_override_warning(settings: &Settings) -> Option<String> {
    let file = settings.robots.override_file.as_deref()?;
    let error = robots::read_own(file).err()?;
    Some(format!(
        "robots.override_file: {} cannot be read: {error}; the origin's robots.txt is served until it can",
        file.display()
    ))
}

/// Returns the summary of `settings`: listeners, quotas, classes in order, scopes, routes with their costs, and
/// warnings. `networks` is the number of networks of each address list.
pub fn summary(settings: &Settings, networks: &[usize]) -> String {
    let (rules, operators) = (&settings.rules, &settings.operator_names);
    let mut text = String::new();
    let mut line = |content: String| writeln!(text, "{content}").unwrap_or(());

    let listen: Vec<String> = settings.listen.iter().map(ToString::to_string).collect();
    line(format!("listening on {}, forwarding to {}", listen.join(", "), settings.origin.authority));
    if let Some(admin) = &settings.admin {
        line(format!("admin listener: {}{}", admin.listen, if admin.token.is_some() { ", with a token" } else { "" }));
    }
    line(match &settings.log.access {
        AccessLog::Off => "access log: off".into(),
        AccessLog::Stdout => "access log: standard output".into(),
        AccessLog::File { path } => format!("access log: {}", path.display()),
    });

    line(ledger::ledger(&settings.ledger, &settings.state_dir));

    line(format!("crawlers: {}", crawlers::verify(&settings.verify)));
    line(match &rules.bot_detection {
        None => "bot detection: off".into(),
        Some(BotDetection { threshold, half_life, .. }) => {
            format!("bot detection: from a bot score of {threshold}, half-life {}", format::duration(*half_life))
        }
    });
    if !settings.operators.is_empty() {
        line(format!("\noperators, added or changed: {}", settings.operators.len()));
        let builtin = OperatorTable::builtin();
        settings.operators.iter().for_each(|operator| line(format!("  {}", crawlers::operator(operator, &builtin))));
    }
    if !settings.address_lists.is_empty() {
        line(format!("\naddress lists: {}", settings.address_lists.len()));
        for (list, count) in settings.address_lists.iter().zip(networks) {
            line(format!("  {}: {} in {}", list.name, count_text(*count), list.override_file.display()));
        }
    }

    line(format!("\nquotas: {}", rules.quotas.len()));
    for quota in &rules.quotas {
        line(format!(
            "  {}: {} units, {}{}",
            quota.name,
            quota.limit,
            quotas::window(&quota.window),
            format::shadow(quota.enforce)
        ));
        quotas::pacing(quota, &rules.classes).into_iter().for_each(|content| line(format!("    {content}")));
        quotas::origin_headers(quota).into_iter().for_each(|content| line(format!("    {content}")));
        for (class, tiers) in rules.classes.iter().zip(&quota.class_tiers) {
            if let Some(tiers) = tiers {
                line(format!("    {}: {}", class.name, quotas::tiers(quota, tiers)));
            }
        }
    }

    line(format!("\nclasses, first match wins: {}", rules.classes.len()));
    for (id, class) in (0..).map(ClassId).zip(&rules.classes) {
        let paced = |quota: &Quota| quota.pacing.as_ref().is_some_and(|pacing| pacing.is_paced(id));
        let is_shed = rules.quotas.iter().any(|quota| quota.tiers_for(id).is_some() || paced(quota));
        line(format!("  {}", classes::class(class, is_shed, operators, &rules.address_list_names)));
    }

    let throttled: Vec<String> = rules.scopes.iter().filter_map(scopes::scope).collect();
    if !throttled.is_empty() {
        line(format!("\nthrottled scopes: {} of {}", throttled.len(), rules.scopes.len()));
        throttled.into_iter().for_each(|content| line(format!("  {content}")));
    }

    line(format!("\nroutes, first match wins: {}", rules.routes.len()));
    rules.routes.iter().for_each(|route| line(format!("  {}", routes::route(route, rules))));

    crawlers::robots(settings, operators).into_iter().for_each(&mut line);
    line(crawlers::crawl_policy(settings.crawl_policy.as_ref()));

    if !settings.warnings.is_empty() {
        line("\nwarnings:".into());
        settings.warnings.iter().for_each(|warning| line(format!("  {warning}")));
    }
    text
}
