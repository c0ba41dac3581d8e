use crate::log::{
    ClientNotes, LineCounts, LineError, LogField, LogLine, LogOptions, LogSource, LoggedClient, MergedLog, OrderedLine,
};
use std::fmt::Write;
use std::io::Cursor;
use std::slice::from_ref;
use std::time::Duration;
use tidegate_policy::bot_detection::HeadersSeen;

mod properties;

/// A log that was read.
pub(super) struct ReadLog {
    /// Each request as one text; see [`summary`].
    pub(super) requests: Vec<String>,
    pub(super) notes: ClientNotes,
    pub(super) counts: LineCounts,
}

/// Reads a log as a command does.
pub(super) fn read_log(text: &[u8], format: Option<&str>, fields: &[&str]) -> ReadLog {
    let options = LogOptions {
        format: format.map(|format| format.parse().unwrap_or_else(|error| panic!("{error}"))),
        fields: fields.iter().map(|field| field.parse().unwrap_or_else(|error| panic!("{error}"))).collect(),
    };
    let source = LogSource::new("log".into(), Box::new(Cursor::new(text.to_vec()))).with_options(&options);
    let mut merged = MergedLog::new(vec![source], Duration::from_secs(60));
    let mut requests = Vec::new();
    while let Some(OrderedLine { text, at, .. }) = merged.next_line().expect("a log in memory") {
        let line = LogLine::read(text).expect("a line that was written").expect("not empty");
        assert_eq!(line.at, at);
        assert!(crate::log::line_utc_offset(text).is_some());
        requests.push(summary(&line));
    }
    let notes = merged.client_notes();
    ReadLog { requests, notes, counts: merged.counts }
}

/// Returns a request as `client method path?query version host status bytes referer agent time latency`.
fn summary(line: &LogLine<'_>) -> String {
    let mut out = String::new();
    let LoggedClient::Address(client) = line.client else { panic!("a host name") };
    write!(out, "{client}").expect("a text");
    match &line.request {
        None => out.push_str(" (no request)"),
        Some(request) => {
            let query = request.query.as_deref().map_or(String::new(), |query| format!("?{query}"));
            write!(out, " {} {}{query} {:?}", request.method, request.path, request.version).expect("a text");
        }
    }
    let text = |value: &Option<std::borrow::Cow<'_, [u8]>>, field| match value {
        Some(value) => format!("{:?}", String::from_utf8_lossy(value)),
        None if line.missing.contains(field) => "missing".to_owned(),
        None => "none".to_owned(),
    };
    let latency = line.latency.map_or("missing".to_owned(), |latency| format!("{latency:?}"));
    assert_eq!(line.missing.contains(LogField::Latency), line.latency.is_none());
    write!(
        out,
        " {} {} {} {} {} {} {latency}",
        line.host.as_deref().unwrap_or("missing"),
        line.status,
        line.bytes,
        text(&line.referer, LogField::Referer),
        text(&line.user_agent, LogField::UserAgent),
        line.at.0,
    )
    .expect("a text");
    out
}

/// 2024-06-07T00:00:09Z
const SECOND: u64 = 1_717_718_409;

pub(super) const CADDY: &str = r#"{"level":"info","ts":1717718409.25,"logger":"http.log.access.log0","msg":"handled request","request":{"remote_ip":"203.0.113.7","remote_port":"41342","client_ip":"203.0.113.7","proto":"HTTP/2.0","method":"GET","host":"Shop.example:8443","uri":"/a%20b?q=%22x%22","headers":{"User-Agent":["curl/7.82.0 \"q\" \\"],"Accept":["*/*"],"Accept-Language":["de"]},"tls":{"resumed":false,"version":772,"cipher_suite":4865,"proto":"h2","server_name":"shop.example"}},"bytes_read":0,"user_id":"","duration":0.125,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"]}}"#;

