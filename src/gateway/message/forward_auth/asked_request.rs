//! The request that another proxy asks about. It has one name: method, host and path with query. Several names must be the
//! same, because a proxy may pass fields on as its client sent them.

use crate::gateway::message::target;
use http::uri::PathAndQuery;
use http::{Method, Uri, Version};
use tidegate_http1::{Fields, Name, RequestHead};

const FORWARDED_METHOD: &str = "x-forwarded-method";
const FORWARDED_URI: &str = "x-forwarded-uri";
const FORWARDED_HOST: &str = "x-forwarded-host";
const ORIGINAL_METHOD: &str = "x-original-method";
const ORIGINAL_URI: &str = "x-original-uri";
const ORIGINAL_URL: &str = "x-original-url";

/// Fields that name the request, and are none of its own.
pub(super) const NAMING_FIELDS: [&str; 5] =
    [FORWARDED_METHOD, FORWARDED_URI, ORIGINAL_METHOD, ORIGINAL_URI, ORIGINAL_URL];

/// How a request names the one that it asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Naming<'a> {
    /// By `X-Forwarded-Method`, `-Uri` and `-Host`, or by `X-Original-Method` and `-URI` or `-URL`.
    ByFields,
    /// It is the request itself, with this path and query.
    ByItself(&'a str),
}

/// Reason why a request does not name the one that it asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::gateway) enum AskedRequestError {
    /// No name.
    #[error(
        "no request is named: send X-Forwarded-Method and X-Forwarded-Uri, or X-Original-Method and X-Original-URI, or ask \
         below forward_auth.path_prefix"
    )]
    Unnamed,
    /// A path without a method.
    #[error("the method is missing: send X-Forwarded-Method or X-Original-Method")]
    NoMethod,
    /// A method without a path.
    #[error("the path is missing: send X-Forwarded-Uri, X-Original-URI or X-Original-URL")]
    NoPath,
    /// A field with several values, or several fields that differ.
    #[error("{0} has several values: let the proxy remove those that its clients send")]
    Ambiguous(&'static str),
    /// A value that is no method, path or URL.
    #[error("{0} is invalid")]
    Invalid(&'static str),
}

/// Returns the head of the request that a proxy asks about: of `head`, with the named method, host and target, and without
/// the fields that name it or frame the message of the proxy.
///
/// Returns an error without a name, or with several that differ.
pub(in crate::gateway) fn asked_head(head: &RequestHead, naming: Naming<'_>) -> Result<RequestHead, AskedRequestError> {
    let AskedName { method, path, host, scheme } = AskedName::read(head, naming)?;
    // Copied, because the request outlives the message, whose fields keep the whole read buffer of the connection.
    let lines = head.fields.to_lines(|field| {
        let is_framing = matches!(field.name, Name::ContentLength | Name::TransferEncoding | Name::Expect | Name::Host);
        !is_framing && !NAMING_FIELDS.iter().any(|name| field.text.eq_ignore_ascii_case(name.as_bytes()))
    });
    let mut fields = Fields::from_lines(lines.into()).ok_or(AskedRequestError::Invalid("a field"))?;
    if !host.is_empty() {
        fields.append(Name::Host, &host);
    }
    if let Some(scheme) = scheme.filter(|_| !fields.contains(Name::ForwardedProto)) {
        fields.append(Name::ForwardedProto, scheme.as_bytes());
    }
    // The version that the client speaks is not known. With this one, a host is required.
    Ok(RequestHead { method, target: path, version: Version::HTTP_11, fields })
}

/// The name of a request.
struct AskedName {
    method: Method,
    path: Uri,
    host: Vec<u8>,
    /// Scheme of `X-Original-URL`.
    scheme: Option<String>,
}

impl AskedName {
    fn read(head: &RequestHead, naming: Naming<'_>) -> Result<Self, AskedRequestError> {
        if head.fields.all(Name::Host).nth(1).is_some() {
            return Err(AskedRequestError::Ambiguous("the host"));
        }
        let field = |name| single(&head.fields, name);
        let url = field(ORIGINAL_URL)?.map(parse_url).transpose()?;
        let url_path = url.as_ref().and_then(Uri::path_and_query).map(PathAndQuery::as_str);
        let (own_method, own_path) = match naming {
            Naming::ByFields => (None, None),
            Naming::ByItself(rest) if rest.starts_with('/') => (Some(head.method.as_str()), Some(rest.to_owned())),
            Naming::ByItself(query) => (Some(head.method.as_str()), Some(format!("/{query}"))),
        };
        let method = same("the method", [own_method, field(FORWARDED_METHOD)?, field(ORIGINAL_METHOD)?])?;
        let path = same("the path", [own_path.as_deref(), field(FORWARDED_URI)?, field(ORIGINAL_URI)?, url_path])?;
        let (method, path) = match (method, path) {
            (Some(method), Some(path)) => (method, path),
            (Some(_), None) => return Err(AskedRequestError::NoPath),
            (None, Some(_)) => return Err(AskedRequestError::NoMethod),
            (None, None) => return Err(AskedRequestError::Unnamed),
        };
        let host = match naming {
            Naming::ByFields => {
                let url_host = url.as_ref().and_then(Uri::authority).map(|host| host.as_str().to_ascii_lowercase());
                let forwarded_host = field(FORWARDED_HOST)?.map(str::to_ascii_lowercase);
                same("the host", [forwarded_host.as_deref(), url_host.as_deref()])?.map(|host| host.as_bytes().to_vec())
            }
            Naming::ByItself(_) => None,
        };
        Ok(Self {
            method: Method::from_bytes(method.as_bytes()).map_err(|_| AskedRequestError::Invalid("the method"))?,
            path: parse_path(path)?,
            host: host.unwrap_or_else(|| target::host(head).to_vec()),
            scheme: url.as_ref().and_then(Uri::scheme_str).map(str::to_owned),
        })
    }
}

/// Returns the value of all names that are present; `None` if none is. Returns an error if they differ.
fn same<'a, const N: usize>(
    part: &'static str,
    names: [Option<&'a str>; N],
) -> Result<Option<&'a str>, AskedRequestError> {
    let mut present = names.into_iter().flatten();
    let first = present.next();
    match present.any(|name| Some(name) != first) {
        true => Err(AskedRequestError::Ambiguous(part)),
        false => Ok(first),
    }
}

