//! Other proxies that ask the gateway about their requests, with the files of `deploy/forward-auth` as they stand, but for
//! addresses and paths.

use crate::support::client::{Client, Response};
use crate::support::crawlers::InstalledClients;
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, ReceivedRequest};
use crate::support::wait::wait_until;
use regex::bytes::RegexBuilder;
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A class for which nobody qualifies, so that a forged address would be noticed; hops on this machine are not skipped,
/// so that the last one is the client.
const RULES: &str = "
forward_auth: { listen: \"127.0.0.1:0\" }
clients: { address_from: x-forwarded-for, trusted_proxies: [10.255.255.0/24] }
quotas: { api: { limit: 6, window: { fixed: 24h } } }
classes:
  - { name: forged, when: { address: 66.249.66.0/24 } }
  - { name: bot, when: { kind: [verified_bot, declared_bot, impostor] }, block: true }
  - { name: nokey, when: { path: /keyed }, block: true, refuse_with: 401 }
  - { name: person, bucket: { capacity: 1000, fill: 1, interval: 1s } }
routes:
  - { match: /cheap }
  - { match: \"/dear/*\", cost: { api: 3 } }
";

const PERSON: &str =
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\nAccept: */*\r\n";
const BOT: &str = "User-Agent: GPTBot/1.0\r\nAccept: */*\r\n";
/// What a client sends to be another one, or to ask about another request.
const FORGED: &str = "X-Forwarded-For: 66.249.66.1\r\nX-Forwarded-Method: HEAD\r\nX-Forwarded-Uri: /cheap\r\n\
                      X-Forwarded-Host: other.example\r\nX-Original-Method: HEAD\r\nX-Original-URI: /cheap\r\n\
                      X-Original-URL: http://other.example/cheap\r\nForwarded: for=66.249.66.1\r\n\
                      X-Tidegate-Class: forged\r\nX-Tidegate-Operator: googlebot\r\nX-Tidegate-Decision: 0123456789abcdef\r\nX-Tidegate-Status: 200\r\n";

#[test]
fn nginx_asks_by_auth_request() {
    assert_asks("nginx.conf", |setup| {
        let dir = setup.dir.display();
        let site = setup.write("site.conf", &setup.file(&[("listen 80;", format!("listen {};", setup.address))]));
        let text = format!(
            "daemon off; master_process off; pid {dir}/pid; error_log {dir}/error.log;\nevents {{}}\nhttp {{\n\
             underscores_in_headers on; ignore_invalid_headers off; access_log off; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f;\n\
             uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;\ninclude {};\n}}\n",
            site.display()
        );
        let mut command = installed("/usr/sbin/nginx");
        command.arg("-c").arg(setup.write("nginx.conf", &text));
        command
    });
}

#[test]
fn caddy_asks_by_forward_auth() {
    assert_asks("Caddyfile", |setup| {
        let site = setup
            .file(&[("example.com {", format!("http://example.com:{} {{\n\tbind 127.0.0.1", setup.address.port()))]);
        let file = setup.write("Caddyfile", &format!("{{\nadmin off\nauto_https off\n}}\n{site}"));
        let mut command = installed("/usr/bin/caddy");
        command.args(["run", "--adapter", "caddyfile", "--config"]).arg(file).env("HOME", &setup.dir);
        command.env("XDG_DATA_HOME", &setup.dir).env("XDG_CONFIG_HOME", &setup.dir);
        command
    });
}

#[test]
fn envoy_asks_by_ext_authz() {
    assert_asks("envoy.yaml", |setup| {
        let port = |address: SocketAddr| format!("port_value: {} }}", address.port());
        let text = setup.file(&[
            ("address: 0.0.0.0, port_value: 80 }", format!("address: 127.0.0.1, {}", port(setup.address))),
            ("port_value: 3000 }", port(setup.origin)),
            ("port_value: 9092 }", port(setup.gateway)),
        ]);
        let mut command = InstalledClients::locate().envoy();
        command.arg("--config-path").arg(setup.write("envoy.yaml", &text));
        command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]);
        command
    });
}

