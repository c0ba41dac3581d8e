//! `tidegate check`: validates a configuration file and prints a summary or all errors.

#[cfg(test)]
mod tests;

use crate::gateway::{ErrorPages, OriginServers};
use crate::service::{certificates, crawlers, notify, traces};
use std::io::ErrorKind;
use std::path::Path;
use tidegate_config::settings::{CrawlerOperator, Listener, RangeFile};
use tidegate_config::{self as config, Settings, describe};
use tidegate_crawlers::address_list_files::AddressListFiles;
use tidegate_crawlers::robots;
use tidegate_crawlers::verify::{self, OperatorTable};
use tidegate_engine::clock::Clock;
use tidegate_engine::files;
use tidegate_policy::class::{Class, ClassMatcher};
use tidegate_policy::identity::AddressSource;
use tidegate_policy::{ClassId, ClientKind, QuotaId, Rules};

/// Reads `file` and returns its summary. `Err` contains all errors, one per line.
pub fn check(file: &Path, environment: &[(String, String)], operators: &[&str]) -> Result<String, String> {
    let mut settings = config::read(file, environment, &[], operators).map_err(|errors| errors.to_string())?;
    let files = AddressListFiles::read(settings.address_list_files()).map_err(|errors| errors.to_string())?;
    crawlers::network_databases(&settings)?;
    OriginServers::all(&settings)?;
    ErrorPages::read(&settings)?;
    let now = Clock::system().now();
    let (tls_files, _) = certificates::read(&settings, now, 0).map_err(|errors| errors.to_string())?;
    notify::webhook_clients(&settings).map_err(|errors| errors.to_string())?;
    traces::check(&settings).map_err(|error| format!("traces: {error}"))?;
    settings.warnings.extend(tls_files.expired_warnings(now.seconds()));
    settings.warnings.extend(certificates::uncovered_host_warnings(&settings, &tls_files));
    settings.warnings.extend(loopback_listener_warning(&settings));
    settings.warnings.extend(state_dir_warning(&settings));
    settings.warnings.extend(unbounded_client_warnings(&settings.rules));
    settings.warnings.extend(unbounded_connections_warning(&settings.rules));
    settings.warnings.extend(uncharged_quota_warnings(&settings.rules));
    settings.warnings.extend(forward_auth_sessions_warning(&settings));
    settings.warnings.extend(robots_override_warning(&settings));
    settings.warnings.extend(range_file_warnings(&settings));
    let builtin = OperatorTable::builtin();
    settings.warnings.extend(reassigned_token_warnings(&settings, &builtin));
    settings.warnings.extend(foreign_signature_warning(&settings, &builtin));
    Ok(describe::summary(&settings, files.lists().network_counts(), &crawlers::builtin_operators(&builtin)))
}

/// Returns the text of `file` with the classes and keys of quotas that it leaves out. `Err` contains all errors of the
/// file, or where its layout has no place for them.
pub fn explain_defaults(file: &Path, environment: &[(String, String)], operators: &[&str]) -> Result<String, String> {
    let load = |text: &str| config::load(file, text, environment, &[], operators).map_err(|errors| errors.to_string());
    let text = config::read_text(file).map_err(|errors| errors.to_string())?;
    let settings = load(&text)?;
    let written = config::write_out(&text, &settings);
    let means_the_same = |written: &String| {
        load(written).is_ok_and(|written| {
            written.defaults.is_empty() && format!("{:?}", written.rules) == format!("{:?}", settings.rules)
        })
    };
    written.filter(means_the_same).ok_or_else(|| {
        let hint =
            "write the keys of each quota in the file, each on a line of its own, or see the end of `tidegate check`";
        format!("{}: the defaults do not fit into its layout, or are of a key that it has not; {hint}", file.display())
    })
}

/// Returns a warning if the gateway listens on loopback only and learns no address of a client: it has a proxy in front,
/// or local clients only.
fn loopback_listener_warning(settings: &Settings) -> Option<String> {
    // A proxy in front has the certificates.
    let is_local =
        |listener: &Listener| listener.address.ip().is_loopback() && !listener.proxy_protocol && listener.tls.is_none();
    let only_local = settings.listen.iter().all(is_local);
    (only_local && settings.rules.trust.source == AddressSource::Peer).then(|| {
        "clients.address_from: peer, and the gateway listens on loopback only: behind a proxy all clients share one address, and \
         no crawler can be verified; write clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8, \
         \"::1/128\"] }"
            .into()
    })
}

/// Returns a warning for each quota of which one client may spend everything: it has no `per_client`, and a class has
/// neither a bucket nor tiers.
fn unbounded_client_warnings(rules: &Rules) -> Vec<String> {
    let costs = |id: QuotaId| rules.routes.iter().any(|route| route.has_cost_in(id));
    let warning = |id: QuotaId| {
        let quota = &rules[id];
        let is_unbounded = |class: &ClassId| {
            let Class { blocked, bucket, .. } = &rules[*class];
            !blocked && bucket.is_none() && quota.tiers_for(*class).is_none() && !is_unreachable(rules, *class)
        };
        let classes = (0..rules.classes.len()).map(ClassId::from_index).filter(is_unbounded);
        let names: Vec<&str> = classes.map(|class| rules[class].name.as_str()).collect();
        let is_spendable =
            quota.enforce && quota.budget.is_none() && quota.client_limit.is_none() && costs(id) && !names.is_empty();
        is_spendable.then(|| {
            format!(
                "quotas.{name}.per_client: not set, so one client of the class {classes} may spend the whole window; write per_client: 5%, \
                 or a bucket for the class",
                name = quota.name,
                classes = names.join(" or "),
            )
        })
    };
    (0..rules.quotas.len()).map(QuotaId::from_index).filter_map(warning).collect()
}

