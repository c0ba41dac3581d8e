//! Validates `origin` and `origins`, and the use of origins by routes.

use super::diagnostics::Diagnostics;
use crate::authority::{self, InvalidAuthority};
use crate::raw::{File, origin as raw};
use crate::setting_path::SettingPath;
use crate::settings::{
    HealthCheck, Listener, Origin, OriginEndpoint, OriginHealth, OriginServer, OriginTls, ProxyProtocolVersion,
    default_port,
};
use std::net::SocketAddr;
use std::time::Duration;
use tidegate_policy::OriginId;
use tidegate_policy::route::Route;
use tidegate_policy::throttle::Scope;

/// Event streams pause while nothing happens; those of servers that send comments meanwhile do so at least every minute.
const DEFAULT_EVENT_STREAM_TIMEOUT: Duration = Duration::from_secs(300);
/// Most origins.
const MAX_ORIGINS: usize = 64;
const EXAMPLE_OF_SEVERAL: &str =
    "write origins: { shop: http://127.0.0.1:3000, api: http://127.0.0.1:3001 } in place of origin";
/// Most servers.
const MAX_SERVERS: usize = 64;
const EXAMPLE: &str = "use http://HOST:PORT, https://HOST:PORT or unix:/PATH, such as http://127.0.0.1:3000";

/// Returns the origins: that of `origin`, or those of `origins`.
pub(super) fn origins(file: &File, listen: &[Listener], report: &mut Diagnostics) -> Vec<Origin> {
    let (one, several) = (SettingPath::ROOT.origin(), SettingPath::ROOT.origins());
    if !report.is_set(&several) {
        return vec![origin("", &file.origin.0, one, listen, report)];
    }
    if report.is_set(&one) || report.is_set(&one.url()) {
        report.error(&several, "beside origin", "name all origins here, and leave out origin (or --origin)");
    }
    let named = &file.origins.0;
    if named.is_empty() {
        report.error(&several, "found none", EXAMPLE_OF_SEVERAL);
    }
    report.check_len(&several, "origins", named.len(), MAX_ORIGINS, "put a proxy in front of some");
    let each = named.iter().map(|(name, raw)| {
        let path = several.entry(name);
        report.check_name(&path, name);
        origin(name, &raw.0, path, listen, report)
    });
    each.collect()
}

/// Returns the id of the origin that a route names.
pub(super) fn origin_id(
    name: Option<&str>,
    is_needed: bool,
    route: &SettingPath,
    origins: &[Origin],
    report: &mut Diagnostics,
) -> OriginId {
    let names = origins.iter().map(|origin| origin.name.as_str()).filter(|name| !name.is_empty());
    let path = route.origin();
    // Invalid origins are reported once, not at each route.
    if report.has_error_at(&SettingPath::ROOT.origins()) {
        return OriginId(0);
    }
    match name {
        Some(_) if names.clone().next().is_none() => report.error(&path, "no origin has a name", EXAMPLE_OF_SEVERAL),
        Some(name) => match origins.iter().position(|origin| origin.name == name) {
            Some(index) => return OriginId::from_index(index),
            None => report.unknown_name(&path, "origin", name, names),
        },
        None if is_needed && origins.len() > 1 => {
            let known: Vec<&str> = names.collect();
            report.error(&path, "missing", format!("write which of several answers: {}", known.join(", ")));
        }
        None => {}
    }
    OriginId(0)
}

