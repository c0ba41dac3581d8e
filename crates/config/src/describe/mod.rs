//! Summary of the settings, as `tidegate check` and a reload print it.

mod cache;
mod classes;
mod compression;
mod crawlers;
mod format;
mod ledger;
mod listen;
mod notifications;
mod quotas;
mod routes;
mod scopes;
#[cfg(test)]
mod tests;

use super::Settings;
use super::scalars::Size;
use super::settings::{AccessLog, AccessLogFormat, ErrorPage, ForwardAuth, LogRotation, Traces};
use std::fmt::Write as _;
use tidegate_policy::bot_detection::BotDetection;
use tidegate_policy::exempt::Exemption;
use tidegate_policy::quota::Quota;
use tidegate_policy::{ClassId, RouteId};

/// The built-in operators, from which the file may take product tokens and agents.
pub struct BuiltinOperators<'a> {
    /// Names of the operators.
    pub names: Vec<&'a str>,
    /// Product tokens, each with the name of its operator.
    pub product_tokens: Vec<(&'a str, &'a str)>,
    /// Signature agents, each with the name of its operator.
    pub signature_agents: Vec<(&'a str, &'a str)>,
}

/// Returns the summary of `settings`: listeners, quotas, classes in order, scopes, routes with their costs, and
/// warnings. `networks` is the number of networks of each address list.
pub fn summary(settings: &Settings, networks: &[usize], builtin: &BuiltinOperators<'_>) -> String {
    let (rules, operators) = (&settings.rules, &settings.operator_names);
    let mut text = String::new();
    let mut line = |content: String| writeln!(text, "{content}").unwrap_or(());

    let addresses: Vec<String> = settings.listen.iter().map(|listener| listener.address.to_string()).collect();
    line(format!("listening on {}, forwarding to {}", addresses.join(", "), settings.authorities()));
    settings.listen.iter().filter_map(listen::listener).for_each(|content| line(format!("  {content}")));
    line(format!("address of a client: {}", listen::client_address(&rules.trust, &settings.listen)));
    if let Some(hosts) = &settings.hosts {
        line(format!("own hosts: {hosts}"));
    }
    if let Some(admin) = &settings.admin {
        line(format!("admin listener: {}{}", admin.listen, if admin.token.is_some() { ", with a token" } else { "" }));
    }
    if let Some(ForwardAuth { listen, settle_after, .. }) = &settings.forward_auth {
        let settle_after = format::duration(*settle_after);
        line(format!("listener for other proxies: {listen}, settles as expected after {settle_after}"));
    }
    line(match &settings.log.access {
        AccessLog::Off => "access log: off".into(),
        AccessLog::Stdout => "access log: standard output".into(),
        AccessLog::File { path, rotation, format } => {
            let format = match format {
                AccessLogFormat::Json => "",
                AccessLogFormat::Combined => ", in combined format",
            };
            let rotation = rotation.map_or(String::new(), |LogRotation { max_size, keep }| {
                format!(", rotated at {}, {keep} earlier files", Size(max_size))
            });
            format!("access log: {}{format}{rotation}", path.display())
        }
    });

    notifications::promise(&settings.promise).into_iter().for_each(&mut line);
    settings.webhooks.iter().for_each(|webhook| line(notifications::webhook(webhook)));
    if let Some(Traces { endpoint, sample, slow }) = &settings.traces {
        let slow = format::duration(*slow);
        line(format!("traces: {sample} of requests, refusals, failures, and what takes {slow}, to {endpoint}"));
    }

    if !settings.error_pages.is_empty() {
        let pages: Vec<String> = settings.error_pages.iter().map(ErrorPage::to_string).collect();
        line(format!("error pages, of the gateway's own responses: {}", pages.join(", ")));
    }

    line(ledger::ledger(&settings.ledger, &settings.state_dir));

    line(format!("cache: {}", cache::cache(settings.cache, rules.cache.as_ref())));
    line(format!("compression: {}", compression::compression(rules.compression.as_ref())));

    line(format!("crawlers: {}", crawlers::verify(&settings.verify)));
    if let Some(sessions) = &settings.sessions {
        line(format!("sessions: {}", classes::sessions(sessions)));
    }
    line(match &rules.bot_detection {
        None => "bot detection: off".into(),
        Some(BotDetection { threshold, half_life, .. }) => {
            format!("bot detection: from a bot score of {threshold}, half-life {}", format::duration(*half_life))
        }
    });
    if !settings.operators.is_empty() {
        line(format!("\noperators, added or changed: {}", settings.operators.len()));
        settings.operators.iter().for_each(|operator| line(format!("  {}", crawlers::operator(operator, builtin))));
    }
    if !settings.address_lists.is_empty() {
        line(format!("\naddress lists: {}", settings.address_lists.len()));
        for (list, count) in settings.address_lists.iter().zip(networks) {
            line(format!("  {}: {} in {}", list.name, network_count(*count), list.file.display()));
        }
    }

    line(format!("\nquotas: {}", rules.quotas.len()));
    for quota in &rules.quotas {
        line(format!(
            "  {}: {} {}, {}{}",
            quota.name,
            quota.limit,
            quota.limit.noun(),
            quotas::window(&quota.window),
            format::shadow(quota.enforce)
        ));
        quotas::budget(quota, rules).into_iter().for_each(|content| line(format!("    {content}")));
        quotas::client_limit(quota).into_iter().for_each(|content| line(format!("    {content}")));
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
    let ids = (0..rules.routes.len()).map(RouteId::from_index);
    ids.for_each(|id| line(format!("  {}", routes::route(id, settings))));

    line("\nnot use: free, and never refused for units:".into());
    let has_effect = |exemption: &&Exemption| match exemption {
        Exemption::CrawlPolicy => rules.own_documents.crawl_policy,
        Exemption::Usage => rules.own_documents.usage,
        Exemption::RobotsTxt | Exemption::AcmeChallenge | Exemption::Preflight => true,
    };
    Exemption::ALL.iter().filter(has_effect).for_each(|exemption| line(format!("  {}", exemption.description())));

    crawlers::robots(settings, operators).into_iter().for_each(&mut line);
    line(crawlers::crawl_policy(settings.crawl_policy.as_ref()));

    if !settings.defaults.is_empty() {
        line("\nnot in the file, so by default:".into());
        let values = settings.defaults.iter().map(ToString::to_string);
        values.for_each(|value| line(format!("  {}", value.replace('\n', "\n  "))));
    }
    if !settings.warnings.is_empty() {
        line("\nwarnings:".into());
        settings.warnings.iter().for_each(|warning| line(format!("  {warning}")));
    }
    text
}

/// Formats a number of networks: `1 network`, `2 networks`.
pub fn network_count(networks: usize) -> String {
    if networks == 1 { "1 network".into() } else { format!("{networks} networks") }
}
