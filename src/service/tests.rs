//! Tests of a service in a broken environment: invalid files, unusable directories, a ledger that does not respond.

use super::*;
use crate::admin::GatewayApi;
use crate::admin::state::ReloadFailureDocument;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use tempfile::TempDir;
use tidegate_config as config;
use tidegate_config::admin_address::AdminAddress;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_engine::LearnedDemand;
use tidegate_engine::ledger::FileStore;
use tidegate_engine::state_lock::StateLockError;
use tidegate_policy::bot_detection::{BaselineCounts, LearnedBaseline};
use tidegate_policy::pacing::week::{HOURS_PER_WEEK, HourProfile};
use tidegate_policy::{OperatorId, Units};

const NOON: Timestamp = Timestamp::from_seconds(1_800_014_400);

// --- start --------------------------------------------------------------------------------------------------------

#[test]
fn each_start_error_names_what_cannot_be_used_and_a_remedy() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().expect("a bound socket");
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("file"), "192.0.2.0/33\n").expect("directory is writable");
    let (below_file, file) = (path("file/below"), path("file"));
    for (rules, expected) in [
        ("workers: 0".to_owned(), "tidegate.yaml:8:10: workers: found 0".to_owned()),
        (format!("admin: {{ listen: {taken} }}"), format!("admin.listen: cannot listen on {taken}: ")),
        (format!("listen: {taken}"), format!("listen: cannot listen on {taken}: ")),
        (format!("log: {{ access: {{ path: {below_file} }} }}"), format!("log.access: cannot open {below_file}: ")),
        (format!("address_lists: {{ a: {{ file: {file} }} }}"), format!("{file}:1: \"192.0.2.0/33\" is not")),
        (format!("ledger: file\nstate_dir: {file}"), format!("cannot use state directory {file}: ")),
        (
            format!("ledger: {{ redis: {{ url: redis://127.0.0.1:1 }} }}\nstate_dir: {file}"),
            format!("cannot use state directory {file}: "),
        ),
    ] {
        let error = ServiceFixture::try_start(dir.path(), &rules).err().expect("the service cannot start").to_string();
        assert!(error.starts_with(&expected) && error.contains("; "), "{rules}: {error}");
    }
}

#[test]
fn a_locked_state_directory_is_not_shared() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let state = dir.path().join("state");
    let other = FileStore::open(&state, "this boot", Box::new(Timestamp::default), NOON).expect("an unused directory");
    let error = ServiceFixture::try_start(dir.path(), "ledger: file").err().expect("the directory is locked");
    assert!(matches!(&error, ServiceError::Ledger(OpenError::Locked(path)) if *path == state), "{error}");
    drop(other);
    assert!(ServiceFixture::try_start(dir.path(), "ledger: file").is_ok());
}

#[test]
fn a_failed_start_returns_its_leases_and_unlocks_the_directory() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().expect("a bound socket");
    let dir = tempfile::tempdir().expect("temporary directory");
    let rules = format!("ledger: file\n{QUOTA}");
    let error = ServiceFixture::try_start(dir.path(), &format!("listen: {taken}\n{rules}")).err();
    assert!(matches!(error, Some(ServiceError::Gateway(_))), "{error:?}");
    let fixture = ServiceFixture::try_start(dir.path(), &rules).unwrap_or_else(|error| panic!("{error}"));
    let quota = &fixture.state().handle.quotas()[0];
    assert_eq!((quota.used, quota.lost), (Units::ZERO, Units::ZERO));
}

#[test]
fn an_unreachable_ledger_keeps_the_gateway_not_ready() {
    let redis = "ledger: { redis: { url: redis://127.0.0.1:1 } }";
    let fixture = ServiceFixture::start(&format!("{redis}\n{QUOTA}"));
    assert_eq!(fixture.state().not_ready_reasons(), ["The ledger has not granted any leases yet."]);
    let error = fixture.state().state().ledger_error.expect("an error");
    assert!(error.starts_with("cannot reach "), "{error}");
    let response = fixture.get("/page");
    assert!(response.contains("\"reason\":\"ledger\""), "{response}");
    assert_eq!(
        fixture.state().set_used("api", Units::from_whole(7)),
        Ok((Units::ZERO, Units::from_whole(7))),
        "a correction is active before the ledger has it"
    );
}

// --- reload -------------------------------------------------------------------------------------------------------

