use super::*;
use tidegate_policy::Timestamp;
use tidegate_policy::api_keys::{KeyHash, customer};
use tidegate_policy::budget::{BudgetKey, CustomerSource};

/// SHA-256 of `test`.
const HASH: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn hash() -> KeyHash {
    std::array::from_fn(|index| u8::from_str_radix(&HASH[2 * index..2 * index + 2], 16).expect("hexadecimal digits"))
}

#[test]
fn budgets_of_customers_have_the_limits_of_the_key_and_of_its_class() {
    let settings = settings(&format!(
        "origin: http://127.0.0.1:1\napi_keys: [{{ name: acme, class: pro, sha256: {HASH}, expires: 2027-01-01, limits: {{ q: 7 }} }}]\n\
         quotas: {{ q: {{ limit: 10, per: api_key, limits: {{ pro: 50 }}, max_keys: 9 }} }}\n\
         classes: [{{ name: pro, when: {{ api_key: own }} }}]\n"
    ));
    let rules = &settings.rules;
    assert_eq!(rules.customer, Some(CustomerSource::ApiKey));
    let budget = rules.quotas[0].budget.as_ref().expect("the quota has budgets");
    assert_eq!((budget.per, budget.max_keys), (BudgetKey::Customer, 9));
    let limit = |class, key| budget.limit(ClassId(class), key, rules.quotas[0].limit).floor();
    let (acme, other) = (customer("acme"), customer("other"));
    assert_eq!([limit(0, acme), limit(0, other), limit(1, other)], [7, 50, 10]);
    assert!(rules.quotas[0].pacing.is_none() && rules.quotas[0].client_limit.is_none(), "they are for all requests");
    let before = Timestamp::from_seconds(1_798_761_599);
    let is_valid = |now| rules.api_keys.get(&hash()).is_some_and(|key| key.is_valid(now));
    assert!(is_valid(before) && !is_valid(before + Duration::from_secs(1)), "2027 has begun");
}

/// Each budget is alone: what is for all requests together would measure or do nothing at it.
#[test]
fn what_is_for_all_requests_together_is_an_error_at_a_quota_with_budgets() {
    const OF_ALL: &str = "a quota with budgets cannot have it; write it at a quota without `per`, to which a route can be \
                          charged as well";
    const NOTIFY: &str = "each quota has a budget for each key, so that quota_95 never happens; leave it out, or define a \
                          quota without `per`; `tidegate usage` shows who has used up a budget";
    let receiver = "webhook: 'https://hooks.example/a'";
    for (of_quota, beside, path, message) in [
        ("tiers: { bot: [{ above: 50%, shed: 50% }] }", "", "quotas.q.tiers", OF_ALL),
        ("pacing: { mode: even, weights: { bot: 1 } }", "", "quotas.q.pacing", OF_ALL),
        ("per_client: 5%", "", "quotas.q.per_client", OF_ALL),
        ("sync_from: X-RateLimit-Remaining", "", "quotas.q.sync_from", OF_ALL),
        (
            "enforce: true",
            "promise: { left_over: 1% }",
            "promise",
            "each quota has a budget for each key; it is compared with the windows of the first quota without `per`; define one",
        ),
        ("enforce: true", &format!("notify: [{{ {receiver}, on: [quota_95, origin_down] }}]"), "notify[0].on", NOTIFY),
        (
            "enforce: true",
            "scopes: { s: { quota: { limit: 1, per: client } } }\nroutes: [{ match: /a, scopes: s }]",
            "scopes.s.quota.per",
            "the quota of a scope is for all requests together; write it at a quota, and give the routes of the scope a cost in it",
        ),
    ] {
        let file = |per: &str| {
            with_origin(&format!(
                "quotas: {{ q: {{ limit: 10, window: {{ fixed: 1h }}, {per}{of_quota} }} }}\n{beside}\n"
            ))
        };
        let errors = config_errors(&file("per: client, "));
        let expected = format!(" {path}: {message}");
        assert!(matches!(&errors[..], [error] if error.ends_with(&expected)), "{path}: {errors:?}");
        if !beside.contains("per: client") {
            assert_eq!(config_errors(&file("")), [""; 0], "{path}");
        }
    }
    // Beside one without `per`, a quota with budgets is no error.
    let both = "quotas: { q: { limit: 9, per: client }, all: { limit: 9 } }\npromise: { left_over: 1% }\n";
    assert_eq!(config_errors(&with_origin(both)), [""; 0]);
    assert_eq!(
        config_errors(&with_origin(&format!(
            "quotas: {{ q: {{ limit: 9, per: client }} }}\nnotify: [{{ {receiver} }}]"
        ))),
        [""; 0]
    );
}

