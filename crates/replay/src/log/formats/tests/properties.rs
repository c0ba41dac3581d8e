//! Hostile and broken lines: none panics, and none is read with a wrong client.

use super::*;
use crate::log::file_format::FileFormat;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::RefCell;

/// Lines tried for each format.
const LINES: u32 = 100_000;

const CLIENT: &str = "203.0.113.7";

/// Formats by name, each with the lines in front of the first request, a line of a request, and the options that it needs.
fn formats() -> Vec<(&'static str, String, Option<&'static str>)> {
    let cloudflare = CLOUDFLARE.replace("2001:db8::7", CLIENT);
    let nginx = r#"203.0.113.7 - a b [07/Jun/2024:00:00:09 +0000] "GET /a HTTP/1.1" 200 5 "http://10.0.0.1/" "Mozilla/5.0 (x)" 0.1, 0.2 10.0.0.9"#;
    let format = r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" $upstream_response_time $server_addr"#;
    vec![
        ("Caddy", CADDY.into(), None),
        ("Traefik", TRAEFIK.into(), None),
        ("Cloudflare", cloudflare, None),
        ("nginx JSON", NGINX_JSON.into(), None),
        ("HAProxy", HAPROXY.into(), None),
        ("load balancer", ALB.into(), None),
        ("CloudFront", CLOUDFRONT.into(), None),
        ("IIS", IIS.into(), None),
        ("format string", nginx.into(), Some(format)),
        ("Kubernetes", format!("2024-06-07T00:00:11.0Z stdout F {CADDY}"), None),
        ("Compose", format!("web-1  | {HAPROXY}"), None),
    ]
}

fn detect(log: &str, format: Option<&str>) -> FileFormat {
    let options = LogOptions { format: format.map(|it| it.parse().expect("a format")), fields: Vec::new() };
    let mut format = FileFormat::detect(log.lines().map(str::as_bytes), &options);
    // Takes the names of the columns.
    for line in log.lines() {
        format.write_line(line.as_bytes(), &mut Vec::new()).expect("a valid log");
    }
    format
}

/// Returns the client of a line; `None` if the line is not read.
fn client_of(format: &mut FileFormat, line: &[u8]) -> Option<String> {
    let mut out = Vec::new();
    format.write_line(line, &mut out).ok()??;
    match LogLine::read(&out).expect("what was written is read")?.client {
        LoggedClient::Address(address) => Some(address.to_string()),
        LoggedClient::HostName(name) => Some(name.to_owned()),
    }
}

fn for_each_line<S: Strategy>(strategy: &S, check: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = Config { cases: LINES, failure_persistence: None, max_shrink_iters: 500, ..Config::default() };
    if let Err(error) = TestRunner::new(config).run(strategy, check) {
        panic!("{error}");
    }
}

/// A change of a line: what, where, and the new byte.
type Mutation = (u8, usize, u8);

fn mutation() -> impl Strategy<Value = Mutation> {
    let byte =
        prop_oneof![Just(b'"'), Just(b'\\'), Just(b' '), Just(b'{'), Just(b'}'), Just(b'|'), Just(b','), any::<u8>()];
    (0..4_u8, any::<usize>(), byte)
}

/// Changes a line, but neither the client nor the bytes beside it.
fn mutate(line: &mut Vec<u8>, (kind, at, byte): Mutation) {
    let at = at % line.len().max(1);
    let clients: Vec<usize> = memchr::memmem::find_iter(line, CLIENT).collect();
    let is_near =
        |at: usize| clients.iter().any(|start| (start.saturating_sub(1)..=start + CLIENT.len()).contains(&at));
    match kind {
        0 if !is_near(at) && at < line.len() => line[at] = byte,
        1 if !is_near(at) => line.insert(at, byte),
        2 if !is_near(at) && at < line.len() => drop(line.remove(at)),
        // Cut, or doubled from here.
        3 if !is_near(at) && byte < 128 => line.truncate(at),
        3 if !is_near(at) => line.extend_from_within(at..),
        _ => {}
    }
}

#[test]
fn broken_lines_never_have_another_client() {
    for (name, log, format) in formats() {
        let last = log.lines().last().expect("a line").as_bytes().to_vec();
        let detected = RefCell::new(detect(&log, format));
        assert_eq!(client_of(&mut detected.borrow_mut(), &last).as_deref(), Some(CLIENT), "{name}");
        for_each_line(&proptest::collection::vec(mutation(), 1..4), |mutations| {
            let mut line = last.clone();
            mutations.into_iter().for_each(|mutation| mutate(&mut line, mutation));
            // A part of a long line changes how the next one is read.
            let found = client_of(&mut detected.borrow().clone(), &line);
            prop_assert!(
                found.as_deref().is_none_or(|client| client == CLIENT),
                "{name}: {found:?} of {}",
                String::from_utf8_lossy(&line)
            );
            Ok(())
        });
    }
}

#[test]
fn random_lines_never_panic() {
    let token = || {
        prop_oneof![
            proptest::sample::select(vec![
                "\"",
                "\\",
                "{",
                "}",
                "[",
                "]",
                ":",
                ",",
                "\t",
                " ",
                "-",
                "|",
                "#Fields: ",
                "c-ip ",
                "203.0.113.7",
                "%",
                "stdout P ",
                "07/Jun/2024:00:00:09 +0000",
                "2024-06-07T00:00:09Z ",
                "GET / HTTP/1.1",
                " 200 ",
                "\"ts\":",
                "1e999",
                "\u{1f}",
                "\"request\":{",
                "<190>1 ",
                "haproxy[1]: ",
                "{\"log\":\"",
                "99999999999999999999",
                "é",
            ])
            .prop_map(|text| text.as_bytes().to_vec()),
            proptest::collection::vec(any::<u8>(), 0..6),
        ]
    };
    let line = proptest::collection::vec(token(), 0..24).prop_map(|tokens| tokens.concat());
    let detected: RefCell<Vec<FileFormat>> =
        RefCell::new(formats().iter().map(|(_, log, format)| detect(log, *format)).collect());
    for_each_line(&line, |line| {
        for format in detected.borrow_mut().iter_mut() {
            let _ = client_of(format, &line);
        }
        let _ = (LogLine::read(&line), crate::log::line_utc_offset(&line));
        Ok(())
    });
}