pub(super) const TRAEFIK: &str = r#"{"ClientAddr":"203.0.113.7:41342","ClientHost":"203.0.113.7","ClientPort":"41342","ClientUsername":"-","DownstreamContentSize":12,"DownstreamStatus":404,"Duration":1500000,"OriginDuration":1000000,"OriginStatus":404,"RequestAddr":"shop.example:80","RequestCount":1,"RequestHost":"shop.example","RequestMethod":"POST","RequestPath":"/a?b=\"c\"","RequestPort":"80","RequestProtocol":"HTTP/1.1","RequestScheme":"http","StartLocal":"2024-06-07T02:00:09.25+02:00","StartUTC":"2024-06-07T00:00:09.25Z","entryPointName":"web","level":"info","msg":"","request_User-Agent":"curl/8 \"x\"","request_Referer":"https://a.example/","time":"2024-06-07T00:00:10Z"}"#;

pub(super) const CLOUDFLARE: &str = r#"{"ClientIP":"2001:db8::7","ClientRequestHost":"shop.example","ClientRequestMethod":"GET","ClientRequestURI":"/a?b=1","ClientRequestProtocol":"HTTP/3","ClientRequestReferer":"","ClientRequestUserAgent":"Mozilla/5.0 (\"x\")","EdgeStartTimestamp":1717718409250000000,"EdgeEndTimestamp":1717718410000000000,"EdgeResponseStatus":200,"EdgeResponseBytes":55869,"OriginResponseDurationMs":81,"RayID":"3a6050bcbe121a87"}"#;

pub(super) const NGINX_JSON: &str = r#"{"time_local":"07/Jun/2024:02:00:09 +0200","msec":"1717718409.250","remote_addr":"203.0.113.7","request":"GET /a?b=\"c\" HTTP/1.0","status":"200","body_bytes_sent":612,"http_referer":"","http_user_agent":"a \"b\" \\c","http_x_forwarded_for":"","upstream_response_time":"0.100, 0.025","http_host":"shop.example"}"#;

pub(super) const HAPROXY: &str = r#"203.0.113.7:33317 [07/Jun/2024:00:00:09.250] http-in static/srv1 10/0/30/125/109 200 2750 - - ---- 1/1/1/1/0 0/0 {shop.example|Mozilla/5.0 #22x#22} {} "GET /a?b=#22c#22 HTTP/1.1""#;

pub(super) const ALB: &str = r#"h2 2024-06-07T00:00:10.500000Z app/lb/50dc6c 203.0.113.7:2817 10.0.0.1:80 0.001 0.125 0.000 200 200 34 366 "GET https://shop.example:443/a?b=1 HTTP/2.0" "a \x22b\x22 (c)" ECDHE TLSv1.2 arn:aws:x "Root=1-58" "shop.example" "arn:aws:y" 0 2024-06-07T00:00:09.250000Z "forward" "-" "-" "10.0.0.1:80" "200" "-" "-" TID_1"#;

const ELB: &str = r#"2024-06-07T00:00:09.250000Z lb 203.0.113.7:2817 10.0.0.1:80 0.001 0.125 0.000 200 200 0 29 "GET http://shop.example:80/a HTTP/1.1" "curl/7.38.0" - -"#;

pub(super) const CLOUDFRONT: &str = "#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken x-forwarded-for ssl-protocol ssl-cipher x-edge-response-result-type cs-protocol-version fle-status fle-encrypted-fields c-port time-to-first-byte x-edge-detailed-result-type sc-content-type sc-content-len sc-range-start sc-range-end\n2024-06-07\t00:00:09\tFRA2\t2390\t203.0.113.7\tGET\td111.cloudfront.net\t/a\t200\t-\tMozilla/5.0%20(%22x%22)\tb=1\t-\tHit\tSOX4==\tshop.example\thttps\t23\t0.001\t-\tTLSv1.2\tECDHE\tHit\tHTTP/2.0\t-\t-\t11040\t0.001\tHit\ttext/html\t78\t-\t-";