/// Warns of origins that no route uses, and of scopes in which the overload of one origin holds back another.
pub(super) fn check_use(origins: &[Origin], scopes: &[Scope], routes: &[Route], report: &mut Diagnostics) {
    if origins.len() < 2 || report.has_error_at(&SettingPath::ROOT.routes()) {
        return;
    }
    // A route without scopes does not reach its origin.
    let is_of = |route: &Route, index: usize| route.origin.index() == index && !route.scopes.is_empty();
    for (index, Origin { path, .. }) in origins.iter().enumerate() {
        if !routes.iter().any(|route| is_of(route, index)) {
            report.warning(format!("{path}: unused origin: no route refers to it"));
        }
    }
    for (number, scope) in scopes.iter().enumerate().filter(|(_, scope)| scope.throttle.is_some()) {
        let is_in = |route: &Route| route.scopes.iter().any(|id| id.index() == number);
        let sharing = origins.iter().enumerate();
        let sharing = sharing.filter(|(index, _)| routes.iter().any(|route| is_in(route) && is_of(route, *index)));
        let sharing: Vec<&str> = sharing.map(|(_, origin)| origin.name.as_str()).collect();
        if sharing.len() > 1 {
            report.warning(format!(
                "{}: limits the origins {} together, so that the overload of one holds back the others; name a scope for \
                 each in its routes",
                SettingPath::of_scope(&scope.name),
                sharing.join(", ")
            ));
        }
    }
}

fn origin(name: &str, raw: &raw::Origin, path: SettingPath, listen: &[Listener], report: &mut Diagnostics) -> Origin {
    let servers = servers(raw, &path, listen, report);
    let event_stream_timeout = match report.is_set(&path.response_timeout()) {
        true => raw.response_timeout,
        false => DEFAULT_EVENT_STREAM_TIMEOUT,
    };
    Origin {
        name: name.to_owned(),
        tls: tls(raw, &path, servers.iter().any(|server| server.is_tls), report),
        servers,
        http2: raw.http2,
        proxy_protocol: proxy_protocol(raw, &path, report),
        health: health(&raw.health, &path, report),
        connect_timeout: raw.connect_timeout,
        response_timeout: raw.response_timeout,
        event_stream_timeout,
        idle_timeout: raw.idle_timeout,
        max_connections: raw.max_connections,
        aborts_on_disconnect: raw.aborts_on_disconnect,
        only_if_cached: raw.only_if_cached,
        path,
    }
}

fn servers(raw: &raw::Origin, path: &SettingPath, listen: &[Listener], report: &mut Diagnostics) -> Vec<OriginServer> {
    let urls: Vec<(SettingPath, &str)> = match (&raw.url, &raw.urls) {
        (Some(_), Some(_)) => {
            report.error(
                &path.urls(),
                format!("beside {}", path.url()),
                "name all servers here, or one in url (or as --origin)",
            );
            Vec::new()
        }
        (Some(url), None) => vec![(path.url(), url)],
        (None, Some(urls)) => {
            report.check_len(&path.urls(), "servers", urls.len(), MAX_SERVERS, "put a load balancer in front of them");
            urls.iter().enumerate().map(|(index, url)| (path.urls().index(index), url.as_str())).collect()
        }
        (None, None) => Vec::new(),
    };
    if urls.is_empty() && !report.has_error_at(&path.urls()) {
        report.error(&path.url(), "missing", "write the address of the site, such as http://127.0.0.1:3000");
    }
    let mut servers = Vec::new();
    for (path, url) in urls {
        match parse_url(url) {
            Ok(server) => {
                if let Some(address) =
                    listen.iter().map(|listener| listener.address).find(|own| is_own_address(&server, own))
                {
                    report.error(
                        &path,
                        format!("{address} points to the gateway itself"),
                        "set the address of the site",
                    );
                }
                if servers.contains(&server) {
                    report.error(&path, format!("{server} is there twice"), "leave one out");
                }
                servers.push(server);
            }
            Err((message, hint)) => report.error(&path, message, hint),
        }
    }
    servers
}

fn is_own_address(server: &OriginServer, own: &SocketAddr) -> bool {
    let OriginEndpoint::Tcp { host, port } = &server.endpoint else { return false };
    own.port() == *port && (*host == own.ip().to_string() || (host == "localhost" && own.ip().is_loopback()))
}