#[test]
fn file_that_any_user_may_change_is_a_warning() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("temporary directory");
    let [main, keys] = ["tidegate.yaml", "keys.yaml"].map(|name| dir.path().join(name));
    let text =
        "origin: http://127.0.0.1:1\napi_keys: { file: keys.yaml }\nclasses: [{ name: pro, when: { api_key: own } }]\n";
    std::fs::write(&main, text).expect("the directory is writable");
    std::fs::write(&keys, "api_keys: []\n").expect("the directory is writable");
    let warnings = |modes: [u32; 2]| {
        for (file, mode) in [&main, &keys].into_iter().zip(modes) {
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).expect("set mode");
        }
        let mut warnings = read(&main, &[], &[], &[]).expect("valid settings").warnings;
        warnings.retain(|warning| warning.contains("any user of this system may change it"));
        warnings
    };
    assert_eq!(warnings([0o644, 0o660]), [""; 0]);
    let found = warnings([0o646, 0o666]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[1].contains("keys.yaml: any user of this system may change it (mode 666); run chmod o-w "),
        "{found:?}"
    );
}

#[test]
fn keys_are_read_from_a_file_of_their_own() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let main = dir.path().join("tidegate.yaml");
    let text =
        "origin: http://127.0.0.1:1\napi_keys: { file: keys.yaml }\nclasses: [{ name: pro, when: { api_key: own } }]\n";
    let load = |keys: &str| {
        std::fs::write(dir.path().join("keys.yaml"), keys).expect("the directory is writable");
        load(&main, text, &[], &[], &[])
    };
    let settings =
        load(&format!("api_keys:\n  - {{ name: acme, class: pro, sha256: {HASH} }}\n")).expect("valid settings");
    assert_eq!(settings.api_key_file, Some(dir.path().join("keys.yaml")));
    assert_eq!(settings.rules.api_keys.iter().count(), 1);
    assert_eq!(load("# none yet\n").expect("valid settings").rules.api_keys.iter().count(), 0);
    assert_eq!(load("api_keys: # none yet\n").expect("valid settings").rules.api_keys.iter().count(), 0);
    for (keys, expected) in [
        ("api_keys: [", "tidegate.yaml:2:11: api_keys: DIR/keys.yaml:1:11: invalid YAML"),
        ("keys: []", "tidegate.yaml:2:11: api_keys: DIR/keys.yaml has no list `api_keys`"),
        ("api_keys: { a: 1 }", "tidegate.yaml:2:11: api_keys: DIR/keys.yaml has no list `api_keys`"),
        (
            "api_keys: []\nquotas: {}",
            "tidegate.yaml:2:11: api_keys: DIR/keys.yaml:2:1: found \"quotas\" beside api_keys; keep",
        ),
        (
            "api_keys:\n  - { name: acme, class: pro, sha256: my-secret-key }",
            "keys.yaml:2:39: api_keys[0].sha256: needs the 64",
        ),
        ("api_keys:\n  - { name: acme, clas: pro }", "keys.yaml:2:19: api_keys[0].clas: unknown key"),
        ("api_keys:\n  - { name: acme, class: por }", "keys.yaml:2:26: api_keys[0].class: "),
        ("api_keys:\n  - { name: acme, name: x }", "keys.yaml:2:19: duplicate key, first in line 2"),
    ] {
        let errors = load(keys).expect_err(keys).to_string();
        let errors = errors.replace(dir.path().to_str().expect("UTF-8"), "DIR");
        assert!(errors.contains(expected), "{keys}: {errors}");
        assert!(!errors.contains("my-secret-key"), "{errors}");
    }
}

#[test]
fn customers_are_named_in_one_way() {
    let text =
        "origin: http://127.0.0.1:1\nquotas: { a: { limit: 1, per: { header: X-Key } }, b: { limit: 1, per: PER } }\n";
    assert!(config_errors(&text.replace("PER", "{ cookie: key }"))[0].contains("quotas.b.per: another quota names"));
    for per in ["{ header: x-key }", "client", "class"] {
        assert!(config_errors(&text.replace("PER", per)).is_empty(), "{per}");
    }
}

#[test]
fn limits_of_a_key_need_a_quota_that_counts_by_key() {
    for per in ["client", "class", "{ header: X-Customer }", "{ cookie: customer }"] {
        let text = format!(
            "origin: http://127.0.0.1:1\napi_keys: [{{ name: acme, class: pro, sha256: {HASH}, limits: {{ q: 7 }} }}]\n\
             quotas: {{ q: {{ limit: 10, per: {per}, window: {{ fixed: 1h }} }} }}\n\
             classes: [{{ name: pro, when: {{ api_key: own }} }}]\n"
        );
        let errors = load(Path::new("tidegate.yaml"), &text, &[], &[], &[]).expect_err(per).to_string();
        let expected = "api_keys[0].limits.q: q does not count by key; write per: api_key at the quota";
        assert!(errors.contains(expected), "{per}: {errors}");
    }
}

