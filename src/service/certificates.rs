//! Certificates of the listeners: their files, their reload, and their state.

use super::ServiceState;
use super::acme::AcmeCertificates;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_config::Settings;
use tidegate_config::settings::{CertificateFiles, CertificateSource, ClientAuthority, Tls};
use tidegate_policy::Timestamp;
use tidegate_policy::own_hosts::OwnHosts;
use tidegate_tls::{CertificatePaths, ClientAuthorityFile, TicketKeys, TlsErrors, TlsFiles, TlsReload, TlsSource};
use tracing::{info, warn};

/// State of a certificate.
pub(super) struct CertificateView {
    /// First name of the certificate.
    pub(super) domain: String,
    /// End of its validity, in seconds since 1970.
    pub(super) expires_at: u64,
    /// True if its files have changed since and could not be loaded; the older certificate is in use.
    pub(super) is_stale: bool,
}

/// Reads the files of all listeners with TLS, or returns all errors. `seed` is that of the jitter of renewals.
pub fn read(settings: &Settings, now: Timestamp, seed: u64) -> Result<(TlsFiles, AcmeCertificates), TlsErrors> {
    read_with_tickets(settings, TicketKeys::generate(now.seconds()), seed)
}

/// Like [`read`], with keys of session tickets.
pub(super) fn read_with_tickets(
    settings: &Settings,
    tickets: Arc<TicketKeys>,
    seed: u64,
) -> Result<(TlsFiles, AcmeCertificates), TlsErrors> {
    let (acme, mut errors) = match AcmeCertificates::read(settings, seed) {
        Ok(acme) => (acme, Vec::new()),
        Err(errors) => (AcmeCertificates::default(), errors),
    };
    let listeners = settings.listen.iter().filter_map(|listener| listener.tls.as_ref());
    match TlsFiles::read(listeners.map(|tls| source(tls, &acme, settings)), tickets) {
        Ok(files) if errors.is_empty() => Ok((files, acme)),
        Ok(_) => Err(TlsErrors(errors)),
        Err(TlsErrors(others)) => {
            errors.extend(others);
            Err(TlsErrors(errors))
        }
    }
}

/// Returns a warning for each host of the site without a certificate, if there is a listener with TLS.
pub fn uncovered_host_warnings(settings: &Settings, files: &TlsFiles) -> Vec<String> {
    let tls = || settings.listen.iter().filter_map(|listener| listener.tls.as_ref());
    let is_ordered = |host: &str| {
        tls().any(|tls| match &tls.certificates {
            CertificateSource::Acme(acme) => acme.covers(host),
            CertificateSource::Files(_) => false,
        })
    };
    let hosts = settings.hosts.iter().flat_map(OwnHosts::certificate_names).filter(|_| tls().next().is_some());
    let uncovered = hosts.filter(|host| !files.covers(host) && !is_ordered(host));
    uncovered.map(|host| format!("hosts: no certificate has the name {host}: browsers refuse it over https")).collect()
}

fn source(tls: &Tls, acme: &AcmeCertificates, settings: &Settings) -> TlsSource {
    let (files, acme) = match &tls.certificates {
        CertificateSource::Files(files) => (files.as_slice(), None),
        CertificateSource::Acme(certificate) => (&[][..], Some(acme.file(certificate, settings))),
    };
    let paths = |files: &CertificateFiles| CertificatePaths {
        certificate: (files.certificate.clone(), settings.location_of(&files.path.certificate())),
        key: (files.key.clone(), settings.location_of(&files.path.key())),
        ocsp: files.ocsp.clone().map(|file| (file, settings.location_of(&files.path.ocsp()))),
    };
    let authority = |authority: &ClientAuthority| ClientAuthorityFile {
        file: (authority.file.clone(), settings.location_of(&authority.path)),
        is_required: authority.is_required,
    };
    TlsSource {
        certificates: files.iter().map(paths).collect(),
        acme,
        client_authority: tls.client_authority.as_ref().map(authority),
    }
}

impl ServiceState {
    /// Reads the changed files of certificates, and replaces the key of session tickets if its time is over. A certificate
    /// with unusable files stays in use.
    pub(super) fn reload_certificates(&self) {
        let mut files = self.tls_files.lock();
        let TlsReload { replaced, errors } = files.reload_changed();
        for domain in replaced {
            info!("Certificate of {domain} changed: in use for new connections");
        }
        for error in errors {
            warn!("Rejected certificate: {error}; keeping the previous one");
        }
        files.tickets().rotate_if_due(self.handle.now().seconds());
    }

    /// Returns the state of all certificates; of several with the same first name, the first end.
    pub(super) fn certificates(&self) -> Vec<CertificateView> {
        let mut views = BTreeMap::new();
        for state in self.tls_files.lock().states() {
            let new = || CertificateView { domain: state.domain.to_owned(), expires_at: u64::MAX, is_stale: false };
            let view = views.entry(state.domain.to_owned()).or_insert_with(new);
            view.expires_at = view.expires_at.min(state.expires_at);
            view.is_stale |= state.error.is_some();
        }
        views.into_values().collect()
    }

    /// Returns a warning for each certificate that has expired or cannot be replaced.
    pub(super) fn certificate_warnings(&self) -> Vec<String> {
        let files = self.tls_files.lock();
        let mut warnings = files.expired_warnings(self.handle.now().seconds());
        let uncovered = self.handle.with_settings(|settings| uncovered_host_warnings(settings, &files));
        warnings.extend(uncovered);
        let errors = files.states().filter_map(|state| state.error.map(str::to_owned));
        warnings.extend(errors.map(|error| format!("{error}; keeping the previous certificate")));
        warnings.extend(self.acme.warnings(self.handle.now()));
        warnings
    }
}