fn tls(raw: &raw::Origin, path: &SettingPath, is_used: bool, report: &mut Diagnostics) -> OriginTls {
    let keys = [
        (path.ca(), raw.ca.is_some()),
        (path.server_name(), raw.server_name.is_some()),
        (path.certificate(), raw.certificate.is_some()),
        (path.verify(), report.is_set(&path.verify())),
    ];
    for (path, _) in keys.iter().filter(|(_, is_set)| *is_set && !is_used) {
        report.error(path, "no server has https://", "leave it out, or write https:// in the URL");
    }
    let client_certificate = match (&raw.certificate, &raw.key) {
        (Some(certificate), Some(key)) => Some((report.beside_file(certificate), report.beside_file(key))),
        (None, None) => None,
        (Some(_), None) => {
            let hint = format!("name the PEM file of the key of {}", path.certificate());
            report.error(&path.key(), "missing", hint);
            None
        }
        (None, Some(_)) => {
            let hint = format!("name the PEM file of the certificate of {}", path.key());
            report.error(&path.certificate(), "missing", hint);
            None
        }
    };
    if raw.server_name.as_ref().is_some_and(|name| !authority::is_host(name)) {
        report.error(&path.server_name(), "not a host name", "write a name such as origin.internal");
    }
    if !raw.verify && is_used {
        if raw.ca.is_some() {
            report.error(
                &path.ca(),
                "beside verify: false",
                "leave verify out: with ca, only its certificates are trusted",
            );
        }
        report.warning(format!(
            "{}: false: any server that answers in place of the origin can read and change all pages",
            path.verify()
        ));
    }
    OriginTls {
        ca: raw.ca.as_ref().map(|ca| report.beside_file(ca)),
        server_name: raw.server_name.clone(),
        client_certificate,
        verifies: raw.verify,
    }
}

fn proxy_protocol(raw: &raw::Origin, path: &SettingPath, report: &mut Diagnostics) -> Option<ProxyProtocolVersion> {
    if raw.http2 && raw.proxy_protocol.is_some() {
        report.error(
            &path.proxy_protocol(),
            "beside http2: true, which sends requests of many clients on one connection",
            "leave one out; X-Forwarded-For names the client of each request",
        );
    }
    raw.proxy_protocol.map(|version| match version {
        raw::ProxyProtocol::V1 => ProxyProtocolVersion::V1,
        raw::ProxyProtocol::V2 => ProxyProtocolVersion::V2,
    })
}

fn health(raw: &raw::Health, origin: &SettingPath, report: &mut Diagnostics) -> OriginHealth {
    let check = raw.check.as_ref().map(|raw::Check { path, interval, timeout }| {
        let key = origin.health().check().path();
        if path.is_none() && !report.has_error_at(&key) {
            report.error(&key, "missing", "write a path such as /healthz");
        }
        HealthCheck { path: path.clone().unwrap_or_default(), interval: *interval, timeout: *timeout }
    });
    OriginHealth { max_failures: raw.max_failures, eject_for: raw.eject_for, check }
}

/// Parses `http://host[:port]`, `https://host[:port]` or `unix:/path`. `Err` is the message and the hint.
fn parse_url(url: &str) -> Result<OriginServer, (String, &'static str)> {
    let invalid = |message: &str| Err((format!("{url:?}: {message}"), EXAMPLE));
    if let Some(path) = url.strip_prefix("unix:") {
        return match path.starts_with('/') && !path.starts_with("//") && !path.contains('\0') {
            true => Ok(OriginServer { endpoint: OriginEndpoint::Unix(path.into()), is_tls: false }),
            false => invalid("needs the absolute path of a socket"),
        };
    }
    let (rest, is_tls) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
        (Some(rest), _) => (rest, false),
        (_, Some(rest)) => (rest, true),
        (None, None) => return invalid("unsupported scheme"),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains('@') {
        return Err((
            "contains a user name or password".into(),
            "leave it out: the gateway forwards the credentials of clients",
        ));
    }
    if rest.contains(['/', '?', '#']) {
        return invalid("contains a path: request paths are forwarded unchanged");
    }
    match authority::parse(rest) {
        Ok((host, port)) => {
            let port = port.unwrap_or(default_port(is_tls));
            Ok(OriginServer { endpoint: OriginEndpoint::Tcp { host, port }, is_tls })
        }
        Err(InvalidAuthority::Host) => invalid("missing or invalid host"),
        Err(InvalidAuthority::Port) => invalid("invalid port, needs 1 to 65535 in digits, without leading zeros"),
    }
}