/// Envoy Gateway needs a cluster; Envoy itself runs with what its policies are translated to.
#[test]
fn policies_for_envoy_gateway_pass_what_the_gateway_reads_and_says() {
    let text = std::fs::read_to_string(Path::new(FILES).join("envoy-gateway.yaml")).expect("a file of the repository");
    let policies: Vec<Value> =
        text.split("\n---\n").map(|policy| serde_saphyr::from_str(policy).expect("YAML")).collect();
    let [security, client] = &policies[..] else { panic!("two policies: {policies:?}") };
    let ask = &security["spec"]["extAuth"];
    let exact = |names: &Value| -> Vec<Value> {
        let names = names.as_array().expect("names").iter();
        names.map(|name| json!({ "exact": name.as_str().expect("a name").to_lowercase() })).collect()
    };
    assert_eq!(
        (&ask["failOpen"], &ask["http"]["backendRefs"]),
        (&json!(false), &json!([{ "name": "tidegate", "port": 9092 }]))
    );
    let removed = &client["spec"]["headers"]["earlyRequestHeaders"]["remove"];
    assert_eq!(removed, &ask["http"]["headersToBackend"], "a client could set what the gateway leaves out");

    let (origin, gateway) = start();
    let dir = tempfile::tempdir().expect("temporary directory");
    let address = Origin::free_address();
    let file = std::fs::read_to_string(Path::new(FILES).join("envoy.yaml")).expect("a file of the repository");
    let mut config: Value = serde_saphyr::from_str(&file).expect("YAML");
    let [listener] = &mut config["static_resources"]["listeners"].as_array_mut().expect("listeners")[..] else {
        panic!("one listener")
    };
    listener["address"]["socket_address"] = json!({ "address": "127.0.0.1", "port_value": address.port() });
    let manager = &mut listener["filter_chains"][0]["filters"][0]["typed_config"];
    let filters = manager["http_filters"].as_array_mut().expect("filters");
    filters[0]["typed_config"]["mutations"]["request_mutations"] =
        removed.as_array().expect("names").iter().map(|name| json!({ "remove": name })).collect();
    let asks = &mut filters[1]["typed_config"];
    asks["allowed_headers"]["patterns"] = exact(&ask["headersToExtAuth"]).into();
    asks["http_service"]["path_prefix"] = ask["http"]["path"].clone();
    asks["http_service"]["authorization_response"] =
        json!({ "allowed_upstream_headers": { "patterns": exact(&ask["http"]["headersToBackend"]) } });
    for (cluster, used) in [(0, origin.address()), (1, gateway.forward_auth_address())] {
        let endpoints = &mut config["static_resources"]["clusters"][cluster]["load_assignment"]["endpoints"];
        endpoints[0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]["port_value"] = used.port().into();
    }
    let path = dir.path().join("envoy.json");
    std::fs::write(&path, config.to_string()).expect("file is writable");
    let mut command = InstalledClients::locate().envoy();
    command.arg("--config-path").arg(path).args([
        "--concurrency",
        "1",
        "--disable-hot-restart",
        "--log-level",
        "error",
    ]);
    let proxy = Proxy::start(command, address, dir);

    let browser = "Accept-Language: en\r\nAccept-Encoding: gzip\r\nUpgrade-Insecure-Requests: 1\r\nReferer: http://example.com/\r\n\
                   Sec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Site: same-origin\r\nSec-Fetch-User: ?1\r\n\
                   Sec-CH-UA: \"Chromium\";v=\"140\"\r\nSec-CH-UA-Mobile: ?0\r\nSec-CH-UA-Platform: \"Linux\"\r\n";
    let request = format!("GET /dear/1 HTTP/1.1\r\nHost: example.com\r\n{PERSON}{browser}{FORGED}\r\n");
    let admitted = proxy.send(&request);
    assert_eq!((admitted.status, &admitted.body[..]), (200, &b"page"[..]), "{admitted:?}");
    let received = origin.last_request();
    assert_eq!(received.fields.get("x-tidegate-class").map(String::as_str), Some("person"), "{}", received.head);
    assert_eq!(received.fields.get("x-tidegate-operator"), None, "{}", received.head);
    let refused = proxy.send(&format!("GET /dear/1 HTTP/1.1\r\nHost: example.com\r\n{BOT}{FORGED}\r\n"));
    assert_refused(&refused);
    assert_eq!(origin.received_requests().len(), 1, "a refused request is not forwarded");
    let mut directly = Client::connect(gateway.forward_auth_address());
    let asked = format!(
        "GET /envoy/dear/1 HTTP/1.1\r\nHost: example.com\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\n{PERSON}{browser}\r\n"
    );
    assert_eq!(directly.send(asked).read_response().status, 200);
    let log = gateway.read_log();
    let seen: Vec<&Value> =
        log.iter().filter(|line| line["class"] == "person").map(|line| &line["headers_seen"]).collect();
    assert_eq!(seen.len(), 2, "{log:?}");
    assert_eq!(seen[0], seen[1], "a field that the gateway reads does not reach it");
}

