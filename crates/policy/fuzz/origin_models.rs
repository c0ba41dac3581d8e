//! Models of how frameworks and servers select the handler of a request: each returns the units that it spends on one.
//! Where versions differ, a model spends what the one with the most matches spends.

use std::borrow::Cow;

/// A framework or server, and the units that it spends on a request target.
pub(crate) struct OriginModel {
    pub(crate) name: &'static str,
    pub(crate) spend: fn(&str) -> u64,
}

/// All models.
pub(crate) const MODELS: [OriginModel; 6] = [
    OriginModel { name: "express", spend: express },
    OriginModel { name: "flask", spend: flask },
    OriginModel { name: "django", spend: django },
    OriginModel { name: "rails", spend: rails },
    OriginModel { name: "nginx", spend: nginx },
    OriginModel { name: "url", spend: url_standard },
];

/// Express 4 and 5: letter case and one trailing slash are ignored, encoded letters are not decoded. Parameters of a
/// query may be members of lists and maps (`qs`).
fn express(target: &str) -> u64 {
    let (path, query) = split(target);
    let path = path.to_ascii_lowercase();
    let segments: Vec<&str> = without_trailing_slash(&path).split('/').skip(1).collect();
    match segments[..] {
        ["search"] => 4,
        ["caf%c3%a9"] => 5,
        ["item", name] if !name.is_empty() => 1,
        ["use", ..] => 2,
        ["list"] if parameters(query, "&").any(|name| is_page_or_member(&name)) => 3,
        _ => 0,
    }
}

/// Flask: paths are decoded. One with repeated slashes is redirected.
fn flask(target: &str) -> u64 {
    let (path, query) = split(target);
    let path = decode(path, false);
    match segments(&collapse_first_slashes(&path))[..] {
        [b"search"] => 4,
        [b"caf\xC3\xA9"] => 5,
        [b"item", name] if !name.is_empty() => 1,
        [b"use", b""] => 2,
        [b"use", first, ..] if !first.is_empty() => 2,
        [b"list"] if parameters(query, "&").any(|name| name == b"page") => 3,
        _ => 0,
    }
}

/// Django: paths are decoded.
fn django(target: &str) -> u64 {
    let (path, query) = split(target);
    let path = decode(path, false);
    match segments(&collapse_first_slashes(&path))[..] {
        [b"search"] | [b"search", b""] => 4,
        [b"caf\xC3\xA9"] => 5,
        [b"item", name] if !name.is_empty() => 1,
        [b"use", _, ..] => 2,
        [b"list"] if parameters(query, "&").any(|name| name == b"page") => 3,
        _ => 0,
    }
}

/// Rails: repeated slashes are merged, a trailing one is ignored, and so is an extension. Some servers decode the path
/// before. Brackets around names of a query are ignored (Rack 2).
fn rails(target: &str) -> u64 {
    let (path, query) = split(target);
    let encoded = path.as_bytes().to_vec();
    let of_path = |path: Vec<u8>| {
        let segments: Vec<&[u8]> = segments(&path).into_iter().filter(|segment| !segment.is_empty()).collect();
        let Some((last, directories)) = segments.split_last() else { return 0 };
        let last = last.split(|byte| *byte == b'.').next().unwrap_or_default();
        let is_cafe = last.eq_ignore_ascii_case(b"caf%C3%A9") || last == b"caf\xC3\xA9";
        match (directories, last) {
            ([], b"search") => 4,
            ([], _) if is_cafe => 5,
            ([b"item"], name) if !name.is_empty() => 1,
            ([b"use", ..], _) | ([], b"use") => 2,
            ([], b"list") if parameters(query, "&;").any(|name| trim_brackets(&name) == b"page") => 3,
            _ => 0,
        }
    };
    of_path(encoded).max(of_path(decode(path, false)))
}

