//! Validates `listen`. The package `tls` reads the files.

use super::acme::acme as validate_acme;
use super::diagnostics::Diagnostics;
use crate::raw::listen::{CertificateKeys, ClientCertificates, Listen, ListenerKeys, TlsKeys};
use crate::raw::{self, clients::AddressFrom};
use crate::scalars::{FilePath, HttpsRedirect};
use crate::setting_path::SettingPath;
use crate::settings::{CertificateFiles, CertificateSource, ClientAuthority, Listener, Tls};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use tidegate_policy::class::Class;

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// Maximum number of certificates of a listener: all of their files are checked for changes.
const MAX_CERTIFICATES: usize = 1000;

pub(super) fn listen(raw: &raw::File, report: &mut Diagnostics) -> Vec<Listener> {
    let Some(listeners) = &raw.listen else { return vec![Listener::plain(DEFAULT_LISTEN)] };
    let path = SettingPath::ROOT.listen();
    if listeners.0.is_empty() && !report.has_error_at(&path) {
        report.error(&path, "no listen address", "add one such as 127.0.0.1:8080");
    }
    let https_port = listeners.0.iter().find(|listen| listen.0.tls.is_some());
    let https_port = https_port.and_then(|listen| Some(listen.0.address.as_ref()?.0.port()));
    let mut checked: Vec<Listener> = Vec::new();
    for (index, Listen(keys)) in listeners.0.iter().enumerate() {
        let item = path.index(index);
        let path = if report.is_set(&item) { item } else { path.clone() };
        let listener = listener(keys, raw, https_port, &path, report);
        let address = listener.address;
        if address.port() != 0 && checked.iter().any(|earlier| earlier.address == address) {
            report.error(&path, format!("duplicate address {address}"), "keep one of them");
        }
        checked.push(listener);
    }
    checked
}

fn listener(
    keys: &ListenerKeys,
    raw: &raw::File,
    https_port: Option<u16>,
    path: &SettingPath,
    report: &mut Diagnostics,
) -> Listener {
    let address = keys.address.as_ref().map(|address| address.0);
    if address.is_none() {
        report.error(&path.address(), "missing", "write an address and port such as 0.0.0.0:443");
    }
    if keys.proxy_protocol && raw.clients.trusted_proxies.is_empty() {
        report.error(
            &path.proxy_protocol(),
            "no proxy may send the header",
            "name the proxies in front, such as clients: { trusted_proxies: [10.0.0.0/8] }",
        );
    }
    Listener {
        address: address.unwrap_or(DEFAULT_LISTEN),
        tls: keys.tls.as_ref().map(|keys| tls(keys, &path.tls(), report)),
        proxy_protocol: keys.proxy_protocol,
        redirect: keys.redirect.as_ref().map(|redirect| {
            check_redirect(redirect, keys, raw, https_port, &path.redirect(), report);
            crate::settings::HttpsRedirect { port: redirect.0 }
        }),
    }
}

fn check_redirect(
    HttpsRedirect(port): &HttpsRedirect,
    keys: &ListenerKeys,
    raw: &raw::File,
    https_port: Option<u16>,
    path: &SettingPath,
    report: &mut Diagnostics,
) {
    if keys.tls.is_some() {
        report.error(path, "found together with tls, whose requests have https already", "remove one of them");
    }
    if raw.hosts.is_none() {
        let hint = "name them, such as hosts: [example.com]";
        report.error(path, "requires hosts, so that it leads nowhere else", hint);
    }
    if port.is_none() && https_port.is_none() {
        report.error(path, "no listener has tls", "add one, or write the port of another server, such as https:443");
    }
}