#[test]
fn haproxy_asks_by_lua() {
    assert_asks("haproxy.cfg", |setup| {
        let script = Path::new(FILES).join("tidegate.lua");
        let text = setup.file(&[
            ("bind :80", format!("bind {}", setup.address)),
            ("/etc/haproxy/tidegate.lua", script.display().to_string()),
        ]);
        let mut command = installed("/usr/sbin/haproxy");
        command.arg("-db").arg("-f").arg(setup.write("haproxy.cfg", &text));
        command
    });
}

#[test]
fn traefik_file_names_the_listener_and_the_fields() {
    let text = std::fs::read_to_string(Path::new(FILES).join("traefik.yaml")).expect("a file of the repository");
    let file: Value = serde_saphyr::from_str(&text).expect("YAML");
    let middleware = &file["http"]["middlewares"]["tidegate"]["forwardAuth"];
    assert_eq!(middleware["trustForwardHeader"], false);
    assert_eq!(file["http"]["routers"]["site"]["middlewares"], json!(["other-names", "tidegate"]));
    let (origin, gateway) = start();
    let address = middleware["address"].as_str().expect("an address");
    let path = address.strip_prefix("http://127.0.0.1:9092").expect("the address of the manual");
    // As Traefik sends them: the fields of the client, with its own in place of those of the same names.
    let fields = format!(
        "X-Forwarded-Method: GET\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: example.com\r\nX-Forwarded-Uri: /dear/1?q\r\n\
         X-Forwarded-For: 203.0.113.7\r\n{PERSON}"
    );
    let answer = Client::connect(gateway.forward_auth_address()).get(path, &fields);
    assert_eq!(answer.status, 200);
    // Traefik removes the fields of the client that match, and copies those of the answer.
    let pattern = middleware["authResponseHeadersRegex"].as_str().expect("an expression");
    let pattern = RegexBuilder::new(pattern).unicode(false).build().expect("an expression");
    let copied: Vec<&str> =
        answer.fields.keys().map(String::as_str).filter(|it| pattern.is_match(it.as_bytes())).collect();
    assert_eq!(copied, ["x-tidegate-class", "x-tidegate-decision"]);
    for name in forged_names().iter().map(String::as_str).chain(["X-Tidegate-New", "X_real_ip", "X_forwarded_proto"]) {
        assert!(pattern.is_match(name.as_bytes()), "{name}");
    }
    for name in ["X-Forwarded-For", "X-Real-Ip", "X_api_key", "X-Tide", "Cookie", "Forwarded"] {
        assert!(!pattern.is_match(name.as_bytes()), "{name}");
    }
    assert!(origin.received_requests().is_empty());
}

#[test]
fn lines_for_nginx_in_the_manual_are_those_of_the_file() {
    let manual = include_str!("../../docs/FORWARD_AUTH.md");
    let (_, rest) = manual.split_once("```nginx\n").expect("lines for nginx");
    let (lines, _) = rest.split_once("```").expect("their end");
    let file = std::fs::read_to_string(Path::new(FILES).join("nginx.conf")).expect("a file of the repository");
    for line in lines.lines().map(str::trim) {
        assert!(file.lines().any(|other| other.trim() == line), "{line}");
    }
}

