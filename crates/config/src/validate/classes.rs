//! Validates `classes` with their buckets and crawler guards, and `user_agent_rules`.

use super::credentials::credential_source;
use super::diagnostics::Diagnostics;
use super::request_conditions;
use super::spelling::check_patterns;
use crate::raw::File;
use crate::raw::classes::{self as raw, Agent};
use crate::sections::sessions::SessionsForm;
use crate::serde_forms::SecretText;
use crate::setting_path::SettingPath;
use http::StatusCode;
use std::time::Duration;
use tidegate_policy::address_lists::{AddressLists, ListSet};
use tidegate_policy::bucket::Bucket;
use tidegate_policy::class::{ApiKeys, Class, ClassMatcher, KeyCondition, UserAgentRule, UserAgentRules};
use tidegate_policy::crawler_guard::CrawlerGuard;
use tidegate_policy::identity::KeySource;
use tidegate_policy::session::Session;
use tidegate_policy::words::Words;
use tidegate_policy::{ClientKind, ListId, OperatorId};

/// Name of the class of clients without a match.
pub(crate) const OTHER_CLASS: &str = "other";

/// Maximum number of classes, and of user agent rules. Ids are small numbers.
const MAX_CLASSES: usize = 1000;

/// Minimum length of an API key without a warning, in characters; shorter keys can be guessed.
const MIN_KEY_LEN: usize = 16;

/// Error of an API key without text, and what to do.
const NO_KEY: &str = "no API key";
const WRITE_KEY: &str = "write it, or ${NAME} to read it from the environment";

pub(super) fn user_agent_rules(raw: &[Agent], report: &mut Diagnostics) -> UserAgentRules {
    let path = SettingPath::ROOT.user_agent_rules();
    report.check_len(&path, "rules", raw.len(), MAX_CLASSES, "merge rules into shorter substrings");
    let rule = |(index, agent): (usize, &Agent)| {
        let contains = agent.contains.clone().unwrap_or_default();
        let path = path.index(index);
        if contains.is_empty() {
            report.error(&path.match_pattern(), "is empty", "write a substring of the user agent, such as AcmeMonitor");
        }
        if agent.kind.is_none() {
            report.error(&path.kind(), "missing", "write a kind such as human");
        }
        UserAgentRule { contains, kind: agent.kind.map_or(ClientKind::Human, Into::into) }
    };
    let rules = UserAgentRules::new(raw.iter().enumerate().map(rule).collect());
    rules.unwrap_or_else(|| {
        report.error(&path, TOO_LONG, "write fewer or shorter ones");
        UserAgentRules::default()
    })
}

/// Error of substrings that do not fit into one automaton, of gigabytes.
const TOO_LONG: &str = "the substrings are too long";

pub(super) fn classes(
    raw: &[raw::Class],
    operators: &[&str],
    lists: &[String],
    report: &mut Diagnostics,
) -> Vec<Class> {
    report.check_len(&SettingPath::ROOT.classes(), "classes", raw.len(), MAX_CLASSES, "merge some");
    let mut classes: Vec<Class> = Vec::with_capacity(raw.len() + 1);
    for (index, raw_class) in raw.iter().enumerate() {
        let path = SettingPath::of_class(index);
        let class = class(raw_class, index, operators, lists, report);
        if let Some(earlier_index) = classes.iter().position(|earlier| earlier.name == class.name) {
            report.error(
                &path.name(),
                format!("duplicate name {:?}: {} has it, too", class.name, SettingPath::of_class(earlier_index)),
                "give each class its own name",
            );
        }
        let catch_all = classes.iter().enumerate().find(|(earlier_index, earlier)| {
            earlier.matcher.matches_all() && !report.has_error_at(&SettingPath::of_class(*earlier_index).when())
        });
        if let Some((earlier_index, earlier)) = catch_all {
            let earlier_path = SettingPath::of_class(earlier_index);
            let message = format!("unreachable: {earlier_path} ({}) matches every client", earlier.name);
            report.error(&path, message, "move it above that one");
        }
        classes.push(class);
    }
    if classes.last().is_none_or(|last| !last.matcher.matches_all()) {
        if let Some(index) = classes.iter().position(|class| class.name == OTHER_CLASS) {
            report.error(
                &SettingPath::of_class(index).name(),
                "reserved name: \"other\" is the class of clients without a match",
                "choose another name",
            );
        }
        classes.push(Class {
            name: OTHER_CLASS.into(),
            matcher: ClassMatcher::default(),
            blocked: false,
            refuse_with: StatusCode::TOO_MANY_REQUESTS,
            bucket: None,
            key: KeySource::Address,
            enforce: true,
            priority: 0,
            guard: None,
            has_client_limits: true,
        });
    }
    classes
}

