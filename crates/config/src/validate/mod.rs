//! Validates the raw values and converts them to [`Settings`].
//!
//! Each file covers one section. It adds errors to [`Diagnostics`] and continues with a safe value instead. The
//! resulting settings are used only if there is no error.

mod acme;
mod address_lists;
mod api_keys;
mod bot_detection;
mod cache;
pub(super) mod classes;
mod clients;
pub(super) mod credentials;
pub(super) mod diagnostics;
mod error_pages;
mod forward_auth;
mod header_rules;
mod ledger;
mod listen;
mod log;
mod notify;
mod origin;
mod partition;
mod promise;
mod quotas;
mod receiver_url;
mod redirects;
mod redis_url;
mod request_conditions;
mod rewrites;
mod robots;
mod route_names;
mod routes;
mod scopes;
mod server;
mod spelling;
mod stated_costs;
mod traces;
mod verify;

use super::error::ConfigError;
use super::raw;
use super::raw::compression::{Compression, CompressionKeys};
use super::sections::api_keys::api_keys;
use super::sections::crawl_policy::CrawlPolicyDocument;
use super::sections::sessions::SessionsForm;
use super::setting_path::SettingPath;
use super::settings::{CrawlerOperator, DefaultValue, Settings};
use super::source_map::SourceMap;
use diagnostics::Diagnostics;
use quotas::Quotas;
use std::sync::Arc;
use tidegate_policy::Rules;
use tidegate_policy::compression::CompressionRules;
use tidegate_policy::exempt::OwnDocuments;
use tidegate_policy::secret::Secret;