/// Returns a warning for each quota that no request is charged to.
fn uncharged_quota_warnings(rules: &Rules) -> Vec<String> {
    let is_uncharged =
        |id: &QuotaId| !rules[*id].has_reported_costs() && !rules.routes.iter().any(|route| route.has_cost_in(*id));
    let warning = |id: QuotaId| {
        let name = &rules[id].name;
        format!(
            "quotas.{name}: no request is charged, so nothing is limited; write routes: [{{ match: \"/**\", cost: {{ {name}: 1 }} }}], \
             or cost_header or cost_json with where a response has its cost"
        )
    };
    (0..rules.quotas.len()).map(QuotaId::from_index).filter(is_uncharged).map(warning).collect()
}

/// Returns a warning if another proxy asks and there are sessions: it passes no cookie on.
fn forward_auth_sessions_warning(settings: &Settings) -> Option<String> {
    (settings.sessions.is_some() && settings.forward_auth.is_some()).then(|| {
        "sessions: clients of a proxy that asks at forward_auth get no cookie, so all of its people are strangers"
            .into()
    })
}

/// Returns true if the classes before `class` certainly match every client.
fn is_unreachable(rules: &Rules, class: ClassId) -> bool {
    let has_only_kinds = |class: &&Class| ClassMatcher { kinds: Vec::new(), ..class.matcher.clone() }.matches_all();
    let earlier: Vec<&Class> = rules.classes[..class.index()].iter().filter(has_only_kinds).collect();
    let is_matched =
        |kind| earlier.iter().any(|class| class.matcher.kinds.is_empty() || class.matcher.kinds.contains(kind));
    ClientKind::ALL.iter().all(is_matched)
}

/// Returns a warning if no scope limits any route, so that the requests of one client may occupy all connections to the
/// origin.
fn unbounded_connections_warning(rules: &Rules) -> Option<String> {
    let is_limited = rules.routes.iter().flat_map(|route| &route.scopes).any(|scope| rules[*scope].throttle.is_some());
    (!is_limited).then(|| {
        "scopes: not set, so one client may occupy all connections to the origin; write scopes: { default: { concurrency: 64 } }"
            .into()
    })
}

/// Returns a warning if the gateway would refuse `state_dir`, because others may write to it. This is not an error: another
/// user may run the gateway.
fn state_dir_warning(settings: &Settings) -> Option<String> {
    let error = files::check_dir(&settings.state_dir).err().filter(|error| error.kind() != ErrorKind::NotFound)?;
    Some(format!("state_dir: {} is refused at the start: {error}", settings.state_dir.display()))
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

/// Returns a warning for each unusable range file. The gateway starts without such a file and loads it once it is
/// valid.
fn range_file_warnings(settings: &Settings) -> Vec<String> {
    let warning = |RangeFile { file, location: named_at, .. }: &RangeFile| {
        let error = verify::validate_file(file)?;
        Some(format!("{named_at}: {} cannot be used: {error}; it verifies no client until it can", file.display()))
    };
    settings.range_files.iter().filter_map(warning).collect()
}

/// Returns a warning for each built-in product token that the file moves to another operator. The genuine crawlers of
/// the previous operator then fail verification.
fn reassigned_token_warnings(settings: &Settings, builtin: &OperatorTable) -> Vec<String> {
    let mut warnings = Vec::new();
    for (token, previous) in builtin.product_tokens() {
        let previous = builtin.name(previous);
        let claims_token = |operator: &&CrawlerOperator| {
            operator.name != previous
                && operator.product_tokens.iter().flatten().any(|claimed| claimed.eq_ignore_ascii_case(token))
        };
        let Some(new_operator) = settings.operators.iter().find(claims_token) else { continue };
        let is_exhaustive = new_operator.exhaustive.as_ref().is_some_and(|complete| !complete.is_empty());
        let consequence = if is_exhaustive { "impostors" } else { "declared bots" };
        warnings.push(format!(
            "operators.{name}.product_tokens: {token} moves from {previous} to {name}, so genuine crawlers of {previous} are {consequence}, \
             unless the ranges, dns_names or signature_agents of {name} verify them",
            name = new_operator.name
        ));
    }
    warnings
}

/// Returns a warning if classes or operators of the file rely on signatures and `hosts` is not set: a client can send
/// what an agent signed for another site, with the host of that site.
fn foreign_signature_warning(settings: &Settings, builtin: &OperatorTable) -> Option<String> {
    if settings.hosts.is_some() || settings.verify.signatures.is_none() {
        return None;
    }
    let changed = |name: &str| settings.operators.iter().find(|operator| operator.name == name);
    let signs = |name: &str| match changed(name).and_then(|operator| operator.signature_agents.as_ref()) {
        Some(agents) => !agents.is_empty(),
        None => builtin.signature_agents().any(|(_, operator)| builtin.name(operator) == name),
    };
    let is_named = |name: &str, index: usize| {
        let classes = &settings.rules.classes;
        changed(name).is_some_and(|operator| operator.signature_agents.is_some())
            || classes.iter().any(|class| class.matcher.operators.iter().any(|operator| operator.index() == index))
    };
    let names = settings.operator_names.iter().enumerate();
    let signing: Vec<&str> =
        names.filter(|(index, name)| is_named(name, *index) && signs(name)).map(|(_, name)| name.as_str()).collect();
    (!signing.is_empty()).then(|| {
        format!(
            "hosts: not set, so a signature that {} made for another site counts here, too; write hosts: [example.com] \
             with the hosts of your site",
            signing.join(" or ")
        )
    })
}