#[test]
fn limit_below_the_cost_of_a_route_is_reported() {
    let load_limits = |limit: &str, of_class: &str, of_key: &str| {
        let text = format!(
            "origin: http://127.0.0.1:1\napi_keys: [{{ name: acme, class: pro, sha256: {HASH}, limits: {{ q: {of_key} }} }}]\n\
             quotas: {{ q: {{ limit: {limit}, per: api_key, limits: {{ pro: {of_class} }}, window: {{ fixed: 1h }} }} }}\n\
             classes: [{{ name: pro, when: {{ api_key: own }} }}]\nroutes: [{{ match: /**, cost: {{ q: 5 }} }}]\n"
        );
        load(Path::new("tidegate.yaml"), &text, &[], &[], &[])
    };
    for (limits, lowest) in [(["10", "0.5", "10"], "0.5"), (["10", "10", "4"], "4"), (["2", "10", "10"], "2")] {
        let warnings = load_limits(limits[0], limits[1], limits[2]).expect("valid settings").warnings;
        let expected = format!("routes[0].cost.q: cost 5 exceeds the lowest limit of q, {lowest}, so that no request");
        assert!(warnings.iter().any(|warning| warning.starts_with(&expected)), "{warnings:?}");
    }
    assert_eq!(load_limits("5", "5", "5").expect("valid settings").warnings, [""; 0]);
    let errors = load_limits("4", "3", "2").expect_err("no customer is served").to_string();
    assert!(errors.contains("cost 5 exceeds the quota limit 4, so no request would be admitted"), "{errors}");
}

#[test]
fn usage_of_a_customer_is_served_only_where_customers_have_budgets() {
    let yaml = |quota: &str| {
        format!(
            "origin: http://127.0.0.1:1\nheaders: {{ usage: true }}\nquotas: {{ q: {{ limit: 10{quota} }} }}\n\
             api_keys: [{{ name: acme, class: pro, sha256: {HASH} }}]\nclasses: [{{ name: pro, when: {{ api_key: own }} }}]\n"
        )
    };
    assert!(settings(&yaml(", per: api_key")).rules.own_documents.usage);
    for quota in ["", ", per: client", ", per: { header: X-Customer }"] {
        let errors = config_errors(&yaml(quota)).join("\n");
        assert!(errors.contains("headers.usage: no customer of a listed key has a budget"), "{quota}: {errors}");
    }
}

#[test]
fn budgets_are_shared_by_all_gateways_of_a_redis() {
    let text = |per: &str, rest: &str| {
        format!(
            "origin: http://127.0.0.1:1\nledger: {{ redis: {{ url: 'redis://h' }} }}\n\
             api_keys: [{{ name: acme, class: pro, sha256: {HASH} }}]\nclasses: [{{ name: pro, when: {{ api_key: own }} }}]\n\
             quotas: {{ q: {{ limit: 10, per: {per}{rest} }} }}\n"
        )
    };
    let windows = ["day", "{ fixed: 1h }", "{ sliding: 1h }", "{ first_use: 1h }", "month"].into_iter();
    let keys = ["api_key", "client", "class", "{ header: X-Customer }", "{ cookie: customer }"];
    for (per, window) in keys.into_iter().zip(windows) {
        let settings = settings(&text(per, &format!(", window: {window}, limits: {{ pro: 20 }}, max_keys: 5")));
        assert!(matches!(settings.ledger, Ledger::Redis(_)), "{per}");
        assert_eq!(settings.rules.quotas[0].budget.as_ref().map(|budget| budget.max_keys), Some(5), "{per}");
    }
    for (rest, expected) in [
        (", max_keys: 0", "5:51: quotas.q.max_keys: found 0; write 1 to 10000000"),
        (", limits: { pro: 0 }", "5:56: quotas.q.limits.pro: found 0; write the units of each, or block the class pro"),
    ] {
        let errors = config_errors(&text("api_key", rest)).join("\n");
        assert!(errors.contains(expected), "{rest}: {errors}");
    }
}

#[test]
fn limits_beyond_what_redis_represents_are_reported_where_they_stand() {
    let errors = config_errors(&format!(
        "origin: http://127.0.0.1:1\nledger: {{ redis: {{ url: 'redis://h' }} }}\n\
         classes: [{{ name: pro, when: {{ api_key: own }} }}]\n\
         quotas: {{ q: {{ limit: 9007199254740, per: api_key, limits: {{ pro: 9007199254741 }} }} }}\n\
         api_keys: [{{ name: acme, class: pro, sha256: {HASH}, limits: {{ q: 9007199254742 }} }}]\n"
    ));
    let expected = |place: &str, limit: &str| {
        format!(
            "{place}: {limit} exceeds the maximum of Redis; write at most 9007199254740.992, or leave out ledger.redis"
        )
    };
    let places = [("4:67: quotas.q.limits.pro", "9007199254741"), ("5:125: api_keys[0].limits.q", "9007199254742")];
    assert_eq!(errors, places.map(|(place, limit)| expected(place, limit)));
}