/// Returns the value of a field; `None` if it is absent or empty. Several lines must have the same value.
fn single<'a>(fields: &'a Fields, name: &'static str) -> Result<Option<&'a str>, AskedRequestError> {
    let mut values = fields.get_all_by_text(name);
    let Some(first) = values.next() else { return Ok(None) };
    if values.any(|value| value != first) {
        return Err(AskedRequestError::Ambiguous(name));
    }
    let value = std::str::from_utf8(first).map_err(|_| AskedRequestError::Invalid(name))?;
    Ok((!value.is_empty()).then_some(value))
}

/// Parses a path with its query. A fragment is no part of it: the proxy may read it otherwise.
fn parse_path(text: &str) -> Result<Uri, AskedRequestError> {
    let is_path = text.starts_with('/') || text == "*";
    let parsed = Uri::try_from(text).ok().filter(|uri| is_path && uri.authority().is_none() && !text.contains('#'));
    parsed.ok_or(AskedRequestError::Invalid("the path"))
}

fn parse_url(text: &str) -> Result<Uri, AskedRequestError> {
    let is_complete = |url: &Uri| matches!(url.scheme_str(), Some("http" | "https")) && !text.contains('#');
    Uri::try_from(text).ok().filter(is_complete).ok_or(AskedRequestError::Invalid(ORIGINAL_URL))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head(fields: &[(&str, &str)]) -> RequestHead {
        let mut sent = Fields::new();
        fields.iter().for_each(|(name, value)| sent.append_text(name, value.as_bytes()));
        let target = Uri::from_static("/auth");
        RequestHead { method: Method::GET, target, version: Version::HTTP_10, fields: sent }
    }

    fn asked(fields: &[(&str, &str)], naming: Naming<'_>) -> Result<String, AskedRequestError> {
        let RequestHead { method, target, version, fields } = asked_head(&head(fields), naming)?;
        assert_eq!(version, Version::HTTP_11);
        let host = String::from_utf8_lossy(fields.get(Name::Host).unwrap_or_default()).into_owned();
        Ok(format!("{method} {host} {target}"))
    }

    fn by_fields(fields: &[(&str, &str)]) -> Result<String, AskedRequestError> {
        asked(fields, Naming::ByFields)
    }

    #[test]
    fn fields_of_each_proxy_name_the_request() {
        let caddy = [
            ("Host", "shop.example"),
            ("X-Forwarded-Method", "POST"),
            ("X-Forwarded-Uri", "/item/1?q=%2F"),
            ("X-Forwarded-Host", "shop.example"),
            ("X-Forwarded-Proto", "https"),
        ];
        assert_eq!(by_fields(&caddy).as_deref(), Ok("POST shop.example /item/1?q=%2F"));
        let nginx = [("Host", "127.0.0.1:9092"), ("X-Original-Method", "HEAD"), ("X-Original-URI", "//a/../b")];
        assert_eq!(by_fields(&nginx).as_deref(), Ok("HEAD 127.0.0.1:9092 //a/../b"));
        let ingress = [("Host", "auth"), ("X-Original-Method", "GET"), ("X-Original-URL", "https://Shop.example/a?b")];
        assert_eq!(by_fields(&ingress).as_deref(), Ok("GET shop.example /a?b"));
        let scheme = asked_head(&head(&ingress), Naming::ByFields).map(|head| head.fields);
        assert_eq!(scheme.as_ref().map(|fields| fields.get(Name::ForwardedProto)), Ok(Some(&b"https"[..])));
        let envoy = [("Host", "shop.example"), ("X-Forwarded-Host", "other.example"), ("Content-Length", "0")];
        assert_eq!(asked(&envoy, Naming::ByItself("/a/b?c")).as_deref(), Ok("GET shop.example /a/b?c"));
        assert_eq!(asked(&envoy, Naming::ByItself("?c")).as_deref(), Ok("GET shop.example /?c"));
    }

    #[test]
    fn names_that_differ_are_ambiguous() {
        let named = [("Host", "a"), ("X-Forwarded-Method", "GET"), ("X-Forwarded-Uri", "/dear")];
        let with = |field| by_fields(&[&named[..], &[field]].concat());
        for same in [
            ("x-forwarded-uri", "/dear"),
            ("X-Original-URI", "/dear"),
            ("X-Original-URL", "http://a/dear"),
            ("X-Original-Method", "GET"),
            ("X-Original-Method", ""),
        ] {
            assert_eq!(with(same).as_deref(), Ok("GET a /dear"), "{same:?}");
        }
        for (other, part) in [
            (("x-forwarded-uri", "/cheap"), FORWARDED_URI),
            (("X-Original-URI", "/cheap"), "the path"),
            (("X-Original-URL", "http://a/cheap"), "the path"),
            (("X-Original-Method", "HEAD"), "the method"),
        ] {
            assert_eq!(with(other), Err(AskedRequestError::Ambiguous(part)), "{other:?}");
        }
        let hosts = [("X-Forwarded-Host", "b"), ("X-Original-URL", "http://a/dear")];
        assert_eq!(by_fields(&[&named[..], &hosts].concat()), Err(AskedRequestError::Ambiguous("the host")));
        assert_eq!(with(("Host", "b")), Err(AskedRequestError::Ambiguous("the host")));
        for field in [("X-Forwarded-Uri", "/cheap"), ("X-Original-URI", "/cheap"), ("X-Forwarded-Method", "HEAD")] {
            assert!(asked(&[("Host", "a"), field], Naming::ByItself("/dear")).is_err(), "{field:?}");
        }
    }

    #[test]
    fn incomplete_and_invalid_names_are_rejected() {
        let method = ("X-Forwarded-Method", "GET");
        assert_eq!(by_fields(&[("Host", "a")]), Err(AskedRequestError::Unnamed));
        assert_eq!(by_fields(&[method]), Err(AskedRequestError::NoPath));
        assert_eq!(by_fields(&[("X-Original-URI", "/")]), Err(AskedRequestError::NoMethod));
        for path in ["item", "http://a/", "/a#b", "/a b", "a:80"] {
            assert_eq!(
                by_fields(&[method, ("X-Forwarded-Uri", path)]),
                Err(AskedRequestError::Invalid("the path")),
                "{path}"
            );
        }
        assert_eq!(
            by_fields(&[("X-Forwarded-Method", "G T"), ("X-Forwarded-Uri", "/")]),
            Err(AskedRequestError::Invalid("the method"))
        );
        for url in ["/a", "ftp://a/", "https://a/#b", "https://"] {
            let fields = [("X-Original-Method", "GET"), ("X-Original-URL", url)];
            assert_eq!(by_fields(&fields), Err(AskedRequestError::Invalid(ORIGINAL_URL)), "{url}");
        }
    }

    #[test]
    fn fields_of_the_message_are_no_fields_of_the_request() {
        let sent = [
            ("Host", "a"),
            ("X-Forwarded-Method", "GET"),
            ("X-Forwarded-Uri", "/"),
            ("Content-Length", "5"),
            ("Transfer-Encoding", "chunked"),
            ("Expect", "100-continue"),
            ("User-Agent", "b"),
        ];
        let head = asked_head(&head(&sent), Naming::ByFields).expect("a name");
        let names: Vec<_> = head.fields.names().collect();
        assert_eq!(names, [Name::UserAgent, Name::Host]);
    }

    proptest! {
        #[test]
        fn no_value_panics(
            fields in proptest::collection::vec((0..NAMING_FIELDS.len(), proptest::collection::vec(any::<u8>(), 0..40)), 0..6),
            rest in "[/?].{0,40}",
        ) {
            let mut sent = Fields::new();
            fields.iter().for_each(|(name, value)| sent.append_text(NAMING_FIELDS[*name], value));
            let head = || {
                let target = Uri::from_static("/");
                RequestHead { method: Method::GET, target, version: Version::HTTP_11, fields: sent.clone() }
            };
            let _ = asked_head(&head(), Naming::ByFields);
            let _ = asked_head(&head(), Naming::ByItself(&rest));
        }
    }
}