/// Returns the names that a server of CGI or WSGI reads as one of the gateway's or as the one with the client's address,
/// in spellings that no proxy writes.
fn forged_names() -> Vec<String> {
    let separators = ["-", "_", ".", "!"];
    let pairs = separators.iter().flat_map(|first| separators.map(|second| (*first, second)));
    let names = pairs.filter(|pair| *pair != ("-", "-")).flat_map(|(first, second)| {
        [["X", "Tidegate", "Operator"], ["x", "TIDEGATE", "class"], ["X", "Forwarded", "For"]]
            .map(|[start, middle, end]| [start, first, middle, second, end].concat())
    });
    names.collect()
}

/// Asserts that of the fields which a server of CGI or WSGI reads as the gateway's, `received` has its own alone, and no
/// other spelling of those with the client's address.
#[track_caller]
fn assert_no_forged_names(received: &ReceivedRequest) {
    let as_cgi = |name: &str| name.replace(|character: char| !character.is_ascii_alphanumeric(), "-");
    for name in received.fields.keys() {
        match as_cgi(name) {
            read if read.starts_with("x-tidegate-") => {
                assert!(["x-tidegate-class", "x-tidegate-decision"].contains(&&name[..]), "{}", received.head);
            }
            read if read.starts_with("x-forwarded-") => assert_eq!(*name, read, "{}", received.head),
            _ => {}
        }
    }
}

/// Directory of the files.
const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/forward-auth");

