//! Names that programs give the fields of their logs in JSON.

use super::field::{Field, MILLISECOND, Meaning};
use super::json::{JsonNames, values};
use super::value::Value;
use std::collections::BTreeSet;

/// A program with fixed names.
pub(in crate::log) struct JsonDialect {
    /// Name of the format in reports.
    pub(in crate::log) name: &'static str,
    names: &'static [(&'static str, Meaning)],
    /// Object of all request headers.
    headers: Option<&'static str>,
    /// Name and prefix of the kind of an event that is a request.
    event: Option<(&'static str, &'static str)>,
}

impl JsonDialect {
    /// Returns true if one of the lines has the program's name of the target; other programs use the other names, too.
    pub(in crate::log) fn is_of_any(&self, lines: &[&[u8]]) -> bool {
        let names = self.names.iter().copied().filter(|(_, meaning)| matches!(meaning.field, Field::Uri | Field::Path));
        let names = JsonNames::new(names);
        lines.iter().any(|line| names.read(line).is_ok_and(|values| !values.fields().is_empty()))
    }

    /// Returns the names with what is fixed beside them.
    pub(in crate::log) fn complete(&self, names: JsonNames) -> JsonNames {
        let names = self.headers.into_iter().fold(names, JsonNames::with_headers);
        self.event.into_iter().fold(names, |names, (name, prefix)| names.with_event(name, prefix))
    }

    /// Returns the name and the meaning of each field.
    pub(in crate::log) fn fields(&self) -> &'static [(&'static str, Meaning)] {
        self.names
    }
}

const fn of(field: Field) -> Meaning {
    Meaning::of(field)
}

/// Formats of programs with fixed names.
#[rustfmt::skip]
pub(in crate::log) const DIALECTS: [JsonDialect; 3] = [
    JsonDialect {
        name: "Caddy JSON",
        names: &[
            // Differs from the peer only if Caddy trusts proxies.
            ("request.client_ip", of(Field::Client)),
            ("request.remote_ip", of(Field::Client)),
            // Before version 2.5: with the port.
            ("request.remote_addr", of(Field::Client)),
            ("request.headers.X-Forwarded-For", of(Field::Forwarded)),
            ("ts", of(Field::Time)),
            ("request.method", of(Field::Method)),
            ("request.uri", of(Field::Uri)),
            ("request.host", of(Field::Host)),
            ("request.proto", of(Field::Protocol)),
            ("status", of(Field::Status)),
            ("size", of(Field::Bytes)),
            ("request.headers.Referer", of(Field::Referer)),
            ("request.headers.User-Agent", of(Field::UserAgent)),
            ("duration", of(Field::Latency)),
            ("request.tls", of(Field::Tls)),
        ],
        headers: Some("request.headers"),
        // Errors are events of their own, with the same request.
        event: Some(("logger", "http.log.access")),
    },
    JsonDialect {
        name: "Traefik JSON",
        names: &[
            ("ClientAddr", of(Field::Client)),
            ("ClientHost", of(Field::Client)),
            // X-Forwarded-For as Traefik trusts it, else the peer.
            ("ClientHost", of(Field::Forwarded)),
            ("StartUTC", of(Field::Time)),
            ("StartLocal", of(Field::Time)),
            ("time", of(Field::Time)),
            ("RequestMethod", of(Field::Method)),
            ("RequestPath", of(Field::Uri)),
            ("RequestHost", of(Field::Host)),
            ("RequestAddr", of(Field::Host)),
            ("RequestProtocol", of(Field::Protocol)),
            ("DownstreamStatus", of(Field::Status)),
            ("DownstreamContentSize", of(Field::Bytes)),
            ("request_Referer", of(Field::Referer)),
            ("request_User-Agent", of(Field::UserAgent)),
            ("OriginDuration", Meaning::latency(1)),
        ],
        headers: None,
        event: None,
    },
    JsonDialect {
        name: "Cloudflare Logpush",
        names: &[
            ("ClientIP", of(Field::Client)),
            ("EdgeStartTimestamp", of(Field::Time)),
            ("EdgeEndTimestamp", of(Field::Time)),
            ("ClientRequestMethod", of(Field::Method)),
            ("ClientRequestURI", of(Field::Uri)),
            ("ClientRequestPath", of(Field::Path)),
            ("ClientRequestHost", of(Field::Host)),
            ("ClientRequestProtocol", of(Field::Protocol)),
            ("EdgeResponseStatus", of(Field::Status)),
            ("EdgeResponseBodyBytes", of(Field::Bytes)),
            ("EdgeResponseBytes", of(Field::Bytes)),
            ("ClientRequestReferer", of(Field::Referer)),
            ("ClientRequestUserAgent", of(Field::UserAgent)),
            ("OriginResponseDurationMs", Meaning::latency(MILLISECOND)),
        ],
        headers: None,
        event: None,
    },
];

