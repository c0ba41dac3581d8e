//! Validates `acme` of a listener.

use super::diagnostics::Diagnostics;
use crate::raw::listen::AcmeKeys;
use crate::scalars::FilePath;
use crate::setting_path::SettingPath;
use crate::settings::{Acme, CertificateSource, Hook, Listener};
use tidegate_policy::own_hosts::{OwnHost, OwnHosts};

/// Maximum number of names of a certificate, that of Let's Encrypt.
const MAX_DOMAINS: usize = 100;

pub(super) fn acme(keys: &AcmeKeys, path: &SettingPath, report: &mut Diagnostics) -> Acme {
    let AcmeKeys { domains, contact, hook, directory, ca } = keys;
    let names = path.domains();
    if domains.is_empty() && !report.has_error_at(&names) {
        report.error(&names, "no domain", "name those of the site, such as domains: [example.com]");
    }
    report.check_len(&names, "domains", domains.len(), MAX_DOMAINS, "use several listeners, or certificates in files");
    let mut valid: Vec<String> = Vec::new();
    for (index, text) in domains.iter().enumerate() {
        let path = names.index(index);
        match domain(text, !hook.is_empty()) {
            Err((message, hint)) => report.error(&path, message, hint),
            Ok(domain) if valid.contains(&domain) => {
                report.error(&path, format!("duplicate domain {domain}"), "keep one of them");
            }
            Ok(domain) => valid.push(domain),
        }
    }
    for (index, text) in domains.iter().enumerate() {
        let wildcard = |domain: &str| domain.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        if let Ok(domain) = domain(text, false)
            && let Some(wildcard) = wildcard(&domain).filter(|wildcard| valid.contains(wildcard))
        {
            let hint = "remove one of them: ACME servers refuse both in one certificate";
            report.error(&names.index(index), format!("{domain} is one of {wildcard}"), hint);
        }
    }
    Acme {
        domains: valid,
        hook: self::hook(hook, &path.hook(), report),
        contact: contact.clone(),
        directory: directory.clone(),
        authority: ca.as_ref().map(|file| report.beside_file(file)),
        path: path.clone(),
    }
}

fn hook(command: &[String], path: &SettingPath, report: &mut Diagnostics) -> Option<Hook> {
    let example = "write the program and its arguments, such as [/usr/local/bin/dns-record, example.com]";
    let Some((program, arguments)) = command.split_first() else {
        if report.is_set(path) && !report.has_error_at(path) {
            report.error(path, "no program", example);
        }
        return None;
    };
    if let Some(invalid) = command.iter().find(|text| text.contains('\0')) {
        report.error(path, format!("found {invalid:?}, which no program can be sent"), example);
    }
    let program = FilePath::parse(program).unwrap_or_else(|| {
        report.error(path, format!("found {program:?}, needs a program"), example);
        FilePath(String::new())
    });
    let program = if program.0.contains('/') { report.beside_file(&program) } else { program.0.into() };
    Some(Hook { program, arguments: arguments.to_vec() })
}

/// Returns the name in lower case, or the message and the hint.
fn domain(text: &str, has_hook: bool) -> Result<String, (String, &'static str)> {
    match text.parse() {
        Ok(OwnHost::Name(name)) => Ok(name),
        Ok(OwnHost::Below(parent)) if has_hook => Ok(format!("*.{parent}")),
        Ok(OwnHost::Below(_)) => Err((
            format!("{text} is a wildcard, which is validated by a DNS record (DNS-01)"),
            "write the command that sets the record, such as hook: [/usr/local/bin/dns-record], or name each domain",
        )),
        Ok(OwnHost::Address(_)) => Err((
            format!("{text} is an address, for which no certificate is ordered"),
            "name a domain such as example.com",
        )),
        Err(_) => {
            Err((format!("found {text:?}, needs a domain"), "write it like example.com, in ASCII (xn--) letters"))
        }
    }
}

/// Warns of domains that are certified but not served.
pub(super) fn warn_foreign_domains(listeners: &[Listener], hosts: Option<&OwnHosts>, report: &mut Diagnostics) {
    let Some(hosts) = hosts else { return };
    for Acme { domains, path, .. } in certificates(listeners) {
        let is_served = |domain: &str| match domain.strip_prefix('*') {
            None => hosts.contains(domain),
            Some(parent) => hosts.certificate_names().any(|host| host.ends_with(parent)),
        };
        for domain in domains.iter().filter(|domain| !is_served(domain)) {
            let path = path.domains();
            report.warning(format!("{path}: {domain} is not one of hosts: its requests get 421; add it there"));
        }
    }
}

fn certificates(listeners: &[Listener]) -> impl Iterator<Item = &Acme> {
    let tls = listeners.iter().filter_map(|listener| listener.tls.as_ref());
    tls.filter_map(|tls| match &tls.certificates {
        CertificateSource::Acme(acme) => Some(acme),
        CertificateSource::Files(_) => None,
    })
}