#[test]
fn an_invalid_reload_reports_every_error_with_its_place_and_keeps_the_settings() {
    let fixture = ServiceFixture::start(QUOTA);
    fixture.clock.advance(Duration::from_secs(60));
    let errors = fixture.reload("quotas: { api: { limit: -1, window: { fixed: 1d } } }\nworkers: none").unwrap_err();
    let places: Vec<_> = errors.lines().filter_map(|line| line.split(": found").next()).collect();
    assert_eq!(places, ["tidegate.yaml:8:25: quotas.api.limit", "tidegate.yaml:9:10: workers"], "{errors}");
    let settings = fixture.state().settings.lock().clone();
    let failed_at = NOON + Duration::from_secs(60);
    assert_eq!(settings, loaded(NOON, Some((failed_at, &errors))));
    assert_eq!(fixture.state().handle.quotas()[0].limit, Units::from_whole(10));

    fixture.clock.advance(Duration::from_secs(60));
    fixture.reload(&QUOTA.replace("limit: 10", "limit: 20")).expect("valid settings");
    let settings = fixture.state().settings.lock().clone();
    assert_eq!(settings, loaded(NOON + Duration::from_secs(120), None));
    assert_eq!(fixture.state().handle.quotas()[0].limit, Units::from_whole(20));
}

#[test]
fn an_invalid_address_list_keeps_the_settings_and_all_lists() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("directory is writable");
        path.display().to_string()
    };
    let (valid, invalid) = (file("valid", "192.0.2.0/24\n"), file("invalid", "192.0.2.0/24\nnobody\n"));
    let fixture = ServiceFixture::start(&format!("address_lists: {{ a: {{ file: {valid} }} }}\n{QUOTA}"));
    let rules = format!("address_lists: {{ b: {{ file: {invalid} }}, c: {{ file: {valid} }} }}");
    let errors = fixture.reload(&rules).unwrap_err();
    assert!(errors.starts_with(&format!("{invalid}:2: \"nobody\" is not an address or network")), "{errors}");
    assert_eq!(fixture.list_sizes(), [("a".to_owned(), 1)]);
    assert_eq!(fixture.state().handle.quotas().len(), 1);
    assert_eq!(*fixture.state().settings.lock(), loaded(NOON, Some((NOON, &errors))));
}

#[test]
fn reordered_address_lists_keep_their_files() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let paths = ["one", "two"].map(|name| dir.path().join(name));
    std::fs::write(&paths[0], "192.0.2.0/24\n").expect("directory is writable");
    std::fs::write(&paths[1], "192.0.2.0/24\n198.51.100.0/24\n").expect("directory is writable");
    let [one, two] = [&paths[0], &paths[1]].map(|path| path.display());
    let fixture =
        ServiceFixture::start(&format!("address_lists: {{ one: {{ file: {one} }}, two: {{ file: {two} }} }}"));
    fixture.reload(&format!("address_lists: {{ two: {{ file: {two} }}, one: {{ file: {one} }} }}")).expect("valid");
    assert_eq!(fixture.list_sizes(), [("two".to_owned(), 2), ("one".to_owned(), 1)]);
    std::fs::write(&paths[0], "192.0.2.0/24\n198.51.100.0/24\n203.0.113.0/24\n").expect("directory is writable");
    fixture.service().reload_files();
    assert_eq!(fixture.list_sizes(), [("two".to_owned(), 2), ("one".to_owned(), 3)]);
    std::fs::remove_file(&paths[1]).expect("file exists");
    fixture.service().reload_files();
    assert_eq!(fixture.list_sizes(), [("two".to_owned(), 2), ("one".to_owned(), 3)], "the networks stay");
    let [warning] = &fixture.service().warnings()[..] else { panic!("{:?}", fixture.service().warnings()) };
    assert!(warning.starts_with("address_lists.two: ") && warning.ends_with("; keeping the previous version"));
}