fn class(raw: &raw::Class, index: usize, operators: &[&str], lists: &[String], report: &mut Diagnostics) -> Class {
    let (name, path) = (raw.name.clone().unwrap_or_default(), SettingPath::of_class(index));
    match raw.name.is_some() {
        true => report.check_name(&path.name(), &name),
        false => report.error(&path.name(), "missing", "give the class a name"),
    }
    let bucket = raw.bucket.as_ref().map(|bucket| self::bucket(bucket, &path.bucket(), report));
    let key = raw.bucket.as_ref().map(|bucket| key(&bucket.key, &path.bucket().key(), report));
    let key = key.unwrap_or_default();
    Class {
        name,
        matcher: class_matcher(&raw.when, &path.when(), operators, lists, report),
        blocked: raw.block,
        refuse_with: refuse_with(raw, &path, report),
        bucket,
        key,
        enforce: raw.enforce,
        priority: raw.priority,
        guard: guard(raw),
        has_client_limits: raw.per_client,
    }
}

/// Returns the status of the refusals of a blocked class, and reports one that no refusal can have.
fn refuse_with(raw: &raw::Class, path: &SettingPath, report: &mut Diagnostics) -> StatusCode {
    const STATUSES: [StatusCode; 3] = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS];
    let default = StatusCode::TOO_MANY_REQUESTS;
    let Some(code) = raw.refuse_with else { return default };
    let path = path.refuse_with();
    if !raw.block && code != default.as_u16() {
        report.error(&path, "has no effect without block: true", "write block: true, or leave the key out");
    }
    let status = STATUSES.into_iter().find(|status| status.as_u16() == code);
    status.unwrap_or_else(|| {
        report.error(&path, format!("found {code}"), "write 401, 403 or 429");
        default
    })
}

/// Returns the crawler guard of a class. By default it is on for a class that names operators.
fn guard(raw: &raw::Class) -> Option<CrawlerGuard> {
    let raw::GuardOptions { admit_interval, max_refused_for, budget } = match &raw.crawler_guard {
        Some(raw::Guard::Off) => return None,
        Some(raw::Guard::On(keys)) => keys.clone(),
        None if raw.when.operator.0.is_empty() => return None,
        None => raw::GuardOptions::default(),
    };
    Some(CrawlerGuard { admit_interval, max_refused_for, budget })
}