pub(super) const IIS: &str = "#Software: Microsoft Internet Information Services 10.0\n#Version: 1.0\n#Date: 2024-06-07 00:00:00\n#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) sc-status sc-substatus sc-win32-status time-taken\n2024-06-07 00:00:09 10.0.0.1 GET /a b=1 443 - 203.0.113.7 Mozilla/5.0+(x) - 200 0 0 125";

/// Logs of each format, with what they say of one request.
#[rustfmt::skip]
fn samples() -> Vec<(&'static str, String, String)> {
    let nanos = |fraction: &str| format!("{SECOND}{fraction}");
    let (exact, whole) = (nanos("250000000"), nanos("000000000"));
    vec![
        ("Caddy JSON", CADDY.into(), format!("203.0.113.7 GET /a%20b?q=%22x%22 HTTP/2.0 shop.example 200 10900 none \"curl/7.82.0 \\\"q\\\" \\\\\" {exact} 125ms")),
        ("Traefik JSON", TRAEFIK.into(), format!("203.0.113.7 POST /a?b=\"c\" HTTP/1.1 shop.example 404 12 \"https://a.example/\" \"curl/8 \\\"x\\\"\" {exact} 1ms")),
        ("Cloudflare Logpush", CLOUDFLARE.into(), format!("2001:db8::7 GET /a?b=1 HTTP/3.0 shop.example 200 55869 missing \"Mozilla/5.0 (\\\"x\\\")\" {exact} 81ms")),
        ("JSON with guessed names", NGINX_JSON.into(), format!("203.0.113.7 GET /a?b=\"c\" HTTP/1.0 shop.example 200 612 missing \"a \\\"b\\\" \\\\c\" {exact} 125ms")),
        ("HAProxy", HAPROXY.into(), format!("203.0.113.7 GET /a?b=\"c\" HTTP/1.1 missing 200 2750 missing missing {exact} 125ms")),
        ("Amazon load balancer", ALB.into(), format!("203.0.113.7 GET /a?b=1 HTTP/2.0 shop.example 200 366 missing \"a \\\"b\\\" (c)\" {exact} 125ms")),
        ("classic Amazon load balancer", ELB.into(), format!("203.0.113.7 GET /a HTTP/1.1 shop.example 200 29 missing \"curl/7.38.0\" {exact} 125ms")),
        ("W3C extended", CLOUDFRONT.into(), format!("203.0.113.7 GET /a?b=1 HTTP/2.0 shop.example 200 2390 none \"Mozilla/5.0 (\\\"x\\\")\" {whole} missing")),
        ("W3C extended", IIS.into(), format!("203.0.113.7 GET /a?b=1 HTTP/1.1 missing 200 0 none \"Mozilla/5.0 (x)\" {whole} 125ms")),
    ]
}

#[test]
fn each_format_is_detected_and_read_with_all_that_it_has() {
    for (name, log, expected) in samples() {
        let read = read_log(log.as_bytes(), None, &[]);
        assert_eq!(read.requests, [expected], "{name}: {:?}", read.counts);
        assert!(read.notes.formats[0].starts_with(name), "{:?}", read.notes.formats);
        assert_eq!(read.counts.invalid_lines, Default::default(), "{name}");
    }
}

#[test]
fn lines_behind_prefixes_of_collectors_are_the_same() {
    for (name, log, expected) in samples() {
        for prefix in [
            "2024-06-07T00:00:11.000000000Z stdout F ",
            "shop-web-1  | ",
            "web_1 | 2024-06-07T00:00:11.123456789Z ",
            "\u{1b}[36mshop-web-1  |\u{1b}[0m ",
            "2024-06-07T00:00:11.123456789Z ",
            "Jun  7 00:00:11 web1 program[12]: ",
            "<190>Jun  7 00:00:11 web1 program: ",
            "<190>1 2024-06-07T00:00:11Z web1 program - - - ",
            "<190>1 2024-06-07T00:00:11Z web1 program 12 x [m a=\"1\" b=\"x \\] y\"] ",
        ] {
            let prefixed: String = log.lines().map(|line| format!("{prefix}{line}\n")).collect();
            let read = read_log(prefixed.as_bytes(), None, &[]);
            assert_eq!(read.requests, from_ref(&expected), "{name} behind {prefix}: {:?}", read.counts);
        }
        let file: String = log
            .lines()
            .map(|line| {
                format!(
                    "{{\"log\":{},\"stream\":\"stdout\",\"time\":\"2024-06-07T00:00:11Z\"}}\n",
                    serde_json::Value::from(format!("{line}\n"))
                )
            })
            .collect();
        assert_eq!(read_log(file.as_bytes(), None, &[]).requests, [expected], "{name} in a file of Docker");
    }
}