#[test]
fn each_key_that_needs_a_restart_is_named_and_not_applied() {
    let fixture = ServiceFixture::start("operators: { acme: { product_tokens: AcmeBot } }");
    let acme = "operators: { acme: { product_tokens: AcmeBot } }";
    let addresses = || (fixture.state().addresses.listen.clone(), fixture.state().addresses.admin.clone());
    let before = addresses();
    for (key, rules) in [
        ("listen", "listen: 127.0.0.2:0"),
        ("workers", "workers: 2"),
        ("admin", "admin: off"),
        ("admin", "admin: { listen: 127.0.0.1:0, token: a-token-that-is-long }"),
        ("state_dir", "state_dir: elsewhere"),
        ("ledger", "ledger: file"),
        ("operators", "operators: { acme: { product_tokens: OtherBot } }"),
        ("verify.dns", "verify: { refresh_interval: off }"),
        ("verify.refresh_interval", "verify: { dns: off }"),
        ("log.access", "log: { access: stdout }"),
        ("log.level", "log: { access: off, level: error }"),
        ("limits.max_tracked_clients", "limits: { max_tracked_clients: 5 }"),
    ] {
        let rules = if key == "operators" { rules.to_owned() } else { format!("{acme}\n{rules}") };
        let summary = fixture.reload(&rules).unwrap_or_else(|errors| panic!("{rules}: {errors}"));
        let named = summary.lines().filter_map(|line| line.strip_suffix(": takes effect at the next start"));
        assert_eq!(named.collect::<Vec<_>>(), [key], "{rules}");
        let warning = format!("{key}: changed in the file, takes effect at the next start");
        assert!(fixture.service().warnings().contains(&warning), "{rules}: {:?}", fixture.service().warnings());
        assert_eq!(addresses(), before, "{rules}");
    }
    let summary = fixture.reload(acme).expect("valid settings");
    assert!(!summary.contains("next start"), "{summary}");
    assert_eq!(fixture.service().warnings(), [""; 0], "the file is the one of the start");
}

#[test]
fn a_file_that_the_next_start_would_refuse_is_not_loaded() {
    let class = "classes: [{ name: acme, when: { operator: acme } }]";
    let fixture = ServiceFixture::start(&format!("operators: {{ acme: {{ product_tokens: AcmeBot }} }}\n{class}"));
    let warnings = fixture.state().warnings();
    let errors = fixture.reload(class).expect_err("no operator acme at the next start");
    assert!(errors.starts_with("tidegate.yaml:9:43: classes[0].when.operator: "), "{errors}");
    assert_eq!(fixture.state().warnings(), warnings, "nothing is pending");
}

// --- control ------------------------------------------------------------------------------------------------------

#[test]
fn malformed_control_requests_do_not_stop_the_admin_listener() {
    let fixture = ServiceFixture::start(QUOTA);
    fixture.clock.advance(Duration::from_secs(60));
    let admin = fixture.service().admin().and_then(AdminAddress::tcp).expect("an admin listener");
    let long_header = format!("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: {}\r\n\r\n", "a".repeat(1 << 20));
    for sent in [
        &b""[..],
        b"\0\xff\x80",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /api/v1/reload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
        b"PUT /api/v1/quotas/api/used HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{\"used\":9}",
        b"PUT /api/v1/quotas/api/used HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n\
          a\r\n{\"used\":9}zz\r\n",
        long_header.as_bytes(),
    ] {
        let response = send(admin, sent, Some(Shutdown::Write));
        let status = response.split(' ').nth(1).unwrap_or("closed");
        assert!(["closed", "400", "413", "422", "431"].contains(&status), "{}: {response}", sent.escape_ascii());
        let health = get(admin, "/healthz");
        assert!(health.starts_with("HTTP/1.1 200 "), "after {}: {health}", sent.escape_ascii());
    }
    assert_eq!(fixture.state().handle.quotas()[0].used, Units::ZERO);
    let settings = fixture.state().settings.lock().clone();
    assert_eq!(settings, loaded(NOON, None), "no reload");
}

#[test]
fn demand_that_cannot_be_saved_is_kept_until_it_can() {
    let rules = "quotas: { api: { limit: 10, window: { fixed: 1d }, pacing: { mode: learned, weights: { all: 1 } } } }\n\
                 classes: [{ name: all }]";
    let fixture = ServiceFixture::start(rules);
    let week = [HourProfile { units: 3.0, weeks: 2.0 }; HOURS_PER_WEEK];
    let learned = [LearnedDemand {
        quota: "api".into(),
        class: "all".into(),
        week,
        operators: Some(vec![(OperatorId(1), week)]),
    }];
    fixture.state().engine.restore_demand(&learned);
    let state_dir = fixture.dir.join("state");
    let in_the_way = state_dir.join("demand.json");
    std::fs::create_dir(&in_the_way).expect("directory is writable");
    fixture.state().persist_learned();
    assert_eq!(fixture.state().engine.learned_demand(), learned);
    std::fs::remove_dir(&in_the_way).expect("directory exists");
    fixture.state().persist_learned();
    assert_eq!(DemandStore::new(&state_dir, OperatorTable::builtin_names()).read().expect("a readable file"), learned);
}