/// Returns the settings of `raw`, and all errors, including those in `errors`. `defaults` are the values that `raw` has and
/// the file has not.
pub(super) fn validate(
    raw: &raw::File,
    operators: &[&str],
    defaults: Vec<DefaultValue>,
    source_map: SourceMap,
    errors: Vec<ConfigError>,
) -> (Settings, Vec<ConfigError>) {
    let mut report = Diagnostics::new(source_map, errors);
    let listen = listen::listen(raw, &mut report);
    listen::check_address_source(raw, &listen, &mut report);
    let admin = server::admin(raw, &listen, &mut report);
    let forward_auth = forward_auth::forward_auth(raw, &listen, admin.as_ref(), &mut report);
    let origins = origin::origins(raw, &listen, &mut report);
    let hosts = server::hosts(raw, &mut report);
    acme::warn_foreign_domains(&listen, hosts.as_ref(), &mut report);
    let mut limits = raw.limits.clone();
    limits.limits_local_connections = report.is_set(&SettingPath::ROOT.limits().max_connections_per_address());
    let error_pages = error_pages::error_pages(raw, &mut report);
    let state_dir = server::state_dir(raw);
    let log = log::log(&raw.log, &state_dir, &mut report);
    let webhooks = notify::webhooks(&raw.notify, &mut report);
    let traces = traces::traces(raw.traces.as_ref(), &mut report);

    let trust = clients::proxy_trust(&raw.clients, &mut report);
    let path = SettingPath::ROOT.clients();
    let asn_database = clients::database(raw.clients.asn_database.as_ref(), &path.asn_database(), &report);
    let country_database = clients::database(raw.clients.country_database.as_ref(), &path.country_database(), &report);
    let agent_rules = classes::user_agent_rules(&raw.user_agent_rules, &mut report);
    let crawler_operators = verify::operators(&raw.operators, operators, &mut report);
    let operator_names = merge_operator_names(operators, &crawler_operators);
    let operators: Vec<&str> = operator_names.iter().map(String::as_str).collect();
    let lists = address_lists::lists(&raw.address_lists, &mut report);
    let list_names: Vec<String> = lists.iter().map(|list| list.name.clone()).collect();
    let mut classes = classes::classes(&raw.classes, &operators, &list_names, &mut report);
    classes::apply_sessions(&mut classes, &raw.sessions, &mut report);
    listen::check_certificate_classes(&classes, &listen, &mut report);
    classes::check_needs(raw, &mut report);
    let scopes = scopes::scopes(&raw.scopes, &mut report);
    let Quotas { mut quotas, scope_quotas, customer } = quotas::quotas(&raw.quotas, &raw.scopes, &classes, &mut report);
    let api_keys = api_keys(&raw.api_keys, &classes, &mut quotas, customer.as_ref(), &mut report);
    api_keys::check_use(raw, customer.as_ref(), &mut report);
    notify::check_quota_events(&raw.notify, &quotas, &mut report);
    let promise = promise::promise(&raw.promise, &quotas, &classes, &mut report);
    let (cache, cache_rules) = cache::cache(raw.cache.as_ref(), &mut report).unzip();
    let context = routes::RouteContext {
        quotas: &quotas,
        scopes: &scopes,
        scope_quotas: &scope_quotas,
        origins: &origins,
        // An invalid section is reported once, not at each route.
        is_cache_enabled: cache.is_some() || report.has_error_at(&SettingPath::ROOT.cache()),
    };
    let mut routes = routes::routes(&raw.routes, &context, &mut report);
    let redirects = redirects::redirects(&raw.routes, &mut report);
    redirects::check_loops(&routes, &redirects, hosts.as_ref(), &listen, &mut report);
    let header_rules = header_rules::header_rules(&raw.routes, &mut report);
    let response_timeouts = routes::response_timeouts(&raw.routes, &mut report);
    partition::check_use(&scopes, &routes, &mut report);
    scopes::warn_unused(&scopes, &scope_quotas, &routes, &mut report);
    origin::check_use(&origins, &scopes, &routes, &mut report);
    // Last: the checks read the paths in the names.
    route_names::tell_apart(&mut routes);
    let ledger = ledger::ledger(raw, &quotas, &mut report);
    let verify = verify::verify(&raw.verify);
    let range_files = verify::range_files(&raw.operators, &report);
    verify::warn_unfetched(&raw.operators, &verify, &mut report);
    let robots = robots::robots(raw, &classes, &operators, &mut report);
    let bot_detection = bot_detection::bot_detection(raw, robots.honeypot.as_deref(), &mut report);

    let crawl_policy = match &raw.crawl_policy {
        CrawlPolicyDocument::Off => None,
        CrawlPolicyDocument::On(policy) => Some(policy.clone()),
    };

    let own_documents = OwnDocuments { crawl_policy: crawl_policy.is_some(), usage: raw.headers.usage };
    let compression = raw.compression.clone().map(|Compression(keys)| keys);
    let rules = Rules {
        trust,
        api_keys,
        customer,
        bot_detection,
        address_list_names: list_names,
        user_agent_rules: agent_rules,
        classes,
        quotas,
        route_fields: routes::route_fields(&routes),
        routes,
        path_policy: server::path_policy(raw.paths),
        scopes,
        own_documents,
        cache: cache_rules,
        compression: compression.map(|CompressionKeys { codings, min_size, types }| CompressionRules {
            codings,
            min_size,
            types,
        }),
    };
    let rules = Arc::new(rules);
    let workers = raw.workers.as_ref().and_then(|threads| threads.0);
    let (source_map, errors, warnings) = report.into_parts();
    let settings = Settings {
        listen,
        workers,
        admin,
        forward_auth,
        state_dir,
        ledger,
        origins,
        hosts,
        limits,
        text: Secret::new(String::new()),
        api_key_file: None,
        headers: raw.headers.clone(),
        error_pages,
        robots,
        crawl_policy,
        cache,
        log,
        webhooks,
        traces,
        promise,
        operators: crawler_operators,
        operator_names,
        verify,
        sessions: match &raw.sessions {
            SessionsForm::Off => None,
            SessionsForm::On(sessions) => Some(sessions.clone()),
        },
        asn_database,
        country_database,
        rules,
        redirects,
        header_rules,
        response_timeouts,
        address_lists: lists,
        range_files,
        defaults,
        warnings,
        source_map,
    };
    (settings, errors)
}

/// Returns the names of all operators. Known ones keep their ids; those that the file adds follow.
fn merge_operator_names(known: &[&str], added: &[CrawlerOperator]) -> Vec<String> {
    let new = added.iter().map(|operator| operator.name.as_str()).filter(|name| !known.contains(name));
    known.iter().copied().chain(new).map(str::to_owned).collect()
}