fn class_matcher(
    raw: &raw::ClassConditions,
    path: &SettingPath,
    operators: &[&str],
    lists: &[String],
    report: &mut Diagnostics,
) -> ClassMatcher {
    let mut operator_ids = Vec::new();
    for (path, operator) in with_paths(&path.operator(), &raw.operator.0) {
        operator_ids.extend(operator_id(operator, &path, operators, report));
    }
    let mut list_ids = Vec::new();
    for (path, list) in with_paths(&path.address_list(), &raw.address_list.0) {
        match lists.iter().take(AddressLists::MAX_LISTS).position(|known| known == list) {
            Some(index) => list_ids.push(ListId::from_index(index)),
            None => report.unknown_name(&path, "list", list, lists.iter().map(String::as_str)),
        }
    }
    if raw.user_agent.0.iter().any(String::is_empty) {
        report.error(&path.user_agent(), "is empty", "write a substring of the user agent, or leave the key out");
    }
    let mut paths = Vec::new();
    for (path, text) in with_paths(&path.path(), &raw.path.0) {
        paths.extend(request_conditions::pattern(text, &path, report).map(|pattern| (text.clone(), pattern)));
    }
    check_patterns(raw.certificate.0.iter().map(|name| &name.0), &path.certificate(), report);
    ClassMatcher {
        kinds: raw.kind.0.iter().copied().map(Into::into).collect(),
        operators: operator_ids,
        user_agents: Words::new(raw.user_agent.0.clone()).unwrap_or_else(|| {
            report.error(&path.user_agent(), TOO_LONG, "write fewer or shorter ones");
            Words::default()
        }),
        addresses: raw.address.0.iter().map(|range| range.0).collect(),
        keys: raw.api_key.as_ref().map(|keys| match keys {
            raw::ApiKeyForm::Own => KeyCondition::Listed,
            raw::ApiKeyForm::Given(keys) => KeyCondition::Given(api_keys(keys, &path.api_key(), report)),
        }),
        lists: ListSet::from_ids(list_ids),
        certificates: raw.certificate.0.iter().map(|name| name.0.clone()).collect(),
        paths,
        hosts: request_conditions::hosts(&raw.host.0, &path.host(), report),
        methods: request_conditions::methods(&raw.method.0),
        fields: request_conditions::fields(&raw.header, &raw.cookie, path, report),
        sessions: raw.session.0.iter().copied().map(Into::into).collect(),
        purposes: raw.purpose.0.iter().copied().map(Into::into).collect(),
        asns: raw.asn.0.clone(),
        countries: raw.country.0.iter().map(|country| country.0).collect(),
    }
}

/// Puts classes of strangers into shadow mode if sessions are in it, and warns of orders that refuse others than strangers.
pub(super) fn apply_sessions(classes: &mut [Class], sessions: &SessionsForm, report: &mut Diagnostics) {
    let SessionsForm::On(sessions) = sessions else { return };
    for class in classes.iter_mut().filter(|class| class.matcher.sessions == [Session::None]) {
        class.enforce &= sessions.enforce;
    }
    if classes.iter().all(|class| class.matcher.sessions.is_empty()) {
        report.warning("sessions: no class has the condition `session`, so that they change nothing; write { name: stranger, when: { session: none } }");
    }
    let of_strangers = |class: &Class| class.matcher.sessions == [Session::None] && class.matcher.kinds.is_empty();
    let Some(first) = classes.iter().position(of_strangers) else { return };
    let is_of_bots = |class: &&Class| {
        let matcher = &class.matcher;
        let kinds = &matcher.kinds;
        !matcher.operators.is_empty()
            || !matcher.purposes.is_empty()
            || (!kinds.is_empty() && !kinds.contains(&ClientKind::Human))
    };
    if let Some(class) = classes[first..].iter().find(is_of_bots) {
        let (path, stranger) = (SettingPath::of_class(first), &classes[first].name);
        report.warning(format!(
            "{path} ({stranger}): bots have no session and are in this class, not in {}; move it below the classes of bots, or add kind: human",
            class.name
        ));
    }
}

/// Checks that what the conditions of classes need is there: sessions, and databases of networks.
pub(super) fn check_needs(file: &File, report: &mut Diagnostics) {
    let has_sessions = !matches!(file.sessions, SessionsForm::Off);
    for (index, class) in file.classes.iter().enumerate() {
        let path = SettingPath::of_class(index).when();
        let raw::ClassConditions { session, asn, country, .. } = &class.when;
        if !session.0.is_empty() && !has_sessions {
            report.error(&path.session(), "no client has a session", "write sessions: on, or leave the condition out");
        }
        if !asn.0.is_empty() && file.clients.asn_database.is_none() {
            let hint = "write clients: { asn_database: ./asn.mmdb }";
            report.error(&path.asn(), "no database of autonomous systems", hint);
        }
        if !country.0.is_empty() && file.clients.country_database.is_none() {
            let hint = "write clients: { country_database: ./country.mmdb }";
            report.error(&path.country(), "no database of countries", hint);
        }
    }
}

/// Returns each value of a condition with its path. A single value has the path of the key.
fn with_paths<'a, T>(path: &SettingPath, values: &'a [T]) -> impl Iterator<Item = (SettingPath, &'a T)> {
    let path_at = move |index| match values.len() {
        1 => path.clone(),
        _ => path.index(index),
    };
    values.iter().enumerate().map(move |(index, value)| (path_at(index), value))
}

