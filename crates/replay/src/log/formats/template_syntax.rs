//! Format strings of nginx (`log_format`), Apache (`LogFormat`) and HAProxy (`log-format`).

use super::field::{Encoding, Field, MICROSECOND, MILLISECOND, Meaning};
use super::template::{Form, Piece, Template, TemplateValue};

/// Format of the lines of `option httplog` of HAProxy.
pub(in crate::log) const HAPROXY_HTTPLOG: &str = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc \
                                                  %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r";

/// Parses a format string of nginx.
pub(in crate::log) fn nginx(text: &str) -> Result<Template, String> {
    let text = without_directive(text, "log_format")?;
    let (mut pieces, mut rest) = (Vec::new(), &*text);
    while let Some(at) = rest.find('$') {
        pieces.push(Piece::Literal(rest[..at].into()));
        let behind = &rest[at + 1..];
        let (name, after) = match behind.strip_prefix('{') {
            Some(braced) => braced.split_once('}').ok_or("${ without a closing brace")?,
            None => behind.split_at(behind.find(|it: char| !is_name(it)).unwrap_or(behind.len())),
        };
        let (meaning, form) = nginx_variable(name);
        pieces.push(Piece::Value(TemplateValue::new(&format!("${name}"), meaning, form, Encoding::Backslash)));
        rest = after;
    }
    pieces.push(Piece::Literal(rest.into()));
    Template::new(pieces)
}

/// Returns the meaning of a variable of nginx.
pub(in crate::log) fn nginx_variable(name: &str) -> (Option<Meaning>, Form) {
    let of = |field| Some(Meaning::of(field));
    match name {
        "remote_addr" => (of(Field::Client), Form::Address),
        "proxy_add_x_forwarded_for" => (of(Field::Forwarded), Form::Text),
        "time_local" | "time_iso8601" | "msec" => (of(Field::Time), Form::Word),
        "request" => (of(Field::Request), Form::Text),
        "request_method" => (of(Field::Method), Form::Word),
        "request_uri" => (of(Field::Uri), Form::Text),
        "uri" | "document_uri" => (of(Field::Path), Form::Text),
        "args" | "query_string" => (of(Field::Query), Form::Text),
        "host" | "server_name" => (of(Field::Host), Form::Word),
        "server_protocol" => (of(Field::Protocol), Form::Word),
        "status" => (of(Field::Status), Form::Word),
        "body_bytes_sent" | "bytes_sent" => (of(Field::Bytes), Form::Word),
        "upstream_response_time" => (of(Field::Latency), Form::List),
        "upstream_addr" | "upstream_status" | "upstream_response_length" => (None, Form::List),
        _ if name.starts_with("upstream_") && name.ends_with("_time") => (None, Form::List),
        "request_time"
        | "request_length"
        | "connection"
        | "connection_requests"
        | "scheme"
        | "server_port"
        | "pid"
        | "server_addr"
        | "remote_port"
        | "request_id"
        | "pipe"
        | "gzip_ratio"
        | "ssl_protocol"
        | "ssl_cipher"
        | "hostname"
        | "realip_remote_addr"
        | "realip_remote_port"
        | "nginx_version"
        | "https" => (None, Form::Word),
        _ => (name.strip_prefix("http_").and_then(Field::of_header).map(Meaning::of), Form::Text),
    }
}

/// Parses a format string of Apache.
pub(in crate::log) fn apache(text: &str) -> Result<Template, String> {
    let text = without_directive(text, "LogFormat")?.replace("\\\"", "\"").replace("\\t", "\t");
    let mut pieces = Vec::new();
    let mut rest = &*text;
    while let Some(at) = rest.find('%') {
        pieces.push(Piece::Literal(rest[..at].into()));
        // Which status or which of several requests a value is of: `%>s`, `%!200,304{Referer}i`.
        let behind = rest[at + 1..].trim_start_matches(|it: char| it.is_ascii_digit() || "!,<>".contains(it));
        let (argument, behind) = match behind.strip_prefix('{') {
            Some(braced) => braced.split_once('}').ok_or("%{ without a closing brace")?,
            None => ("", behind),
        };
        let code_bytes = if behind.starts_with("^t") { 3 } else { 1 };
        let code = behind.get(..code_bytes).ok_or("a single % at the end")?;
        let name = &rest[at..rest.len() - behind.len() + code.len()];
        pieces.push(match code {
            "%" => Piece::Literal(b"%".to_vec()),
            _ => {
                let (meaning, form) = apache_directive(argument, code);
                Piece::Value(TemplateValue::new(name, meaning, form, Encoding::Backslash))
            }
        });
        rest = &behind[code.len()..];
    }
    pieces.push(Piece::Literal(rest.into()));
    Template::new(pieces)
}

