//! Validates `admin`, `hosts`, `paths` and `state_dir`.

use super::diagnostics::Diagnostics;
use crate::raw::{self, server as raw_server};
use crate::serde_forms::SecretText;
use crate::setting_path::SettingPath;
use crate::settings::{Admin, Listener};
use std::path::PathBuf;
use tidegate_policy::own_hosts::OwnHosts;
use tidegate_policy::path::PathPolicy;
use tidegate_policy::secret::Secret;

/// Maximum number of own hosts: a request is compared with each.
const MAX_HOSTS: usize = 1000;

pub(super) fn admin(raw: &raw::File, listen: &[Listener], report: &mut Diagnostics) -> Option<Admin> {
    let keys = match &raw.admin {
        Some(raw_server::AdminListener::Off) => return None,
        Some(raw_server::AdminListener::On(keys)) => keys,
        None => &raw_server::Admin::default(),
    };
    let path = SettingPath::ROOT.admin();
    let address = keys.listen.clone();
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
    // A token whose variable is not set is reported there.
    if !address.is_local() && keys.token.is_none() && !report.has_error_at(&path.token()) {
        let message = format!("{address} is not a loopback address and requires a token");
        report.error(&path.listen(), message, "set admin.token: ${TIDEGATE_ADMIN_TOKEN}, or listen on 127.0.0.1");
    }
    let token = secret(&path.token(), keys.token.as_ref(), report);
    let read_token = secret(&path.read_token(), keys.read_token.as_ref(), report);
    match (&token, &read_token) {
        (None, Some(_)) => {
            report.error(&path.read_token(), "read_token requires token", "add token: ${TIDEGATE_ADMIN_TOKEN}");
        }
        (Some(token), Some(read_token)) if token == read_token => {
            report.error(&path.read_token(), "is the same as token", "write another one");
        }
        _ => {}
    }
    Some(Admin { listen: address, token, read_token })
}

/// Returns a secret that a person has generated. One that could not be sent, or be guessed, is an error.
pub(super) fn secret(path: &SettingPath, secret: Option<&SecretText>, report: &mut Diagnostics) -> Option<Secret> {
    const MIN_LENGTH: usize = 16;
    const HINT: &str = "write letters, digits and symbols, such as the output of `openssl rand -hex 32`";
    let SecretText(secret) = secret?;
    let text = secret.expose_secret();
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        report.error(path, "contains spaces or other characters than ASCII", HINT);
    } else if text.len() < MIN_LENGTH {
        report.error(path, format!("needs at least {MIN_LENGTH} characters"), HINT);
    }
    Some(secret.clone())
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
