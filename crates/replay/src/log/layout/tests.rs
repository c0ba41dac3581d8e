use super::*;
use crate::log::{LogLine, LogSource, LoggedClient, MergedLog};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Cursor;
use std::time::Duration;

/// Layouts by name: `{c}` is the client, `{p}` one of three last octets of proxies, `{req}` time, request and status,
/// `{ua}` the user agent.
#[rustfmt::skip]
const LAYOUTS: &[(&str, &str)] = &[
    ("combined", r#"{c} - - {req} 512 "-" "{ua}""#),
    ("user with a blank", r#"{c} - john doe {req} 512 "-" "{ua}""#),
    ("nginx main, direct", r#"{c} - - {req} 512 "-" "{ua}" "-""#),
    ("nginx main, one balancer", r#"10.0.0.5 - - {req} 512 "-" "{ua}" "{c}""#),
    ("nginx main, several balancers", r#"10.0.0.{p} - - {req} 512 "-" "{ua}" "{c}""#),
    ("nginx main, public proxies", r#"198.51.100.{p} - - {req} 512 "-" "{ua}" "{c}""#),
    ("nginx main, two proxies", r#"10.0.0.5 - - {req} 512 "-" "{ua}" "{c}, 10.1.1.{p}""#),
    ("nginx main, a CDN and a balancer", r#"10.0.0.5 - - {req} 512 "-" "{ua}" "{c}, 198.51.100.{p}""#),
    ("nginx main, forged member", r#"10.0.0.5 - - {req} 512 "-" "{ua}" "192.0.2.66, {c}""#),
    ("nginx main, ports", r#"10.0.0.5 - - {req} 512 "-" "{ua}" "{c}:4711""#),
    ("nginx main, a socket", r#"unix: - - {req} 512 "-" "{ua}" "{c}""#),
    ("forwarded before times", r#"10.0.0.5 - - {req} 512 "-" "{ua}" "{c}" 0.003 "10.0.0.9:80""#),
    ("forwarded without quotes", r#"10.0.0.5 - - {req} 512 "-" "{ua}" {c}"#),
    ("client, proxy", r#"{c}, 10.0.0.5 - - {req} 512 "-" "{ua}""#),
    ("client, public proxy", r#"{c}, 198.51.100.7 - - {req} 512 "-" "{ua}""#),
    ("list and proxy", r#"{c}, 198.51.100.7 10.0.0.5 - - {req} 512 "-" "{ua}""#),
    ("client proxy", r#"{c} 10.0.0.5 - - {req} 512 "-" "{ua}""#),
    ("client public proxy", r#"{c} 198.51.100.7 - - {req} 512 "-" "{ua}""#),
    ("proxy client", r#"10.0.0.5 {c} - - {req} 512 "-" "{ua}""#),
    ("public proxy client", r#"198.51.100.7 {c} - - {req} 512 "-" "{ua}""#),
    ("port", r#"{c}:51234 - - {req} 512 "-" "{ua}""#),
    ("virtual host", r#"shop.example:443 {c} - - {req} 512 "-" "{ua}""#),
    ("virtual host, forwarded", r#"shop.example:443 10.0.0.5 - - {req} 512 "-" "{ua}" "{c}""#),
    ("syslog", r#"Nov 25 10:00:00 web1 nginx: {c} - - {req} 512 "-" "{ua}""#),
    ("syslog with priority", r#"<190>Nov  5 10:00:00 web1 nginx[12]: {c} - - {req} 512 "-" "{ua}""#),
    ("syslog of an address", r#"Nov 25 10:00:00 10.0.0.2 nginx: {c} - - {req} 512 "-" "{ua}""#),
    ("syslog with ISO time", r#"2026-11-25T10:00:00.123456+00:00 10.0.0.2 nginx[9]: {c} - - {req} 512 "-" "{ua}""#),
    ("syslog, forwarded", r#"Nov 25 10:00:00 web1 nginx: 10.0.0.5 - - {req} 512 "-" "{ua}" "{c}""#),
    ("syslog, virtual host", r#"Nov 25 10:00:00 web1 apache2: shop.example:80 {c} - - {req} 512 "-" "{ua}""#),
    ("RFC 5424", r#"<190>1 2026-11-25T10:00:00Z 10.0.0.2 nginx 12 - - {c} - - {req} 512 "-" "{ua}""#),
    ("RFC 5424 with data", r#"<190>1 2026-11-25T10:00:00Z web1 nginx - acc [m a="1" b="x y"] {c} - - {req} 512 "-" "{ua}""#),
    ("journal", r#"2026-11-25T10:00:00+0000 web1 nginx[12]: {c} - - {req} 512 "-" "{ua}""#),
    ("compose", r#"web_1  | {c} - - {req} 512 "-" "{ua}""#),
    ("compose with time", r#"shop-web-1  | 2026-11-25T10:00:00.123456789Z {c} - - {req} 512 "-" "{ua}""#),
    ("docker with time", r#"2026-11-25T10:00:00.123456789Z {c} - - {req} 512 "-" "{ua}""#),
    ("Kubernetes", r#"2026-11-25T10:00:00.000000000Z stdout F {c} - - {req} 512 "-" "{ua}""#),
    ("Kubernetes, forwarded", r#"2026-11-25T10:00:00.0Z stdout F 10.0.0.5 - - {req} 512 "-" "{ua}" "{c}""#),
    ("pod", r#"[pod/web-5c/nginx] {c} - - {req} 512 "-" "{ua}""#),
    ("Traefik", r#"{c} - - {req} 512 - "{ua}" 13 "be" "http://10.0.0.9:80" 2ms"#),
    ("Traefik, referer", r#"{c} - - {req} 512 "http://a.example/" "{ua}" 13 "be" "http://10.0.0.9:80" 2ms"#),
    ("mod_logio", r#"{c} - - {req} 512 3413 "-" "{ua}""#),
    ("times before the referer", r#"{c} - - {req} 512 0.024 0.023 "-" "{ua}""#),
    ("dash before the referer", r#"{c} - - {req} 512 0.024 - "-" "{ua}""#),
    ("quoted size", r#"{c} - - {req} "512" "-" "{ua}""#),
    ("quoted time", r#"{c} - - {req} 512 "0.003" "-" "{ua}""#),
    ("host before the referer", r#"{c} - - {req} 512 "shop.example" "-" "{ua}""#),
    ("dash and forwarded", r#"10.0.0.5 - - {req} 512 - "{ua}" "{c}""#),
    ("ingress", r#"{c} - - {req} 512 "-" "{ua}" 512 0.003 [web-80] [] 10.244.0.9:80 512 0.003 200 abcdef"#),
];

const AGENTS: [&str; 2] =
    ["python-requests/2.31.0", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"];

fn render(layout: &str, client: &str, index: usize) -> String {
    let request =
        format!("[25/Nov/2026:10:{:02}:{:02} +0000] \"GET /item/{index} HTTP/1.1\" 200", index / 60 % 60, index % 60);
    let proxy = (index % 3 + 1).to_string();
    let line = layout.replace("{c}", client).replace("{p}", &proxy).replace("{req}", &request);
    line.replace("{ua}", AGENTS[index % 2]) + "\n"
}

/// Number of lines by client and user agent.
type Population = BTreeMap<(String, String), u32>;

fn read(log: String) -> (Population, MergedLog) {
    let source = LogSource::new("log".to_owned(), Box::new(Cursor::new(log.into_bytes())));
    let mut merged = MergedLog::new(vec![source], Duration::from_secs(60));
    let mut population = Population::new();
    let mut errors = Vec::new();
    while let Some(next) = merged.next_line().expect("a log in memory") {
        match LogLine::read(next.text) {
            Ok(Some(line)) => {
                let client = match line.client {
                    LoggedClient::Address(address) => address.to_string(),
                    LoggedClient::HostName(name) => name.to_owned(),
                };
                let agent = String::from_utf8_lossy(&line.user_agent.unwrap_or_default()).into_owned();
                *population.entry((client, agent)).or_default() += 1;
            }
            Ok(None) => {}
            Err(error) => errors.push((error, next.position)),
        }
    }
    errors.into_iter().for_each(|(error, position)| merged.count_line_error(error, position));
    (population, merged)
}

fn clients_of(layout: &str, clients: &[u8]) -> (Population, Population) {
    let mut expected = Population::new();
    let mut log = String::new();
    for (index, client) in clients.iter().enumerate() {
        let client = format!("203.0.113.{client}");
        log += &render(layout, &client, index);
        *expected.entry((client, AGENTS[index % 2].to_owned())).or_default() += 1;
    }
    (read(log).0, expected)
}

#[test]
fn each_layout_has_its_clients_and_agents() {
    let clients: Vec<u8> = (0..300_u32).map(|index| (index * 7 % 40 + 1) as u8).collect();
    for (name, layout) in LAYOUTS {
        let (found, expected) = clients_of(layout, &clients);
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn addresses_in_brackets_and_with_ports_are_one_client() {
    for client in ["2001:db8::7", "[2001:db8::7]", "[2001:db8::7]:51234"] {
        let line = render("{c} - - {req} 512 \"-\" \"{ua}\"", client, 0);
        let line = LogLine::read(line.trim_end().as_bytes()).expect("a line").expect("not empty");
        assert_eq!(line.client, LoggedClient::Address("2001:db8::7".parse().expect("an address")), "{client}");
    }
}

#[test]
fn lines_without_a_client_are_refused() {
    for line in [
        "one two three 203.0.113.7 - - [25/Nov/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 5",
        "Nov 25 10:00:00 [25/Nov/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 5",
        // Paths that clients have written into the error log of nginx, and a text of an application.
        "2026/11/25 10:00:00 [error] 7#7: *1 open() \"/srv/x: 203.0.113.7 - - [25/Nov/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 5",
        "2026/11/25 10:00:00 [error] 7#7: *1 open() \"/srv/x | 203.0.113.7 - - [25/Nov/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 5",
        "user said: 203.0.113.7 - - [25/Nov/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 5",
    ] {
        assert_eq!(LogLine::read(line.as_bytes()).err(), Some(crate::log::LineError::UnknownFormat), "{line}");
    }
}

#[test]
fn report_names_the_column_and_warns_of_one_private_client() {
    let log = |layout: &str| (0..40).map(|index| render(layout, &format!("203.0.113.{}", index % 20), index)).collect();
    let notes = |layout: &str| read(log(layout)).1.client_notes();
    let direct = notes("{c} - - {req} 512 \"-\" \"{ua}\"");
    assert_eq!((direct.columns, direct.warnings), (vec!["first column".to_owned()], vec![]));
    let forwarded = notes("10.0.0.5 - - {req} 512 \"-\" \"{ua}\" \"{c}\"");
    assert!(forwarded.columns[0].contains("X-Forwarded-For"), "{forwarded:?}");
    assert_eq!(forwarded.warnings, Vec::<String>::new());
    for layout in ["10.0.0.5 - - {req} 512 \"-\" \"{ua}\"", "unix: - - {req} 512 \"-\" \"{ua}\" \"-\""] {
        let notes = notes(layout);
        assert!(notes.warnings.iter().any(|warning| warning.contains("X-Forwarded-For")), "{layout}: {notes:?}");
    }
}

proptest! {
    #[test]
    fn any_population_of_a_layout_is_read(
        layout in 0..LAYOUTS.len(),
        clients in proptest::collection::vec(1..250_u8, 60..200),
    ) {
        prop_assume!(clients.iter().collect::<BTreeSet<_>>().len() >= 24);
        let (found, expected) = clients_of(LAYOUTS[layout].1, &clients);
        prop_assert_eq!(found, expected, "{}", LAYOUTS[layout].0);
    }

    #[test]
    fn any_bytes_have_a_layout(bytes in proptest::collection::vec(prop_oneof![Just(b'['), Just(b']'), Just(b'"'), Just(b' '), Just(b'1'), Just(b'.'), Just(b':'), any::<u8>()], 0..300)) {
        let layout = Layout::detect(bytes.split(|byte| *byte == b'\n'));
        let _ = layout.write_line(&bytes, &mut Vec::new());
    }
}

#[test]
fn line_whose_forwarded_addresses_cannot_be_read_is_not_the_proxys() {
    let line = |forwarded: &str| {
        format!("10.0.0.5 - - [07/Jun/2024:00:00:00 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"Mozilla/5.0\"{forwarded}")
    };
    let lines: Vec<String> = (0..100).map(|number| line(&format!(" \"203.0.113.{number}\""))).collect();
    let layout = Layout::detect(lines.iter().map(String::as_bytes));
    let many: Vec<String> = (0..40).map(|number| format!("192.0.2.{number}")).collect();
    let client = |text: &str| Ok(Some(text.parse().expect("an address")));
    for (forwarded, expected) in [
        (" \"unknown, 198.51.100.66\"", client("198.51.100.66")),
        (" \"<x>, 198.51.100.66, 10.0.0.9\"", client("198.51.100.66")),
        (&*format!(" \"{}, 198.51.100.66\"", many.join(", ")), client("198.51.100.66")),
        (" \"-\"", client("10.0.0.5")),
        (" \"unknown\"", Err(LineError::InvalidClient)),
        (" \"198.51.100.66, <x>\"", Err(LineError::InvalidClient)),
        (" \"unknown, 10.0.0.9\"", Err(LineError::InvalidClient)),
        ("", Err(LineError::InvalidClient)),
    ] {
        assert_eq!(layout.client(line(forwarded).as_bytes()), expected, "{forwarded}");
    }
}

#[test]
fn peers_that_may_be_proxies_are_doubtful() {
    let line = |peer: usize, client: usize| {
        format!(
            "198.51.100.{peer} - - [07/Jun/2024:00:00:00 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"Mozilla/5.0\" \"203.0.113.{client}\""
        )
    };
    let doubt = |peers: usize| {
        let lines: Vec<String> = (0..400).map(|number| line(number % peers, number % 100)).collect();
        Layout::detect(lines.iter().map(String::as_bytes)).warning().map(str::to_owned)
    };
    assert_eq!(doubt(5), None);
    // One client that writes the field, among visitors of a direct server.
    let hostile = (0..360).map(|number| line(1, number % 200));
    let visitors = (0..40).map(|number| line(100 + number % 12, 0).replace("203.0.113.0", "-"));
    let lines: Vec<String> = hostile.chain(visitors).collect();
    let layout = Layout::detect(lines.iter().map(String::as_bytes));
    assert!(layout.warning().is_some_and(|doubt| doubt.starts_with("1 peers")), "{:?}", layout.warning());
    assert!(doubt(80).is_some_and(|doubt| doubt.contains("by 80 peers")));
    // Few enough peers for a column of proxies, but too many to tell which are proxies.
    assert!(doubt(40).is_some_and(|doubt| doubt.contains("next to the server is taken for the client")));
}

#[test]
fn clients_behind_more_edges_of_cloudflare_than_the_site_has_clients_are_found() {
    let line = |edge: usize, client: usize| {
        format!(
            "172.68.{}.{} - - [07/Jun/2024:00:00:00 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"Mozilla/5.0\" \"203.0.113.{client}\"",
            edge / 200,
            edge % 200
        )
    };
    let lines: Vec<String> = (0..400).map(|number| line(number % 40, number % 100)).collect();
    let layout = Layout::detect(lines.iter().map(String::as_bytes));
    for (number, line) in lines.iter().enumerate() {
        let client: IpAddr = format!("203.0.113.{}", number % 100).parse().expect("an address");
        assert_eq!(layout.client(line.as_bytes()), Ok(Some(client)), "{}", layout.describe());
    }
}