fn start() -> (Origin, TestGateway) {
    let origin = Origin::with_script(|request, connection| {
        let body = if request.method == "POST" { connection.read_body(request) } else { b"page".to_vec() };
        connection.reply("200 OK", "", &body);
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    (origin, gateway)
}

/// Starts the proxy with `file` and asserts that people pass, bots get the refusal of the gateway, forged fields change
/// nothing, and reported costs are charged.
fn assert_asks(file: &'static str, command: impl FnOnce(&ProxySetup) -> Command) {
    let (origin, gateway) = start();
    let dir = tempfile::tempdir().expect("temporary directory");
    let setup = ProxySetup {
        file,
        address: Origin::free_address(),
        origin: origin.address(),
        gateway: gateway.forward_auth_address(),
        dir: dir.path().to_owned(),
    };
    let proxy = Proxy::start(command(&setup), setup.address, dir);
    let send = |request: String| proxy.send(&request);

    let mut forged: String = forged_names().iter().map(|name| format!("{name}: googlebot\r\n")).collect();
    // nginx cannot remove fields by pattern: its file names those of the gateway.
    if file != "nginx.conf" {
        forged += "X-Tidegate-New: googlebot\r\n";
    }
    let admitted = send(format!("GET /dear/1?q=1 HTTP/1.1\r\nHost: example.com\r\n{PERSON}{FORGED}{forged}\r\n"));
    assert_eq!((admitted.status, &admitted.body[..]), (200, &b"page"[..]), "{admitted:?}");
    let received = origin.last_request();
    let field = |name: &str| received.fields.get(name).cloned();
    assert_eq!((received.method.as_str(), received.target.as_str()), ("GET", "/dear/1?q=1"));
    assert_eq!(field("x-tidegate-class").as_deref(), Some("person"), "{}", received.head);
    assert_no_forged_names(&received);
    let decision = field("x-tidegate-decision").expect("a decision");
    assert_eq!(gateway.counters(), (0.0, 3.0));

    let report = format!("{{\"decision\": \"{decision}\", \"cost\": {{\"api\": 2}}}}");
    let mut client = Client::connect(gateway.forward_auth_address());
    client.send(format!("POST /settle HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{report}", report.len()));
    assert_eq!(client.read_response().status, 200);
    assert_eq!(gateway.counters(), (2.0, 0.0));

    let refused = send(format!("GET /dear/1 HTTP/1.1\r\nHost: example.com\r\n{BOT}{FORGED}\r\n"));
    assert_refused(&refused);
    let posted = format!("POST /dear/1 HTTP/1.1\r\nHost: example.com\r\nContent-Length: 4\r\n{BOT}\r\nbody");
    assert_refused(&send(posted.clone()));
    assert_eq!(
        proxy
            .connect()
            .send(format!("HEAD /dear/1 HTTP/1.1\r\nHost: example.com\r\n{BOT}\r\n"))
            .response_to("HEAD")
            .status,
        429
    );
    assert_eq!(send(format!("GET /cheap%2f..%2fdear/1 HTTP/1.1\r\nHost: example.com\r\n{PERSON}\r\n")).status, 400);
    assert_eq!(origin.received_requests().len(), 1, "refused requests are not forwarded");

    let admitted = send(posted.replace(BOT, PERSON));
    assert_eq!((admitted.status, &admitted.body[..]), (200, &b"body"[..]), "{admitted:?}");
    let exhausted = send(format!("GET /dear/2 HTTP/1.1\r\nHost: example.com\r\n{PERSON}\r\n"));
    assert_refused(&exhausted);
    assert!(exhausted.field("ratelimit").contains("\"api\";r="), "{exhausted:?}");
    assert_eq!(gateway.counters(), (2.0, 3.0));
    let keyed = send(format!("GET /keyed HTTP/1.1\r\nHost: example.com\r\n{PERSON}\r\n"));
    assert_eq!((keyed.status, keyed.field("www-authenticate")), (401, "Bearer realm=\"api\""), "{keyed:?}");

    drop(proxy);
    let log = gateway.read_log();
    let line = log.iter().find(|line| line["id"] == *decision).expect("a line of the first request");
    assert_eq!(
        (&line["method"], &line["path"], &line["query"]),
        (&"GET".into(), &"/dear/1".into(), &"q=1".into()),
        "{line}"
    );
    assert_eq!((&line["host"], &line["class"]), (&"example.com".into(), &"person".into()), "{line}");
    assert_eq!((&line["cost"], &line["charged"]), (&json!({"api": 3}), &json!({"api": 2})), "{line}");
    for line in &log {
        assert_ne!((&line["client"], &line["class"]), (&"66.249.66.1".into(), &"forged".into()), "{line}");
    }
    assert_eq!(log.len(), 7, "an invalid path is not counted: {log:?}");
}

#[track_caller]
fn assert_refused(response: &Response) {
    assert_eq!(response.status, 429, "{response:?}");
    assert!(response.field("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1), "{response:?}");
    assert_eq!(response.field("x-tidegate-decision").len(), 16, "{response:?}");
}

/// What a file needs to be used in a test.
struct ProxySetup {
    /// Name of the file.
    file: &'static str,
    /// Address of the proxy.
    address: SocketAddr,
    origin: SocketAddr,
    /// Address of the gateway for other proxies.
    gateway: SocketAddr,
    dir: PathBuf,
}

impl ProxySetup {
    /// Returns the file with the addresses of the test, and with `changes`, each of which must be found.
    fn file(&self, changes: &[(&str, String)]) -> String {
        let mut text = std::fs::read_to_string(Path::new(FILES).join(self.file)).expect("a file of the repository");
        let addresses = [("127.0.0.1:3000", self.origin.to_string()), ("127.0.0.1:9092", self.gateway.to_string())];
        addresses.iter().for_each(|(documented, used)| text = text.replace(documented, used));
        for (documented, used) in changes {
            assert!(text.contains(documented), "{} has no {documented}", self.file);
            text = text.replace(documented, used);
        }
        text
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.join(name);
        std::fs::write(&path, text).expect("file is writable");
        path
    }
}

/// A proxy process, killed at the end of the test.
struct Proxy {
    process: Child,
    address: SocketAddr,
    _dir: TempDir,
}

impl Proxy {
    fn start(mut command: Command, address: SocketAddr, dir: TempDir) -> Self {
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the proxy starts");
        wait_until("the proxy to listen", || TcpStream::connect(address).is_ok());
        Self { process, address, _dir: dir }
    }

    fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    fn send(&self, request: &str) -> Response {
        self.connect().send(request).read_response()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a program that `./test` installs.
fn installed(program: &str) -> Command {
    assert!(Path::new(program).exists(), "{program} is not installed; run ./test");
    Command::new(program)
}