fn tls(keys: &TlsKeys, path: &SettingPath, report: &mut Diagnostics) -> Tls {
    let TlsKeys { certificate, key, ocsp, certificates, acme, client_ca, client_certificates, hsts } = keys;
    let single = CertificateKeys { certificate: certificate.clone(), key: key.clone(), ocsp: ocsp.clone() };
    let has_single = certificate.is_some() || key.is_some() || ocsp.is_some();
    if acme.is_some() && (has_single || !certificates.is_empty()) {
        report.error(&path.acme(), "found together with certificate files", "keep one of them");
    }
    let files = match (has_single, certificates.is_empty()) {
        (false, true) if acme.is_some() => Vec::new(),
        (true, true) => vec![certificate_files(&single, path, report)],
        (true, false) => {
            let hint = "write all of them under certificates, the default one first";
            report.error(&path.certificate(), "found together with certificates", hint);
            Vec::new()
        }
        (false, _) => {
            let is_reported =
                [path.certificates(), path.certificate(), path.key()].iter().any(|path| report.has_error_at(path));
            let path = path.certificates();
            if certificates.is_empty() && !is_reported {
                let hint = "write tls: { certificate: tls/site.pem, key: tls/site.key }, or tls: { acme: { domains: [example.com] } }";
                report.error(&path, "no certificate", hint);
            }
            report.check_len(&path, "certificates", certificates.len(), MAX_CERTIFICATES, "use a wildcard certificate");
            let files = |(index, keys)| certificate_files(keys, &path.index(index), report);
            certificates.iter().enumerate().map(files).collect()
        }
    };
    if report.is_set(&path.client_certificates()) && client_ca.is_none() {
        let hint = "name the file with the authorities, such as client_ca: tls/clients.pem";
        report.error(&path.client_certificates(), "requires client_ca", hint);
    }
    let client_authority = client_ca.as_ref().map(|file| ClientAuthority {
        file: report.beside_file(file),
        is_required: *client_certificates == ClientCertificates::Required,
        path: path.client_ca(),
    });
    let certificates = match acme {
        None => CertificateSource::Files(files),
        Some(keys) => CertificateSource::Acme(validate_acme(keys, &path.acme(), report)),
    };
    Tls { certificates, client_authority, hsts: *hsts }
}

fn certificate_files(keys: &CertificateKeys, path: &SettingPath, report: &mut Diagnostics) -> CertificateFiles {
    let mut file = |name: &Option<FilePath>, path: SettingPath, example: &str| match name {
        None => {
            report.error(&path, "missing", format!("name a file such as {example}"));
            PathBuf::new()
        }
        Some(name) => report.beside_file(name),
    };
    CertificateFiles {
        certificate: file(&keys.certificate, path.certificate(), "tls/site.pem"),
        key: file(&keys.key, path.key(), "tls/site.key"),
        ocsp: keys.ocsp.is_some().then(|| file(&keys.ocsp, path.ocsp(), "tls/site.ocsp")),
        path: path.clone(),
    }
}

/// Checks that the certificates that classes require are verified.
pub(super) fn check_certificate_classes(classes: &[Class], listeners: &[Listener], report: &mut Diagnostics) {
    let verifies = |listener: &Listener| listener.tls.as_ref().is_some_and(|tls| tls.client_authority.is_some());
    let mut classes = classes.iter().enumerate();
    if let Some((index, _)) = classes.find(|(_, class)| !class.matcher.certificates.is_empty())
        && !listeners.iter().any(verifies)
    {
        let path = SettingPath::of_class(index).when().certificate();
        report.error(&path, "no listener verifies certificates", "add tls: { client_ca: tls/clients.pem } to one");
    }
}

/// Checks that the addresses of `clients.address_from: proxy-protocol` are sent.
pub(super) fn check_address_source(raw: &raw::File, listeners: &[Listener], report: &mut Diagnostics) {
    let is_source = matches!(raw.clients.address_from, AddressFrom::ProxyProtocol);
    if is_source && !listeners.iter().any(|listener| listener.proxy_protocol) {
        report.error(
            &SettingPath::ROOT.clients().address_from(),
            "no listener has proxy_protocol",
            "write listen: { address: \"0.0.0.0:8080\", proxy_protocol: true }",
        );
    }
}