/// Texts that clients send to look like other columns.
fn hostile() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        proptest::sample::select(vec![
            "\"",
            "\\",
            "\\\"",
            "\\\\",
            " ",
            "}",
            "{",
            "|",
            ",",
            ":",
            "]",
            "[",
            "#",
            "%22",
            "\t",
            "\n",
            "+",
            "''",
            "198.51.100.66",
            "\" 200 5 \"-\" \"x\" \"198.51.100.66\"",
            "\",\"ClientIP\":\"198.51.100.66",
            "\"\"",
            "é",
            "\u{1}",
            " [07/Jun/2024:00:00:09 +0000] \"GET / HTTP/1.1\" 200 5",
            "2024-06-07T00:00:09Z stdout F ",
            "$",
            "-",
        ])
        .prop_map(str::to_owned),
        "[a-zA-Z0-9/.()]{1,8}",
    ];
    proptest::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

/// Returns a text with the escapes of nginx.
fn backslashes(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | 0..32 | 127.. => format!("\\x{byte:02X}"),
            plain => char::from(plain).to_string(),
        })
        .collect()
}

/// Returns a text with the escapes of HAProxy.
fn hashes(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'"' | b'#' | b'{' | b'|' | b'}' | 0..32 | 127.. => format!("#{byte:02X}"),
            plain => char::from(plain).to_string(),
        })
        .collect()
}

/// Returns a text as CloudFront encodes it.
fn percents(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'%' | b'"' | b'\\' | 0..=32 | 127.. => format!("%{byte:02X}"),
            plain => char::from(plain).to_string(),
        })
        .collect()
}

fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Writes a line as a server does.
type Render = fn(agent: &str, referer: &str) -> String;

#[test]
fn hostile_texts_of_clients_are_read_as_they_were_sent() {
    let renderers: [(&str, Option<&str>, Render); 7] = [
        ("Caddy", None, |agent, referer| {
            CADDY
                .replace(r#""curl/7.82.0 \"q\" \\""#, &json(agent))
                .replace(r#""Accept":["*/*"]"#, &format!(r#""Referer":[{}]"#, json(referer)))
        }),
        ("Traefik", None, |agent, referer| {
            TRAEFIK.replace(r#""curl/8 \"x\"""#, &json(agent)).replace(r#""https://a.example/""#, &json(referer))
        }),
        ("nginx JSON", None, |agent, referer| {
            NGINX_JSON
                .replace(r#""a \"b\" \\c""#, &json(agent))
                .replace(r#""http_referer":"""#, &format!(r#""http_referer":{}"#, json(referer)))
        }),
        (
            "format string",
            Some(r#"$remote_addr - $remote_user [$time_local] "$http_referer" $status "$http_user_agent" "$request""#),
            |agent, referer| {
                format!(
                    "{CLIENT} - {} [07/Jun/2024:00:00:09 +0000] \"{}\" 200 \"{}\" \"GET / HTTP/1.1\"",
                    backslashes(agent),
                    backslashes(referer),
                    backslashes(agent)
                )
            },
        ),
        ("HAProxy", None, |agent, referer| {
            HAPROXY.replace("{shop.example|Mozilla/5.0 #22x#22}", &format!("{{{}|{}}}", hashes(referer), hashes(agent)))
        }),
        ("load balancer", None, |agent, _| ALB.replace(r"a \x22b\x22 (c)", &backslashes(agent))),
        ("CloudFront", None, |agent, referer| {
            CLOUDFRONT
                .replace("Mozilla/5.0%20(%22x%22)", &format!("x{}", percents(agent)))
                .replace("\t-\tx", &format!("\tx{}\tx", percents(referer)))
        }),
    ];
    for (name, format, render) in renderers {
        let detected = RefCell::new(detect(&render("agent", "referer"), format));
        for_each_line(&(hostile(), hostile()), |(agent, referer)| {
            let log = render(&agent, &referer);
            let line = log.lines().last().expect("a line");
            let mut out = Vec::new();
            let written = detected.borrow_mut().write_line(line.as_bytes(), &mut out);
            prop_assert!(matches!(written, Ok(Some(_))), "{name}: {written:?} of {line}");
            let read = LogLine::read(&out).expect("what was written").expect("not empty");
            prop_assert_eq!(
                &read.client,
                &LoggedClient::Address(CLIENT.parse().expect("an address")),
                "{}: {}",
                name,
                line
            );
            prop_assert_eq!(read.status / 100 % 2, 0, "{}", line);
            let sent = |text: &str| Some(text.to_owned()).filter(|text| !matches!(&**text, "" | "-"));
            let text =
                |value: Option<std::borrow::Cow<'_, [u8]>>| value.map(|it| String::from_utf8_lossy(&it).into_owned());
            let (expected_agent, expected_referer) = match name {
                "CloudFront" => (Some(format!("x{agent}")), Some(format!("x{referer}"))),
                "HAProxy" => (None, None),
                "load balancer" => (sent(&agent), None),
                _ => (sent(&agent), sent(&referer)),
            };
            prop_assert_eq!(
                (text(read.user_agent), text(read.referer)),
                (expected_agent, expected_referer),
                "{}: {}",
                name,
                line
            );
            Ok(())
        });
    }
}