#[test]
fn baseline_survives_a_restart_and_damage_starts_it_empty() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("state/baseline.json");
    let learned = LearnedBaseline {
        updated_at: NOON,
        assets: BaselineCounts { present: 19.0, absent: 1.0 },
        links: BaselineCounts { present: 5.0, absent: 0.0 },
    };
    let start = || ServiceFixture::try_start(dir.path(), "").unwrap_or_else(|error| panic!("{error}"));
    let first = start();
    assert!(first.state().engine.learned_baseline().is_empty() && !file.exists());
    let rules = Arc::clone(&first.state().startup_settings.rules);
    first.state().engine.restore_baseline(&learned, &rules, NOON);
    drop(first);
    let second = start();
    assert_eq!(second.state().engine.learned_baseline(), learned);
    drop(second);

    std::fs::write(&file, "{\"version\":1,").expect("file is writable");
    let third = start();
    assert!(third.state().engine.learned_baseline().is_empty());
}

#[test]
fn a_running_gateway_locks_its_state_directory_with_any_ledger() {
    for ledger in ["file", "memory", "{ redis: { url: redis://127.0.0.1:1 } }"] {
        let fixture = ServiceFixture::start(&format!("ledger: {ledger}"));
        let state_dir = fixture.dir.join("state");
        let lock = StateLock::exclusive(&state_dir);
        assert!(matches!(lock, Err(StateLockError::Locked)), "{ledger}: {lock:?}");
        drop(fixture);
    }
    let without = ServiceFixture::start("ledger: memory\nbot_detection: { enabled: false }");
    assert!(!without.dir.join("state").exists(), "nothing is learned");
}

// --- admin API ----------------------------------------------------------------------------------------------------

#[test]
fn a_gateway_without_quotas_has_an_empty_state() {
    let fixture = ServiceFixture::start("");
    let state = fixture.state();
    let document = state.state();
    assert!(document.quotas.is_empty() && document.top_clients.is_empty() && document.crawlers.is_empty());
    assert!(state.set_used("api", Units::ZERO).is_err());
    assert!(state.decision(7).is_none() && state.explanation(7).is_none());
    assert_eq!(state.not_ready_reasons(), [""; 0]);
    assert_eq!(document.ledger_error, None);
    let metrics = state.metrics();
    assert!(metrics.lines().any(|line| line.starts_with("tidegate_build_info{")), "{metrics}");
    assert!(metrics.lines().all(|line| !line.starts_with("tidegate_quota_")), "{metrics}");
}

#[test]
fn a_decision_is_explained_by_the_rules_of_the_last_reload() {
    let fixture = ServiceFixture::start("classes: [{ name: all, block: true }]");
    let response = fixture.get("/page");
    let id = response.split("x-tidegate-decision: ").nth(1).expect("a refusal has an id");
    let id = u64::from_str_radix(&id[..16], 16).expect("hexadecimal digits");
    let class_step = || {
        let explanation = fixture.state().explanation(id).expect("a stored decision");
        serde_json::to_value(&explanation.steps[1]).expect("JSON")
    };
    assert_eq!(class_step()["numbers"]["class"], "all");
    // The operator takes part in verification after the next start. Its name is known before.
    let rules = "operators: { acme: { product_tokens: AcmeBot } }\n\
                 classes: [{ name: ours, when: { operator: acme } }, { name: rest }]";
    fixture.reload(rules).expect("valid settings");
    assert_eq!(class_step()["numbers"]["class"], "rest");
    assert!(class_step()["evidence"].to_string().contains("not ours, which requires verification as acme"));
}

// --- crawlers -----------------------------------------------------------------------------------------------------

#[test]
fn stale_range_lists_give_one_warning() {
    let error = |number: usize| (format!("list-{number}"), "not found".to_owned());
    let warning = |count: usize| crawlers::stale_ranges_warning(&(1..=count).map(error).collect::<Vec<_>>());
    assert_eq!(warning(0), None);
    for (count, others) in [(1, ""), (2, " (and 1 more list)"), (3, " (and 2 more lists)")] {
        let expected = format!("Cannot update list-1{others}: not found; keeping the previous version");
        assert_eq!(warning(count), Some(expected));
    }
}

#[test]
fn operators_query_dns_only_if_it_is_on() {
    for (verify, has_dns) in [("verify: { dns: off }", false), ("verify: { dns: {} }", true)] {
        let text = format!("origin: {{ url: http://a }}\n{verify}");
        let settings = config::load(Path::new("tidegate.yaml"), &text, &[], &[], &[]).expect("valid settings");
        assert_eq!(crawlers::operators(&settings).dns().is_some(), has_dns, "{verify}");
        assert!(crawlers::without_dns(&settings).dns().is_none(), "{verify}");
    }
}