fn apache_directive(argument: &str, code: &str) -> (Option<Meaning>, Form) {
    let of = |field| Some(Meaning::of(field));
    match (code, &*argument.to_ascii_lowercase()) {
        ("h", _) | ("a", "") => (of(Field::Client), Form::Address),
        ("t", _) => (of(Field::Time), Form::Word),
        ("r", _) => (of(Field::Request), Form::Text),
        ("m", _) => (of(Field::Method), Form::Word),
        ("U", _) => (of(Field::Path), Form::Text),
        ("q", _) => (of(Field::Query), Form::Text),
        ("v" | "V", _) => (of(Field::Host), Form::Word),
        ("H", _) => (of(Field::Protocol), Form::Word),
        ("s", _) => (of(Field::Status), Form::Word),
        ("b" | "B" | "O", _) => (of(Field::Bytes), Form::Word),
        ("D", _) | ("T", "us") => (Some(Meaning::latency(MICROSECOND)), Form::Word),
        ("T", "ms") => (Some(Meaning::latency(MILLISECOND)), Form::Word),
        // In whole seconds: too coarse.
        ("T" | "I" | "S" | "l" | "p" | "P" | "k" | "X" | "A" | "a" | "L", _) => (None, Form::Word),
        ("i", header) => (Field::of_header(header).map(Meaning::of), Form::Text),
        _ => (None, Form::Text),
    }
}

/// Parses a format string of HAProxy.
pub(in crate::log) fn haproxy(text: &str) -> Result<Template, String> {
    let text = without_directive(text, "log-format")?.replace("\\ ", " ").replace("\\\"", "\"");
    let (mut pieces, mut rest) = (Vec::new(), &*text);
    while let Some(at) = rest.find('%') {
        pieces.push(Piece::Literal(rest[..at].into()));
        let behind = &rest[at + 1..];
        let (flags, behind) = match behind.strip_prefix('{') {
            Some(braced) => braced.split_once('}').ok_or("%{ without a closing brace")?,
            None => ("", behind),
        };
        let length = match behind.as_bytes().first() {
            Some(b'[') => behind.find(']').ok_or("%[ without a closing bracket")? + 1,
            Some(b'%') => 1,
            _ => behind.find(|it: char| !it.is_ascii_alphanumeric()).unwrap_or(behind.len()),
        };
        let (code, after) = behind.split_at(length);
        let is_quoted = flags.contains("+Q");
        let (meaning, form) = haproxy_variable(code);
        let escapes = if flags.contains("+E") { Encoding::AnyBackslash } else { Encoding::Hash };
        if form == Form::Text && code.starts_with('[') && escapes == Encoding::Hash {
            return Err(format!(
                "%{code}: HAProxy does not escape quotes in it, so that clients can write other columns; log %{{+Q,+E}}{code}, \
                 and read logs written since"
            ));
        }
        let value = Piece::Value(TemplateValue::new(&format!("%{code}"), meaning, form, escapes));
        let quote = || Piece::Literal(b"\"".to_vec());
        match code {
            "" => return Err("a single % in the format; write %% for the sign".to_owned()),
            "%" => pieces.push(Piece::Literal(b"%".to_vec())),
            _ if is_quoted => pieces.extend([quote(), value, quote()]),
            _ => pieces.push(value),
        }
        rest = after;
    }
    pieces.push(Piece::Literal(rest.into()));
    Template::new(pieces)
}

fn haproxy_variable(code: &str) -> (Option<Meaning>, Form) {
    let of = |field| Some(Meaning::of(field));
    match code {
        "ci" | "[src]" => (of(Field::Client), Form::Address),
        "t" | "tr" | "trg" | "trl" | "T" | "Tl" | "Ts" => (of(Field::Time), Form::Word),
        "r" => (of(Field::Request), Form::Text),
        "HM" => (of(Field::Method), Form::Word),
        "HU" => (of(Field::Uri), Form::Text),
        "HP" | "HPO" => (of(Field::Path), Form::Text),
        "HQ" => (of(Field::Query), Form::Text),
        "HV" => (of(Field::Protocol), Form::Word),
        "ST" => (of(Field::Status), Form::Word),
        "B" => (of(Field::Bytes), Form::Word),
        "Tr" => (Some(Meaning::latency(MILLISECOND)), Form::Word),
        "hr" | "hs" => (None, Form::Captures),
        _ if SERVER_SAMPLES.iter().any(|start| code.starts_with(start)) => (None, Form::Word),
        "hrl" | "hsl" | "rt" | "ID" | "o" => (None, Form::Text),
        _ if code.starts_with('[') => (haproxy_sample(code), Form::Text),
        _ => (None, Form::Word),
    }
}

