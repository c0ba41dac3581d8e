//! Validates `admin`, `headers` and `log`.

use super::diagnostics::Diagnostics;
use crate::admin_address::AdminAddress;
use crate::raw::{self, server as raw_server};
use crate::scalars::Size;
use crate::serde_forms::SecretText;
use crate::setting_path::SettingPath;
use crate::settings::{AccessLog, Admin, Headers, LegacyFamily, Listener, Log, LogLevel, LogRotation};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use tidegate_policy::own_hosts::OwnHosts;
use tidegate_policy::path::PathPolicy;
use tidegate_policy::secret::Secret;
use tidegate_policy::tier::Share;

const DEFAULT_ADMIN_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);
/// Default file name of the access log, in `state_dir`.
const DEFAULT_ACCESS_LOG: &str = "access.log";
const DEFAULT_RETRY_AFTER_SPREAD: Share = Share::from_millionths(200_000);
const KIB: u64 = 1024;
/// Maximum number of own hosts: a request is compared with each.
const MAX_HOSTS: usize = 1000;

pub(super) fn admin(raw: &raw::File, listen: &[Listener], report: &mut Diagnostics) -> Option<Admin> {
    let keys = match &raw.admin {
        Some(raw_server::AdminListener::Off) => return None,
        Some(raw_server::AdminListener::On(keys)) => keys,
        None => &raw_server::Admin::default(),
    };
    let path = SettingPath::ROOT.admin();
    let address = keys.listen.as_ref().map_or(AdminAddress::Tcp(DEFAULT_ADMIN_LISTEN), |socket| socket.0.clone());
    if address
        .tcp()
        .is_some_and(|address| address.port() != 0 && listen.iter().any(|listener| listener.address == address))
    {
        report.error(
            &path.listen(),
            format!("{address} is an address for clients"),
            "write another port, such as admin: { listen: 127.0.0.1:9091 }, or admin: off",
        );
    }
    if !address.is_local() && keys.token.is_none() {
        let message = format!("{address} is not a loopback address and requires a token");
        report.error(&path.listen(), message, "set admin.token: ${TIDEGATE_ADMIN_TOKEN}, or listen on 127.0.0.1");
    }
    let token = keys.token.as_ref().map(|token| secret(&path.token(), token, report));
    let read_token = keys.read_token.as_ref().map(|token| secret(&path.read_token(), token, report));
    match (&token, &read_token) {
        (None, Some(_)) => {
            report.error(&path.read_token(), "read_token requires token", "add token: ${TIDEGATE_ADMIN_TOKEN}");
        }
        (Some(token), Some(read_token)) if token == read_token => {
            report.error(&path.read_token(), "is the same as token", "write another one");
        }
        _ => {}
    }
    Some(Admin { listen: address, token: token.map(Secret::new), read_token: read_token.map(Secret::new) })
}

/// Checks a token that could otherwise not be sent, or be guessed.
/// Returns a secret that a person has generated.
pub(super) fn secret(path: &SettingPath, token: &SecretText, report: &mut Diagnostics) -> String {
    const MIN_LENGTH: usize = 16;
    const HINT: &str = "write letters, digits and symbols, such as the output of `openssl rand -hex 32`";
    let token = &token.0;
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        report.error(path, "contains spaces or other characters than ASCII", HINT);
    } else if token.len() < MIN_LENGTH {
        report.error(path, format!("needs at least {MIN_LENGTH} characters"), HINT);
    }
    token.clone()
}

pub(super) fn state_dir(raw: &raw::File) -> PathBuf {
    raw.state_dir.as_ref().map_or("./state", |path| &path.0).into()
}

/// Returns the own hosts; `None` if the file does not list them.
pub(super) fn hosts(raw: &raw::File, report: &mut Diagnostics) -> Option<OwnHosts> {
    let hosts = &raw.hosts.as_ref()?.0;
    let path = SettingPath::ROOT.hosts();
    if hosts.is_empty() && !report.has_error_at(&path) {
        report.error(&path, "no host", "add one such as example.com, or leave hosts out to accept every host");
    }
    report.check_len(&path, "hosts", hosts.len(), MAX_HOSTS, "cover names with a wildcard such as \"*.example.com\"");
    Some(OwnHosts::new(hosts.iter().map(|host| host.0.clone()).collect()))
}

pub(super) fn path_policy(paths: raw_server::Paths) -> PathPolicy {
    match paths {
        raw_server::Paths::Strict => PathPolicy::Strict,
        raw_server::Paths::Lenient => PathPolicy::Lenient,
        raw_server::Paths::Raw => PathPolicy::Raw,
    }
}

pub(super) fn count(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

pub(super) fn headers(raw: &raw_server::Headers) -> Headers {
    let mut legacy = Vec::new();
    for family in &raw.legacy {
        let family = match family {
            raw_server::Legacy::Atlassian => LegacyFamily::Atlassian,
            raw_server::Legacy::Github => LegacyFamily::Github,
            raw_server::Legacy::Draft03 => LegacyFamily::Draft03,
        };
        if !legacy.contains(&family) {
            legacy.push(family);
        }
    }
    let retry_after_spread = raw.retry_after_spread.as_ref().map_or(DEFAULT_RETRY_AFTER_SPREAD, |share| share.0);
    Headers {
        ratelimit: raw.ratelimit != raw_server::RateLimit::Off,
        legacy,
        retry_after_spread,
        cors: raw.cors.unwrap_or(true),
    }
}

pub(super) fn log(raw: &raw_server::Log, state_dir: &Path, report: &mut Diagnostics) -> Log {
    let access = match &raw.access {
        None => AccessLog::File { path: state_dir.join(DEFAULT_ACCESS_LOG), rotation: None },
        Some(raw_server::Access::Off) => AccessLog::Off,
        Some(raw_server::Access::Stdout) => AccessLog::Stdout,
        Some(raw_server::Access::File(
            file @ raw_server::AccessFile { path, format: raw_server::Format::Json, .. },
        )) => {
            if path.is_none() {
                let key = SettingPath::ROOT.log().access().path();
                report.error(&key, "missing", "name a file such as ./state/access.log");
            }
            AccessLog::File {
                path: path.as_ref().map(|path| path.0.as_str()).unwrap_or_default().into(),
                rotation: rotation(file, report),
            }
        }
    };
    let level = match raw.level {
        raw_server::Level::Error => LogLevel::Error,
        raw_server::Level::Warn => LogLevel::Warn,
        raw_server::Level::Info => LogLevel::Info,
        raw_server::Level::Debug => LogLevel::Debug,
        raw_server::Level::Trace => LogLevel::Trace,
    };
    Log { access, level, redact: raw.redact.0.clone() }
}

fn rotation(raw: &raw_server::AccessFile, report: &mut Diagnostics) -> Option<LogRotation> {
    let path = SettingPath::ROOT.log().access();
    let keep = report.nonzero_count(&path.keep(), raw.keep, 4);
    let Some(Size(max_size)) = raw.max_size else {
        if raw.keep.is_some() {
            report.error(&path.keep(), "keep requires max_size", "add one such as max_size: 100MiB, or leave it out");
        }
        return None;
    };
    if max_size < KIB * KIB {
        report.error(&path.max_size(), "needs at least 1MiB", "write a size such as 100MiB");
    }
    Some(LogRotation { max_size, keep })
}