// --- fixture ------------------------------------------------------------------------------------------------------

const QUOTA: &str = "quotas: { api: { limit: 10, window: { fixed: 1d } } }\nroutes: [{ match: /**, cost: { api: 1 } }]";

/// Returns the state of settings that were loaded at `loaded_at`, with the time and the errors of a failed reload.
fn loaded(loaded_at: Timestamp, failed: Option<(Timestamp, &str)>) -> SettingsDocument {
    let failure = |(time, errors): (_, &str)| ReloadFailureDocument { time: rfc3339(time), errors: errors.into() };
    SettingsDocument { loaded_at: rfc3339(loaded_at), last_reload_failed: failed.map(failure) }
}

/// A service with ports that the system selects, an origin that does not listen, and a clock that stays at noon.
struct ServiceFixture {
    service: Option<Service>,
    yaml: Arc<Mutex<String>>,
    dir: PathBuf,
    clock: Clock,
    /// Deleted after the service has shut down.
    _temp: Option<TempDir>,
}

impl ServiceFixture {
    fn start(rules: &str) -> Self {
        let temp = tempfile::tempdir().expect("temporary directory");
        let mut fixture = Self::try_start(temp.path(), rules).unwrap_or_else(|error| panic!("{error}"));
        fixture._temp = Some(temp);
        fixture
    }

    fn try_start(dir: &Path, rules: &str) -> Result<Self, ServiceError> {
        let clock = Clock::manual(NOON);
        let yaml = Arc::new(Mutex::new(yaml(dir, rules)));
        let source: SettingsSource = {
            let yaml = Arc::clone(&yaml);
            Arc::new(move |names, text| {
                let text = text.map_or_else(|| yaml.lock().clone(), str::to_owned);
                config::load(Path::new("tidegate.yaml"), &text, &[], &[], names)
            })
        };
        let service = Service::start(source, clock.clone(), 42)?;
        Ok(Self { service: Some(service), yaml, dir: dir.to_owned(), clock, _temp: None })
    }

    fn service(&self) -> &Service {
        self.service.as_ref().expect("the service runs until the end of the test")
    }

    fn state(&self) -> &ServiceState {
        &self.service().state
    }

    fn reload(&self, rules: &str) -> Result<String, String> {
        *self.yaml.lock() = yaml(&self.dir, rules);
        self.service().reload()
    }

    /// Returns the name of each address list, with its number of networks.
    fn list_sizes(&self) -> Vec<(String, usize)> {
        let files = self.state().address_list_files.lock();
        self.state().lists(&files).map(|(name, networks, _)| (name, networks)).collect()
    }

    fn get(&self, path: &str) -> String {
        get(self.service().listen()[0], path)
    }
}

impl Drop for ServiceFixture {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            service.shut_down();
        }
    }
}

/// Returns the YAML of a test: what all tests have in common, unless `rules` contain the key, then `rules`.
fn yaml(dir: &Path, rules: &str) -> String {
    let common = [
        "listen: 127.0.0.1:0",
        "admin: { listen: 127.0.0.1:0 }",
        &format!("state_dir: {}", dir.join("state").display()),
        "ledger: memory",
        "verify: { dns: off, refresh_interval: off }",
        "log: { access: off }",
        "workers: 1",
        "origin: { url: http://127.0.0.1:1 }",
    ];
    let key = |line: &str| line.split(':').next().map(str::to_owned);
    let is_common = |line: &&&str| rules.lines().all(|rule| key(rule) != key(line));
    let classes = if rules.contains("classes:") { "" } else { "\nclasses: []\n" };
    common.iter().filter(is_common).map(|line| format!("{line}\n")).collect::<String>() + rules + classes
}

fn get(address: SocketAddr, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    send(address, request.as_bytes(), None)
}

/// Sends `bytes` on a connection of its own, then `end`. Returns what the server sends until it closes the connection.
fn send(address: SocketAddr, bytes: &[u8], end: Option<Shutdown>) -> String {
    let mut stream = TcpStream::connect(address).expect("a listener");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout can be set");
    // The server may respond and close the connection before it has read everything.
    let _ = stream.write_all(bytes).and_then(|()| end.map_or(Ok(()), |end| stream.shutdown(end)));
    let mut response = Vec::new();
    match stream.read_to_end(&mut response) {
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => panic!("the connection stays open: {error}"),
        _ => String::from_utf8_lossy(&response).into_owned(),
    }
}