/// Samples that the client does not choose, by their start.
const SERVER_SAMPLES: [&str; 7] =
    ["[dst", "[src_port", "[fc_", "[bc_", "[ssl_fc_cipher", "[ssl_fc_protocol", "[unique-id"];

/// Returns the meaning of a sample of HAProxy, such as `[capture.req.hdr(0)]` or `[req.hdr(user-agent)]`.
fn haproxy_sample(code: &str) -> Option<Meaning> {
    let header = code.split_once("hdr(").and_then(|(_, rest)| rest.split_once([')', ',']))?.0;
    Field::of_header(header).map(Meaning::of)
}

/// Returns the format string of a text that may be a whole line of a configuration: `log_format main '...' '...';`.
fn without_directive(text: &str, directive: &str) -> Result<String, String> {
    let text = text.trim();
    let Some(rest) = text.strip_prefix(directive).filter(|rest| rest.starts_with(char::is_whitespace)) else {
        return Ok(text.to_owned());
    };
    let rest = rest.trim().trim_end_matches(';').trim_end();
    if rest.contains("escape=none") {
        return Err(
            "escape=none: nginx does not escape quotes, so that clients can write other columns; use the default"
                .to_owned(),
        );
    }
    if rest.contains("escape=json") {
        return Err("escape=json: give the JSON text alone, such as {\"client\":\"$remote_addr\", ...}".to_owned());
    }
    let Some(start) = rest.find(['\'', '"']) else { return Ok(rest.to_owned()) };
    let quote = rest.as_bytes()[start];
    let (mut parts, mut rest) = (String::new(), &rest[start..]);
    while rest.as_bytes().first() == Some(&quote) {
        let end = closing_quote(rest, quote).ok_or("a quote is not closed")?;
        parts.push_str(&rest[1..end]);
        rest = rest[end + 1..].trim_start();
    }
    Ok(parts)
}

/// Returns the position of the quote that closes the one at the start.
fn closing_quote(text: &str, quote: u8) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().enumerate().skip(1).find_map(|(at, byte)| {
        let closes = byte == quote && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        closes.then_some(at)
    })
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Returns the names of a format string of nginx that writes JSON (`escape=json`), each with its variable.
pub(in crate::log) fn nginx_json(text: &str) -> Result<Vec<(String, Meaning)>, String> {
    // A variable without quotes, as of a number, becomes a text.
    let (mut quoted, mut rest, mut is_text) = (String::new(), text, false);
    while let Some(at) = rest.find(['"', '$', '\\']) {
        let (before, behind) = rest.split_at(at);
        quoted.push_str(before);
        let length = match behind.as_bytes()[0] {
            b'\\' => behind.chars().take(2).map(char::len_utf8).sum(),
            b'"' => {
                is_text = !is_text;
                1
            }
            _ => 1 + behind[1..].find(|it: char| !is_name(it) && it != '{' && it != '}').unwrap_or(behind.len() - 1),
        };
        let (token, after) = behind.split_at(length);
        match token.starts_with('$') && !is_text {
            // A brace behind a number closes the object.
            true => {
                let name_end = token[1..].find(['{', '}']).map_or(token.len(), |end| end + 1);
                quoted.push_str(&format!("\"{}\"{}", &token[..name_end], &token[name_end..]));
            }
            false => quoted.push_str(token),
        }
        rest = after;
    }
    quoted.push_str(rest);
    let value: serde_json::Value =
        serde_json::from_str(&quoted).map_err(|error| format!("the format is no JSON with variables: {error}"))?;
    let mut names = Vec::new();
    add_variables(&value, "", &mut names);
    Ok(names)
}

fn add_variables(value: &serde_json::Value, path: &str, names: &mut Vec<(String, Meaning)>) {
    match value {
        serde_json::Value::Object(members) => {
            for (name, member) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                add_variables(member, &path, names);
            }
        }
        serde_json::Value::String(text) => {
            let variable = text.strip_prefix('$').map(|name| name.trim_start_matches('{').trim_end_matches('}'));
            if let Some((Some(meaning), _)) = variable.filter(|name| name.chars().all(is_name)).map(nginx_variable) {
                names.push((path.to_owned(), meaning.encoded(Encoding::Plain)));
            }
        }
        _ => {}
    }
}