/// nginx: paths are decoded, then dot segments are resolved and slashes merged. Names of a query are not decoded.
fn nginx(target: &str) -> u64 {
    let (path, query) = split(target);
    let decoded = decode(path, false);
    let mut resolved: Vec<&[u8]> = Vec::new();
    let mut ends_in_slash = false;
    for segment in segments(&decoded) {
        ends_in_slash = matches!(segment, b"" | b"." | b"..");
        match segment {
            b"" | b"." => {}
            // 400 above the root.
            b".." if resolved.pop().is_none() => return 0,
            b".." => {}
            name => resolved.push(name),
        }
    }
    if ends_in_slash {
        resolved.push(b"");
    }
    let is_page = |pair: &[u8]| pair.len() > 5 && pair[..5].eq_ignore_ascii_case(b"page=");
    match resolved[..] {
        [b"search"] => 4,
        [b"caf\xC3\xA9"] => 5,
        [b"item", name] if !name.is_empty() => 1,
        [b"use", ..] => 2,
        [b"list"] if query.as_bytes().split(|byte| *byte == b'&').any(is_page) => 3,
        _ => 0,
    }
}

/// `new URL(target, base)` (the URL Standard): backslashes are slashes, dot segments are resolved, and what follows two
/// slashes is a host.
fn url_standard(target: &str) -> u64 {
    let (path, query) = split(target);
    let path = path.replace('\\', "/");
    let path = match path.strip_prefix("//") {
        Some(rest) => rest.trim_start_matches('/').split_once('/').map_or(String::new(), |(_, path)| path.to_owned()),
        None => path[1..].to_owned(),
    };
    let mut resolved: Vec<&str> = Vec::new();
    let names: Vec<&str> = path.split('/').collect();
    for (index, name) in names.iter().enumerate() {
        let is_last = index + 1 == names.len();
        match name.replace("%2e", ".").replace("%2E", ".").as_str() {
            ".." => drop(resolved.pop()),
            "." => {}
            _ => {
                resolved.push(name);
                continue;
            }
        }
        if is_last {
            resolved.push("");
        }
    }
    match resolved[..] {
        ["search"] => 4,
        ["caf%C3%A9"] => 5,
        ["item", name] if !name.is_empty() => 1,
        ["use", ..] => 2,
        ["list"] if parameters(query, "&").any(|name| name == b"page") => 3,
        _ => 0,
    }
}

fn split(target: &str) -> (&str, &str) {
    target.split_once('?').unwrap_or((target, ""))
}

fn without_trailing_slash(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

/// Returns the segments behind the first slash.
fn segments(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').skip(1).collect()
}

/// Replaces several slashes at the start by one, as the server of Python's library does.
fn collapse_first_slashes(path: &[u8]) -> Cow<'_, [u8]> {
    let rest = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
    if rest > 1 { Cow::Owned([b"/", &path[rest..]].concat()) } else { Cow::Borrowed(path) }
}

/// Returns the decoded names of the parameters.
fn parameters<'a>(query: &'a str, separators: &'a str) -> impl Iterator<Item = Vec<u8>> {
    let pairs = query.split(move |letter| separators.contains(letter));
    pairs.map(|pair| decode(pair.split_once('=').map_or(pair, |(name, _)| name), true))
}

/// Returns true for `page`, `page[]`, `page[2]` and `[page]`.
fn is_page_or_member(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name);
    name == "page"
        || name.strip_prefix("page[").is_some_and(|rest| rest.contains(']'))
        || name.strip_prefix("[page]").is_some()
}

fn trim_brackets(name: &[u8]) -> &[u8] {
    let is_bracket = |byte: &u8| matches!(byte, b'[' | b']');
    let start = name.iter().position(|byte| !is_bracket(byte)).unwrap_or(name.len());
    name[start..].split(is_bracket).next().unwrap_or_default()
}

/// Decodes percent-encoding, and in a query `+`.
fn decode(text: &str, is_query: bool) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let byte = match tail {
            [high, low, ..] if *first == b'%' => char::from(*high).to_digit(16).zip(char::from(*low).to_digit(16)),
            _ => None,
        };
        rest = if byte.is_some() { &tail[2..] } else { tail };
        decoded.push(match byte {
            Some((high, low)) => (high * 16 + low) as u8,
            None if is_query && *first == b'+' => b' ',
            None => *first,
        });
    }
    decoded
}