#[test]
fn parts_of_a_long_line_are_joined() {
    let time = "2024-06-07T00:00:11Z";
    let (first, second) = CADDY.split_at(400);
    let other = "203.0.113.8 - - [07/Jun/2024:00:00:09 +0000] \"GET / HTTP/1.1\" 200 5";
    let log = format!(
        "{time} stdout F {CADDY}\n{time} stdout F {CADDY}\n{time} stdout P {first}\n{time} stderr F {other}\n{time} stdout P \n{time} stdout F {second}\n"
    );
    let read = read_log(log.as_bytes(), None, &[]);
    assert_eq!(read.requests.len(), 3, "{:?}", read.counts);
    assert_eq!(read.requests[0], read.requests[2]);
    assert_eq!(read.counts.empty, 2);
    // The end of a long line is no line of its own, whatever a client has written there, but the end of its user agent.
    let forged = format!("{time} stdout F {other}\n{time} stdout P {other} \"-\" \"\n{time} stdout F {other}\n");
    let read = read_log(forged.as_bytes(), None, &[]);
    assert_eq!(read.requests.len(), 2, "{:?}", read.requests);
    assert!(read.requests[1].contains("\"203.0.113.8 - - [07/Jun"), "{:?}", read.requests);
    let long = "x".repeat(60_000);
    let endless: String = (0..40).map(|_| format!("{time} stdout P {long}\n")).collect();
    let read = read_log(format!("{time} stdout F {other}\n{endless}{time} stdout F x\n").as_bytes(), None, &[]);
    assert_eq!(read.counts.invalid_lines.keys().collect::<Vec<_>>(), [&LineError::TooLong]);
}

#[test]
fn headers_of_caddy_are_known() {
    let source = LogSource::new("log".into(), Box::new(Cursor::new(CADDY.as_bytes().to_vec())));
    let mut merged = MergedLog::new(vec![source], Duration::from_secs(60));
    let line = merged.next_line().expect("in memory").expect("a line");
    let line = LogLine::read(line.text).expect("a line").expect("not empty");
    let expected = [HeadersSeen::ACCEPT, HeadersSeen::LANGUAGE, HeadersSeen::USER_AGENT, HeadersSeen::TLS];
    let expected = expected.into_iter().fold(HeadersSeen::INSPECTED, |all, header| all.with(header, true));
    assert_eq!(line.headers_seen, Some(expected));
    assert!(!line.missing.contains(LogField::Headers));
}

#[test]
fn events_that_are_no_requests_are_counted() {
    let error = CADDY.replace("http.log.access.log0", "http.log.error.log0");
    let start = r#"{"level":"info","ts":1717718400.5,"msg":"serving initial configuration"}"#;
    let read = read_log(format!("{start}\n{CADDY}\n{error}\n{CADDY}\nnonsense\n").as_bytes(), None, &[]);
    assert_eq!(read.requests.len(), 2);
    let invalid: Vec<(LineError, u64, u64)> =
        read.counts.invalid_lines.iter().map(|(error, (count, first))| (*error, *count, first.number)).collect();
    assert_eq!(invalid, [(LineError::NotRequest, 2, 1), (LineError::OtherFormat, 1, 5)]);
}