fn api_keys(raw: &raw::ApiKeyCondition, path: &SettingPath, report: &mut Diagnostics) -> ApiKeys {
    let source = credential_source(&raw.header, &raw.cookie, path, report);
    let values = &raw.value.0;
    if values.is_empty() {
        report.error(&path.value(), NO_KEY, WRITE_KEY);
    }
    for (path, key) in with_paths(&path.value(), values) {
        let key = key.0.expose_secret();
        if key.trim().is_empty() {
            report.error(&path, NO_KEY, WRITE_KEY);
        } else if key.trim() != key || key.bytes().any(|byte| byte.is_ascii_control()) {
            report.error(&path, "leading or trailing space, or control character", "write the key as clients send it");
        } else if key.chars().count() < MIN_KEY_LEN {
            report.warning(format!("{path}: a key of fewer than {MIN_KEY_LEN} characters can be guessed"));
        }
    }
    ApiKeys { source, values: values.iter().map(|SecretText(key)| key.clone()).collect() }
}

pub(super) fn operator_id(
    name: &str,
    path: &SettingPath,
    operators: &[&str],
    report: &mut Diagnostics,
) -> Option<OperatorId> {
    let index = operators.iter().position(|known| *known == name);
    if index.is_none() {
        report.unknown_name(path, "operator", name, operators.iter().copied());
    }
    index.map(OperatorId::from_index)
}

fn key(raw: &raw::Key, path: &SettingPath, report: &mut Diagnostics) -> KeySource {
    match raw {
        raw::Key::Address => KeySource::Address,
        raw::Key::Operator => KeySource::Operator,
        raw::Key::Class => KeySource::Class,
        raw::Key::Credential { header, cookie } => {
            KeySource::Credential(credential_source(header, cookie, path, report))
        }
    }
}

fn bucket(raw: &raw::Bucket, path: &SettingPath, report: &mut Diagnostics) -> Bucket {
    let has_batch_keys = raw.capacity.is_some() || raw.fill.is_some() || raw.interval.is_some();
    let has_rate_keys = raw.rate.is_some() || raw.burst.is_some();
    if has_batch_keys == has_rate_keys {
        let message = if has_rate_keys {
            "found both capacity, fill, interval and rate, burst"
        } else {
            "found neither capacity, fill, interval nor rate, burst"
        };
        report.error(path, message, "write { capacity: 60, fill: 10, interval: 10s } or { rate: 10/s, burst: 20 }");
    }
    let second = Duration::from_secs(1);
    let costed_only = raw.counts == raw::Counts::Costed;
    match (has_rate_keys, &raw.rate) {
        (true, rate) => {
            let (fill, interval) = rate.as_ref().map_or((1, second), |rate| rate.0);
            if rate.is_none() {
                report.error(&path.rate(), "missing", "write a rate such as 10/s");
            }
            if fill == 0 {
                report.error(&path.rate(), "found 0, needs at least 1", "write a rate such as 10/s");
            }
            let capacity = report.nonzero_count(&path.burst(), raw.burst, fill.max(1));
            if interval.as_nanos() < u128::from(fill) {
                report.error(&path.rate(), "more than one token per nanosecond", "leave the bucket out for no limit");
            }
            Bucket { capacity, fill, interval, smooth: true, costed_only }
        }
        (false, _) => {
            for (path, given) in [
                (path.capacity(), raw.capacity.is_some()),
                (path.fill(), raw.fill.is_some()),
                (path.interval(), raw.interval.is_some()),
            ] {
                if has_batch_keys && !given {
                    report.error(&path, "missing", "set all of capacity, fill and interval");
                }
            }
            let capacity = report.nonzero_count(&path.capacity(), raw.capacity, 60);
            let fill = report.nonzero_count(&path.fill(), raw.fill, 10);
            let interval = report.nonzero_duration(&path.interval(), raw.interval.as_ref().map(|span| span.0), second);
            Bucket { capacity, fill, interval, smooth: false, costed_only }
        }
    }
}