/// Names of fields in logs of nginx, and of programs that write their own JSON, the first choice of a field first.
#[rustfmt::skip]
const WELL_KNOWN: &[(Meaning, &[&str])] = &[
    (of(Field::Client), &["remote_addr", "remote_address", "remote_ip", "remoteaddr", "remoteip", "client_ip", "clientip", "client_addr", "client_address", "client", "ip", "ip_address"]),
    (of(Field::Forwarded), &["http_x_forwarded_for", "x_forwarded_for", "forwarded_for", "xff", "proxy_add_x_forwarded_for", "http_cf_connecting_ip", "cf_connecting_ip", "http_true_client_ip", "true_client_ip", "http_x_real_ip", "x_real_ip", "real_ip"]),
    (of(Field::Time), &["msec", "time_msec", "time_iso8601", "iso8601", "time_local", "timestamp", "time", "ts", "datetime", "date_time"]),
    (of(Field::Request), &["request", "request_line", "http_request"]),
    (of(Field::Method), &["request_method", "method", "http_method", "verb"]),
    (of(Field::Uri), &["request_uri", "uri", "url", "request_path", "path", "request"]),
    (of(Field::Query), &["args", "query_string", "query"]),
    (of(Field::Host), &["http_host", "host", "server_name", "vhost", "virtual_host"]),
    (of(Field::Protocol), &["server_protocol", "protocol", "http_version", "proto"]),
    (of(Field::Status), &["status", "status_code", "response_status", "code", "response"]),
    (of(Field::Bytes), &["body_bytes_sent", "bytes_sent", "bytes", "size", "response_size"]),
    (of(Field::Referer), &["http_referer", "http_referrer", "referer", "referrer"]),
    (of(Field::UserAgent), &["http_user_agent", "user_agent", "useragent", "agent"]),
    (of(Field::Latency), &["upstream_response_time", "upstream_time", "request_time"]),
];

