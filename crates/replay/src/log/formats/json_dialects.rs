//! Names that programs give the fields of their logs in JSON.

use super::field::{Field, MILLISECOND, Meaning};
use super::json::{JsonNames, paths};
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
    (of(Field::Uri), &["request_uri", "uri", "url", "request_path", "path"]),
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
pub(in crate::log) fn guess(lines: &[&[u8]]) -> Vec<(String, Meaning)> {
    let paths: BTreeSet<String> = lines.iter().take(GUESSED_LINES).flat_map(|line| paths(line)).collect();
    let mut names = Vec::new();
    for (meaning, known) in WELL_KNOWN {
        for name in *known {
            let matching: Vec<&String> = paths.iter().filter(|path| plain_name(path) == *name).collect();
            let depth = |path: &&String| path.matches('.').count();
            let Some(least) = matching.iter().map(depth).min() else { continue };
            if let [path] = matching.into_iter().filter(|path| depth(path) == least).collect::<Vec<_>>()[..] {
                names.push((path.clone(), *meaning));
            }
        }
    }
    names
}

/// Returns the last part of a path in lower case, with `_` in place of other marks.
fn plain_name(path: &str) -> String {
    let name = path.rsplit('.').next().unwrap_or(path).to_ascii_lowercase().replace('-', "_");
    name.trim_start_matches(['@', '$', '_']).to_owned()
}

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
    fn name_of_two_values_is_not_guessed() {
        assert_eq!(guess(&[br#"{"a":{"ip":"192.0.2.1"},"b":{"ip":"192.0.2.2"}}"#]), []);
    }
}