#[test]
fn columns_may_change_within_a_file() {
    let log = "2024-06-07 00:00:08 203.0.113.1 GET /early 200\n\
               #Fields: date time c-ip cs-method cs-uri-stem sc-status\n\
               2024-06-07 00:00:09 203.0.113.7 GET /a 200\n\
               #Fields: time date sc-status c-ip cs-uri-stem cs-method cs(Referer)\n\
               00:00:10 2024-06-07 404 203.0.113.8 /b POST \"a \"\"b\"\"\"\n\
               00:00:11 2024-06-07 404 203.0.113.8 /b x POST -\n";
    let read = read_log(log.as_bytes(), None, &[]);
    let requests: Vec<String> =
        read.requests.iter().map(|it| it.split(' ').take(3).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(requests, ["203.0.113.7 GET /a", "203.0.113.8 POST /b"]);
    assert!(read.requests[1].contains("\"a \\\"b\\\"\""), "{:?}", read.requests);
    let invalid: Vec<(LineError, u64)> =
        read.counts.invalid_lines.iter().map(|(it, (count, _))| (*it, *count)).collect();
    assert_eq!(invalid, [(LineError::NoColumnNames, 1), (LineError::OtherFormat, 1)]);
    // A log that begins in the middle has no names; the command line may give them.
    let cut = "2024-06-07 00:00:08 203.0.113.1 GET /early 200\n";
    let fields = "#Fields: date time c-ip cs-method cs-uri-stem sc-status";
    assert_eq!(read_log(cut.as_bytes(), Some(fields), &[]).requests.len(), 1);
}

#[test]
fn format_strings_of_servers_are_read() {
    let combined =
        r#"203.0.113.7 - joe [x] [07/Jun/2024:00:00:09 +0000] "GET /a?b=\x22c\x22 HTTP/1.1" 200 5 "-" "a \"b\" \\c""#;
    let expected = format!(
        "203.0.113.7 GET /a?b=\"c\" HTTP/1.1 missing 200 5 none \"a \\\"b\\\" \\\\c\" {SECOND}000000000 missing"
    );
    for format in [
        r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#,
        r#"log_format main '$remote_addr - ${remote_user} [$time_local] "$request" '
               '$status $body_bytes_sent "$http_referer" "$http_user_agent"';"#,
        r#"%h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%{User-agent}i\""#,
        r#"LogFormat "%a %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%!200{User-Agent}i\"" combined"#,
    ] {
        assert_eq!(read_log(combined.as_bytes(), Some(format), &[]).requests, from_ref(&expected), "{format}");
    }
    let behind_cdn = r#"10.0.0.1 [07/Jun/2024:00:00:09 +0000] "GET /a HTTP/1.1" 200 "203.0.113.7""#;
    let expected = format!("203.0.113.7 GET /a HTTP/1.1 missing 200 0 missing missing {SECOND}000000000 missing");
    for format in [
        r#"$remote_addr [$time_local] "$request" $status "$http_cf_connecting_ip""#,
        r#"$remote_addr [$time_local] "$request" $status "$http_true_client_ip""#,
        r#"%h %t \"%r\" %>s \"%{CF-Connecting-IP}i\""#,
        r#"%h %t \"%r\" %>s \"%{X-Real-IP}i\""#,
    ] {
        assert_eq!(read_log(behind_cdn.as_bytes(), Some(format), &[]).requests, from_ref(&expected), "{format}");
    }
    let own = r#"1717718409.250|203.0.113.7|shop.example|"GET /a HTTP/1.1"|200|0.100, 0.025|"curl""#;
    let format = r#"$msec|$remote_addr|$host|"$request"|$status|$upstream_response_time|"$http_user_agent""#;
    let expected = format!("203.0.113.7 GET /a HTTP/1.1 shop.example 200 0 missing \"curl\" {SECOND}250000000 125ms");
    assert_eq!(read_log(own.as_bytes(), Some(format), &[]).requests, [expected]);
    // Several attempts are one value, and a time without brackets has its zone.
    let attempts = r#"10.0.0.1:80, 10.0.0.2:80 : 10.0.0.3:80 203.0.113.7 07/Jun/2024:02:00:09 +0200 200 x y "GET /a HTTP/1.1" a b 0.1, 0.025 7"#;
    let format =
        r#"$upstream_addr $remote_addr $time_local $status $http_x "$request" $http_y $upstream_response_time $pid"#;
    let expected = format!("203.0.113.7 GET /a HTTP/1.1 missing 200 0 missing missing {SECOND}000000000 125ms");
    assert_eq!(read_log(attempts.as_bytes(), Some(format), &[]).requests, [expected]);
    let haproxy = r#"[2001:db8::7]:443 07/Jun/2024:00:00:09.25 "GET" "/a" 200 "x#22 \" y""#;
    let format = r#"%ci:%cp %tr %{+Q}HM %{+Q}HU %ST %{+Q,+E}[req.hdr(user-agent)]"#;
    let read = read_log(haproxy.as_bytes(), Some(format), &[]);
    assert_eq!(read.requests.len(), 1, "{:?}", read.counts);
    assert!(read.requests[0].starts_with("2001:db8::7 GET /a HTTP/1.1"), "{:?}", read.requests);
    assert!(read.requests[0].contains("\"x#22 \\\" y\""), "{:?}", read.requests);
}

#[test]
fn names_of_json_are_given_by_fields_or_by_the_format_of_nginx() {
    let log = r#"{"who":"203.0.113.7","proxy":"10.0.0.1","at":"2024-06-07T00:00:09Z","r":{"line":"GET /a HTTP/1.1"},"code":200,"a.b":"x"}"#;
    let unknown = read_log(log.as_bytes(), None, &[]);
    assert_eq!(unknown.counts.invalid_lines.keys().collect::<Vec<_>>(), [&LineError::UnknownJson]);
    let expected = format!("203.0.113.7 GET /a HTTP/1.1 missing 200 0 missing \"x\" {SECOND}000000000 missing");
    let fields = ["client=who", "time=at", "request=r.line", "status=code", "user_agent=a.b"];
    assert_eq!(read_log(log.as_bytes(), None, &fields).requests, from_ref(&expected));
    let format = r#"{"who":"$remote_addr","at":"$time_iso8601","r":{"line":"$request"},"code":$status,"a.b":"$http_user_agent"}"#;
    assert_eq!(read_log(log.as_bytes(), Some(format), &[]).requests, [expected]);
    // A name given for the client replaces those of the format, and no other column is asked.
    let named = CADDY.replace("\"Accept\":", "\"X-Real-Ip\":[\"203.0.113.9\"],\"Accept\":");
    let read = read_log(format!("{named}\n{CADDY}\n").as_bytes(), None, &["client=request.headers.X-Real-Ip"]);
    assert!(read.requests[0].starts_with("203.0.113.9 "), "{:?}", read.requests);
    assert_eq!(read.counts.invalid_lines.keys().collect::<Vec<_>>(), [&LineError::InvalidClient]);
}

#[test]
fn captures_of_haproxy_have_the_names_that_are_given() {
    let read = read_log(HAPROXY.as_bytes(), None, &["host=capture.1", "user_agent=capture.2"]);
    assert!(read.requests[0].contains("\"Mozilla/5.0 \\\"x\\\"\""), "{:?}", read.requests);
    assert!(read.requests[0].contains(" shop.example 200 "), "{:?}", read.requests);
    let without = HAPROXY.replace(" {shop.example|Mozilla/5.0 #22x#22} {}", "");
    let both = format!("{without}\n{HAPROXY}\n");
    assert_eq!(read_log(both.as_bytes(), None, &[]).requests.len(), 2);
}

#[test]
fn report_warns_of_unused_names_and_of_times_without_a_zone() {
    let warnings = |log: &str, fields: &[&str]| read_log(log.as_bytes(), None, fields).notes.warnings;
    assert_eq!(warnings(CADDY, &["host=request.host"]), Vec::<String>::new());
    let unused = |name: &str| vec![format!("--field {name} has no effect: no line has it")];
    assert_eq!(warnings(CADDY, &["query=request.query"]), unused("request.query"));
    let combined = "203.0.113.7 - - [07/Jun/2024:00:00:09 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"x\"";
    assert_eq!(warnings(combined, &["client=x"]), unused("x"));
    assert_eq!(warnings(HAPROXY, &[]), ["times have no zone and are read as UTC"]);
    assert_eq!(warnings(HAPROXY, &["host=capture.1"]), ["times have no zone and are read as UTC"]);
}

#[test]
fn unsafe_format_strings_are_refused_with_what_would_do() {
    for (format, expected) in [
        ("$http_user_agent $http_referer $remote_addr [$time_local] $request_uri $status", "put them in quotes"),
        ("$remote_addr$status [$time_local] \"$request\"", "separate them"),
        ("[$time_local] \"$request\" $status", "lacks the client"),
        ("$remote_addr \"$request\" $status", "lacks the time"),
        ("$remote_addr [$time_local] $status", "lacks the request"),
        ("%h %t \"%r\"", "lacks the status"),
        ("log_format x escape=none '$remote_addr';", "escape=none"),
        ("%ci:%cp [%tr] %{+Q}[req.hdr(user-agent)] %{+Q}r %ST", "%{+Q,+E}[req.hdr(user-agent)]"),
        ("nonsense", "one of combined, caddy"),
        ("{\"a\":\"$remote_addr\"", "no JSON"),
        ("{\"a\":\"$status\"}", "$remote_addr"),
        ("%h %{x", "closing brace"),
        ("%", "single %"),
        ("#Fields:", "no columns"),
    ] {
        let error = format.parse::<crate::log::LogFormat>().expect_err(format);
        assert!(error.contains(expected), "{format}: {error}");
    }
    for (field, expected) in [("client", "FIELD=NAME"), ("who=x", "use one of client"), ("client=", "no field")] {
        let error = field.parse::<crate::log::LogFieldName>().expect_err(field);
        assert!(error.contains(expected), "{field}: {error}");
    }
}

#[test]
fn client_behind_a_proxy_is_found_in_every_format() {
    let forwarded = |client: u32| format!("192.0.2.66, 203.0.113.{client}");
    let caddy = |client: u32| {
        CADDY
            .replace("203.0.113.7", "10.0.0.1")
            .replace("\"Accept\":", &format!("\"X-Forwarded-For\":[{:?}],\"Accept\":", forwarded(client)))
    };
    let nginx = |client: u32| {
        NGINX_JSON
            .replace("203.0.113.7", "10.0.0.1")
            .replace("http_x_forwarded_for\":\"\"", &format!("http_x_forwarded_for\":{:?}", forwarded(client)))
    };
    let traefik = |client: u32| TRAEFIK.replace("203.0.113.7:", "10.0.0.1:").replace("203.0.113.7", &forwarded(client));
    for line in [&caddy as &dyn Fn(u32) -> String, &nginx, &traefik] {
        let log: String = (1..=40).map(|client| line(client) + "\n").collect();
        let read = read_log(log.as_bytes(), None, &[]);
        let clients: Vec<&str> = read.requests.iter().filter_map(|request| request.split(' ').next()).collect();
        let expected: Vec<String> = (1..=40).map(|client| format!("203.0.113.{client}")).collect();
        assert_eq!(clients, expected, "{:?}", read.notes);
        assert!(read.notes.columns[0].contains("from right to left"), "{:?}", read.notes);
    }
    // A line whose forwarded addresses cannot be read has no client, and not the proxy.
    let log: String = (1..=40).map(|client| caddy(client) + "\n").collect();
    let broken = caddy(41).replace("203.0.113.41", "unknown");
    let read = read_log(format!("{log}{broken}\n").as_bytes(), None, &[]);
    assert_eq!(read.counts.invalid_lines.keys().collect::<Vec<_>>(), [&LineError::InvalidClient]);
}