/// Returns the names of the first lines whose meaning is well known, and that are not ambiguous.
///
/// Clients write the members of an object with their headers: only what headers tell is taken from it, and nothing that few
/// lines have, or that is deeper than another name of the same field.
pub(in crate::log) fn guess(lines: &[&[u8]]) -> Vec<(String, Meaning)> {
    let lines: Vec<Vec<(String, Value<'_>)>> = lines.iter().take(GUESSED_LINES).map(|line| values(line)).collect();
    let paths: BTreeSet<&str> = lines.iter().flatten().map(|(path, _)| &**path).collect();
    let is_status = |(path, value): &(String, Value<'_>)| {
        let names = WELL_KNOWN.iter().filter(|(meaning, _)| meaning.field == Field::Status);
        names.flat_map(|(_, known)| *known).any(|name| plain_name(path) == *name) && may_be(Field::Status, value)
    };
    let requests = lines.iter().filter(|line| line.iter().any(is_status)).count();
    let mut names: Vec<(String, Meaning)> = Vec::new();
    for (meaning, known) in WELL_KNOWN {
        let mut found = names_of(*meaning, known, &paths, &lines, requests);
        if meaning.field == Field::Query {
            let is_beside =
                |path: &str| names.iter().any(|(uri, it)| it.field == Field::Uri && object(uri) == object(path));
            found.retain(|(path, _)| is_beside(path));
        }
        names.extend(found);
    }
    names
}

/// Returns the names of one field; `requests` is the number of lines with a status.
fn names_of(
    meaning: Meaning,
    known: &[&str],
    paths: &BTreeSet<&str>,
    lines: &[Vec<(String, Value<'_>)>],
    requests: usize,
) -> Vec<(String, Meaning)> {
    let Meaning { field, .. } = meaning;
    let is_of_headers = matches!(field, Field::Forwarded | Field::Host | Field::Referer | Field::UserAgent);
    let is_optional = is_of_headers || matches!(field, Field::Query | Field::Latency);
    // With a time or a status that cannot be read, the report says so.
    let keeps_implausible = matches!(field, Field::Time | Field::Status);
    let count = |path: &str, is: &dyn Fn(&Value<'_>) -> bool| {
        let values = lines.iter().flatten().filter(|(other, value)| other == path && is(value));
        values.count()
    };
    let candidates: Vec<(usize, &str)> = known
        .iter()
        .enumerate()
        .flat_map(|(choice, name)| {
            paths.iter().filter(|path| plain_name(path) == **name).map(move |path| (choice, *path))
        })
        .filter(|(_, path)| is_of_headers || !is_in_headers(path))
        .collect();
    let is_plausible = |path: &str| count(path, &|value| may_be(field, value)) * 2 >= count(path, &|_| true);
    let has_plausible = candidates.iter().any(|(_, path)| is_plausible(path));
    let plausible =
        candidates.into_iter().filter(|(_, path)| is_plausible(path) || keeps_implausible && !has_plausible);
    let counted: Vec<(usize, &str, usize)> =
        plausible.map(|(choice, path)| (choice, path, count(path, &|_| true))).collect();
    let most = counted.iter().map(|(.., lines)| *lines).max().unwrap_or(0);
    let frequent = counted.iter().filter(|(.., lines)| lines * 2 >= most && (is_optional || lines * 2 >= requests));
    let depth = |path: &str| path.matches('.').count();
    let least = frequent.clone().map(|(_, path, _)| depth(path)).min();
    let shallow: Vec<(usize, &str)> =
        frequent.filter(|(_, path, _)| Some(depth(path)) == least).map(|(choice, path, _)| (*choice, *path)).collect();
    let is_unique = |choice: usize| shallow.iter().filter(|(other, _)| *other == choice).count() == 1;
    let unique = shallow.iter().filter(|(choice, _)| is_unique(*choice));
    unique.map(|(_, path)| ((*path).to_owned(), meaning)).collect()
}

/// Returns true if a value of this path is in an object with the headers of requests.
fn is_in_headers(path: &str) -> bool {
    object(path).to_ascii_lowercase().contains("header")
}

/// Returns the path of the object in which a value is.
fn object(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(object, _)| object)
}

/// Returns true if a value may be that of a field.
fn may_be(field: Field, value: &Value<'_>) -> bool {
    let text = value.text();
    match field {
        Field::Time => value.time().is_some_and(|time| time.at.seconds() >= FIRST_TIME_S),
        Field::Status => value.unsigned().is_some_and(|status| (100..1000).contains(&status)),
        Field::Request => text.is_none_or(|text| text.contains(&b' ')),
        Field::Uri => {
            text.is_none_or(|text| matches!(text[0], b'/' | b'*') || memchr::memmem::find(text, b"://").is_some())
        }
        Field::Method => text.is_none_or(|text| text.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'-')),
        _ => true,
    }
}

/// Returns the last part of a path in lower case, with `_` in place of other marks.
fn plain_name(path: &str) -> String {
    let name = path.rsplit('.').next().unwrap_or(path).to_ascii_lowercase().replace('-', "_");
    name.trim_start_matches(['@', '$', '_']).to_owned()
}

/// Least time of a log, in seconds since 1970: a smaller number is a duration.
const FIRST_TIME_S: u64 = 631_152_000;

/// Lines from which names are taken.
const GUESSED_LINES: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nginx_are_guessed_in_the_order_of_choice() {
        let line = br#"{"time_local":"x","msec":"1.5","remote_addr":"a","nested":{"remote_addr":"b"},"http":{"User-Agent":"u"},"status":"200"}"#;
        let guessed: Vec<(String, &str)> =
            guess(&[line]).into_iter().map(|(path, meaning)| (path, meaning.field.name())).collect();
        let expected = [
            ("remote_addr", "client"),
            ("msec", "time"),
            ("time_local", "time"),
            ("status", "status"),
            ("http.User-Agent", "user_agent"),
        ];
        assert_eq!(guessed, expected.map(|(path, field)| (path.to_owned(), field)));
    }

    #[test]
    fn headers_of_clients_are_no_columns() {
        let line = |more: &str| {
            format!(
                r#"{{"ts":"2024-10-10T00:00:00Z","client_ip":"192.0.2.1","method":"GET","path":"/a","status":200,"request_headers":{{"User-Agent":"u"{more}}}}}"#
            )
        };
        let hostile = r#","Msec":"1000000000.5","Request-Uri":"/free","Remote-Addr":"8.8.8.8","Status":"200","Request":"GET /b HTTP/1.1","Host":"h""#;
        let lines: Vec<String> = (0..50).map(|number| line(if number == 7 { hostile } else { "" })).collect();
        let guessed = |lines: &[String]| -> Vec<String> {
            let lines: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
            guess(&lines).into_iter().map(|(path, meaning)| format!("{}={path}", meaning.field.name())).collect()
        };
        let own = ["client=client_ip", "time=ts", "method=method", "uri=path"];
        let headers = ["host=request_headers.Host", "status=status", "user_agent=request_headers.User-Agent"];
        assert_eq!(guessed(&lines), [&own[..], &headers].concat());
        // Also where the object of the headers has another name.
        let renamed: Vec<String> = lines.iter().map(|line| line.replace("request_headers", "sent")).collect();
        let found = guessed(&renamed);
        assert_eq!(
            found,
            [&own[..], &headers.map(|it| it.replace("request_headers", "sent")).each_ref().map(|it| &**it)].concat()
        );
    }

    #[test]
    fn durations_and_words_are_neither_times_nor_statuses() {
        let line = br#"{"time":0.032,"ts":"2024-10-10T00:00:00Z","status":"ok","code":200,"request":"/a"}"#;
        let guessed: Vec<(String, &str)> =
            guess(&[line]).into_iter().map(|(path, meaning)| (path, meaning.field.name())).collect();
        let expected = [("ts", "time"), ("request", "uri"), ("code", "status")];
        assert_eq!(guessed, expected.map(|(path, field)| (path.to_owned(), field)));
    }

    #[test]
    fn name_of_two_values_is_not_guessed() {
        assert_eq!(guess(&[br#"{"a":{"ip":"192.0.2.1"},"b":{"ip":"192.0.2.2"}}"#]), []);
    }
}
