//! Summary lines of classes: match conditions, priority, bucket and crawler guard.

use super::format::{duration, shadow};
use crate::sections::sessions::Sessions;
use http::StatusCode;
use tidegate_policy::address_lists::ListSet;
use tidegate_policy::bucket::Bucket;
use tidegate_policy::class::{ApiKeys, Class, ClassMatcher, KeyCondition};
use tidegate_policy::crawler_guard::CrawlerGuard;
use tidegate_policy::identity::{CredentialSource, KeySource};
use tidegate_policy::{ClientKind, ListId};
/// Returns the summary line of `class`. `shed` is true if tiers or the pacing plan of a quota apply to it.
pub(super) fn class(class: &Class, shed: bool, operators: &[String], lists: &[String]) -> String {
    let bucket = class.bucket.as_ref().map_or_else(String::new, |config| format!("; {}", bucket(config, &class.key)));
    let blocked = match (class.blocked, class.refuse_with) {
        (false, _) => String::new(),
        (true, StatusCode::TOO_MANY_REQUESTS) => "; blocked".to_owned(),
        (true, status) => format!("; blocked, refused with {}", status.as_str()),
    };
    // The guard overrides tiers and plans only.
    let guard = class.guard.as_ref().filter(|_| shed).map_or_else(String::new, |config| format!("; {}", guard(config)));
    let (conditions, priority) = (conditions(&class.matcher, operators, lists), class.priority);
    let limits = if class.has_client_limits { "" } else { "; without client limits of quotas" };
    format!(
        "{}: {conditions}; priority {priority}{bucket}{limits}{guard}{blocked}{}",
        class.name,
        shadow(class.enforce)
    )
}

/// Returns the summary of sessions.
pub(super) fn sessions(Sessions { cookie, lifetime, enforce }: &Sessions) -> String {
    let enforced = if *enforce { "" } else { ", no refusal asks to come back" };
    format!("cookie {cookie}, for {}{enforced}", duration(*lifetime))
}

pub(super) fn conditions(when: &ClassMatcher, operators: &[String], lists: &[String]) -> String {
    let mut conditions = Vec::new();
    if !when.kinds.is_empty() {
        conditions.push(when.kinds.iter().map(|kind| ClientKind::name(*kind)).collect::<Vec<_>>().join(" or "));
    }
    if !when.operators.is_empty() {
        let name = |id: &tidegate_policy::OperatorId| operators.get(id.index()).map_or("?", String::as_str);
        conditions.push(when.operators.iter().map(name).collect::<Vec<_>>().join(" or "));
    }
    if !when.user_agents.is_empty() {
        conditions.push(format!("user agent contains {:?}", when.user_agents.join(" or ")));
    }
    let is_listed = |list: &ListId| when.lists.first_common(ListSet::from_ids([*list])).is_some();
    let named: Vec<&str> =
        (0..).map(ListId).zip(lists).filter(|(id, _)| is_listed(id)).map(|(_, name)| name.as_str()).collect();
    if !named.is_empty() {
        conditions.push(format!("on address list {}", named.join(" or ")));
    }
    match when.addresses.len() {
        0 => {}
        1 => conditions.push("in 1 address range".into()),
        count => conditions.push(format!("in {count} address ranges")),
    }
    if matches!(when.keys, Some(KeyCondition::Listed)) {
        conditions.push("with a listed API key of the class".into());
    }
    if let Some(ApiKeys { source, values }) = when.own_keys() {
        let location = credential_source(source);
        conditions.push(match values.len() {
            1 => format!("with the API key in {location}"),
            count => format!("with one of {count} API keys in {location}"),
        });
    }
    if !when.certificates.is_empty() {
        let names: Vec<String> = when.certificates.iter().map(ToString::to_string).collect();
        conditions.push(format!("with a certificate of {}", names.join(" or ")));
    }
    let any_of = |values: Vec<String>| values.join(" or ");
    if !when.fields.is_empty() {
        let fields: Vec<String> = when.fields.iter().map(ToString::to_string).collect();
        conditions.push(format!("with {}", fields.join(" and ")));
    }
    if !when.sessions.is_empty() {
        let sessions: Vec<&str> = when.sessions.iter().map(|session| session.description()).collect();
        conditions.push(format!("with {}", sessions.join(" or ")));
    }
    if !when.purposes.is_empty() {
        let purposes: Vec<&str> = when.purposes.iter().map(|purpose| purpose.name()).collect();
        conditions.push(format!("for {}", purposes.join(" or ")));
    }
    if !when.asns.is_empty() {
        conditions.push(format!("in {}", any_of(when.asns.iter().map(|asn| format!("AS{asn}")).collect())));
    }
    if !when.countries.is_empty() {
        conditions.push(format!("in {}", any_of(when.countries.iter().map(ToString::to_string).collect())));
    }
    if !when.methods.is_empty() {
        conditions.push(any_of(when.methods.iter().map(ToString::to_string).collect()));
    }
    if !when.hosts.is_empty() {
        conditions.push(format!("on {}", any_of(when.hosts.clone())));
    }
    if !when.paths.is_empty() {
        conditions.push(format!("paths {}", any_of(when.paths.iter().map(|(text, _)| text.clone()).collect())));
    }
    if conditions.is_empty() { "all other clients".into() } else { conditions.join(", ") }
}

pub(super) fn credential_source(source: &CredentialSource) -> String {
    match source {
        CredentialSource::Header(name) => format!("the header {name}"),
        CredentialSource::Cookie(name) => format!("the cookie {name}"),
    }
}

fn bucket(bucket: &Bucket, key: &KeySource) -> String {
    let Bucket { capacity, fill, interval, smooth, costed_only } = bucket;
    let costed_text = if *costed_only { ", costed requests only" } else { "" };
    let size = if *smooth { "burst" } else { "capacity" };
    let key_text = match key {
        KeySource::Address => "per client".into(),
        KeySource::Operator => "per operator (other clients: per address)".into(),
        KeySource::Class => "per class".into(),
        KeySource::Credential(source) => format!("per value of {}", credential_source(source)),
    };
    format!("bucket {key_text}: {size} {capacity}, refill {fill} per {}{costed_text}", duration(*interval))
}

fn guard(guard: &CrawlerGuard) -> String {
    format!(
        "crawler guard: one request per {}, no page refused for over {}, budget {}%",
        duration(guard.admit_interval),
        duration(guard.max_refused_for),
        guard.budget.ratio() * 100.0
    )
}
