//! Validates `acme` of a listener.

use super::diagnostics::Diagnostics;
use crate::raw::listen::AcmeKeys;
use crate::setting_path::SettingPath;
use crate::settings::{Acme, CertificateSource, Listener};
use tidegate_policy::own_hosts::{OwnHost, OwnHosts};

/// Maximum number of names of a certificate, that of Let's Encrypt.
const MAX_DOMAINS: usize = 100;

pub(super) fn acme(keys: &AcmeKeys, path: &SettingPath, report: &mut Diagnostics) -> Acme {
    let AcmeKeys { domains, contact, directory, ca } = keys;
    let names = path.domains();
    if domains.is_empty() && !report.has_error_at(&names) {
        report.error(&names, "no domain", "name those of the site, such as domains: [example.com]");
    }
    report.check_len(&names, "domains", domains.len(), MAX_DOMAINS, "use several listeners, or certificates in files");
    let mut valid: Vec<String> = Vec::new();
    for (index, text) in domains.iter().enumerate() {
        let path = names.index(index);
        match domain(text) {
            Err((message, hint)) => report.error(&path, message, hint),
            Ok(domain) if valid.contains(&domain) => {
                report.error(&path, format!("duplicate domain {domain}"), "keep one of them");
            }
            Ok(domain) => valid.push(domain),
        }
    }
    Acme {
        domains: valid,
        contact: contact.clone(),
        directory: directory.clone(),
        authority: ca.as_ref().map(|file| report.beside_file(file)),
        path: path.clone(),
    }
}

/// Returns the name in lower case, or the message and the hint.
fn domain(text: &str) -> Result<String, (String, &'static str)> {
    match text.parse() {
        Ok(OwnHost::Name(name)) => Ok(name),
        Ok(OwnHost::Below(_)) => Err((
            format!("{text} is a wildcard, which needs a DNS-01 challenge, and the gateway answers none"),
            "name each domain, or write a certificate of another ACME client as certificate and key",
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
        for domain in domains.iter().filter(|domain| !hosts.contains(domain)) {
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
