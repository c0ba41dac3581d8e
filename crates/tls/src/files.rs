//! Files of certificates: read at the start, and again whenever one changes.
//!
//! An unusable file prevents the start of the gateway. Later, the last usable pair stays in use until the files are usable
//! again.

use super::certificate::{Certificate, CertificateError};
use super::challenges::PendingChallenges;
use super::listener::{ClientAuthentication, TlsListener};
use super::tickets::TicketKeys;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_engine::files::FileWatch;

/// A chain of certificates and a bundle of authorities have some hundred kilobytes at most.
const MAX_FILE_BYTES: usize = 4 << 20;

/// Where the settings name a file, for messages.
pub type Location = String;

/// Files of a certificate, each with its location.
#[derive(Clone, Debug)]
pub struct CertificatePaths {
    /// Certificate and intermediate certificates, in PEM.
    pub certificate: (PathBuf, Location),
    /// Private key, in PEM.
    pub key: (PathBuf, Location),
    /// OCSP response, in DER.
    pub ocsp: Option<(PathBuf, Location)>,
}

/// File with the authority of client certificates, in PEM.
#[derive(Clone, Debug)]
pub struct ClientAuthorityFile {
    /// Path and location.
    pub file: (PathBuf, Location),
    /// True if clients without a certificate are disconnected.
    pub is_required: bool,
}

/// File of a certificate from an ACME server, which the gateway writes: the private key and the chain, in PEM.
#[derive(Clone, Debug)]
pub struct AcmeFile {
    /// Path and location. The file is absent until the first certificate is issued.
    pub file: (PathBuf, Location),
    /// First of the ordered names. A server may order the names of the certificate otherwise.
    pub domain: String,
    /// Challenges of the ACME server.
    pub challenges: Arc<PendingChallenges>,
}

/// Files of one listener.
#[derive(Clone, Debug)]
pub struct TlsSource {
    /// Certificates, the default one first; at least one, unless there is `acme`.
    pub certificates: Vec<CertificatePaths>,
    /// Certificate from an ACME server, if any.
    pub acme: Option<AcmeFile>,
    /// Authority of client certificates, if clients are asked for one.
    pub client_authority: Option<ClientAuthorityFile>,
}

/// The files of all listeners, and the TLS made from them.
#[derive(Debug)]
pub struct TlsFiles {
    tickets: Arc<TicketKeys>,
    listeners: Vec<ListenerFiles>,
}

/// All errors in some files, one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsErrors(pub Vec<String>);

/// Result of [`TlsFiles::reload_changed`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsReload {
    /// Names of the replaced certificates.
    pub replaced: Vec<String>,
    /// Errors of changed files, whose previous content stays in use.
    pub errors: Vec<String>,
}

/// State of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateState<'a> {
    /// First name of the certificate.
    pub domain: &'a str,
    /// End of its validity, in seconds since 1970.
    pub expires_at: u64,
    /// Error of its files, while the previous certificate stays in use.
    pub error: Option<&'a str>,
    /// Location of the certificate in the settings.
    pub location: &'a str,
}

#[derive(Debug)]
struct ListenerFiles {
    certificates: Vec<PairFiles>,
    clients: Option<AuthorityFile>,
    listener: Arc<TlsListener>,
}

/// Files of one certificate, and the certificate read from them.
#[derive(Debug)]
struct PairFiles {
    certificate: WatchedFile,
    key: WatchedFile,
    ocsp: Option<WatchedFile>,
    /// Name by which it is known; `None` is the first one of the certificate.
    domain: Option<String>,
    /// `None` until an ACME server has issued it.
    active: Option<Certificate>,
    error: Option<String>,
}

#[derive(Debug)]
struct AuthorityFile {
    file: WatchedFile,
    is_required: bool,
    active: ClientAuthentication,
}

/// A file with its last content.
#[derive(Debug)]
struct WatchedFile {
    watch: FileWatch,
    location: Location,
    content: Result<Vec<u8>, String>,
}

impl TlsFiles {
    /// Reads the files of all listeners, or returns all errors.
    pub fn read(sources: impl IntoIterator<Item = TlsSource>, tickets: Arc<TicketKeys>) -> Result<Self, TlsErrors> {
        let (mut listeners, mut errors) = (Vec::new(), Vec::new());
        for source in sources {
            match ListenerFiles::read(source, &tickets) {
                Ok(listener) => listeners.push(listener),
                Err(found) => errors.extend(found),
            }
        }
        if errors.is_empty() { Ok(Self { tickets, listeners }) } else { Err(TlsErrors(errors)) }
    }

    /// Returns the TLS of each listener.
    pub fn listeners(&self) -> impl Iterator<Item = &Arc<TlsListener>> {
        self.listeners.iter().map(|files| &files.listener)
    }

    /// Returns the keys of session tickets.
    pub fn tickets(&self) -> &Arc<TicketKeys> {
        &self.tickets
    }

    /// Returns the state of each certificate that is in use.
    pub fn states(&self) -> impl Iterator<Item = CertificateState<'_>> {
        self.listeners.iter().flat_map(|files| &files.certificates).filter_map(PairFiles::state)
    }

    /// Returns true if a certificate in use has `name`, exactly or as a wildcard.
    pub fn covers(&self, name: &str) -> bool {
        let certificates = self.listeners.iter().flat_map(|files| &files.certificates);
        let mut names = certificates.filter_map(|pair| pair.active.as_ref()).flat_map(Certificate::dns_names);
        names.any(|known| match known.strip_prefix('*') {
            Some(parent) => name.find('.').is_some_and(|dot| name[dot..] == *parent),
            None => known == name,
        })
    }

    /// Returns a warning for each certificate that has expired. `now` is in seconds since 1970.
    pub fn expired_warnings(&self, now: u64) -> Vec<String> {
        let expired = self.states().filter(|state| state.expires_at <= now);
        let warning = |CertificateState { domain, location, .. }: CertificateState<'_>| {
            format!("{location}: the certificate of {domain} has expired, and clients refuse it: renew it")
        };
        expired.map(warning).collect()
    }

    /// Reads the files that have changed. An error is reported once, until a file changes again.
    pub fn reload_changed(&mut self) -> TlsReload {
        let mut result = TlsReload::default();
        self.listeners.iter_mut().for_each(|files| files.reload_changed(&mut result));
        result
    }
}

impl ListenerFiles {
    fn read(source: TlsSource, tickets: &Arc<TicketKeys>) -> Result<Self, Vec<String>> {
        let (mut certificates, mut errors) = (Vec::new(), Vec::new());
        for paths in source.certificates {
            match PairFiles::read(paths) {
                Ok(pair) => certificates.push(pair),
                Err(found) => errors.extend(found),
            }
        }
        let challenges = source.acme.map(|AcmeFile { file, domain, challenges }| {
            certificates.push(PairFiles::read_issued(file, domain));
            challenges
        });
        let clients = source.client_authority.map(AuthorityFile::read).transpose();
        let clients = clients.unwrap_or_else(|error| {
            errors.push(error);
            None
        });
        if !errors.is_empty() {
            return Err(errors);
        }
        let active = certificates.iter().filter_map(|pair| pair.active.as_ref());
        let authority = clients.as_ref().map(|clients| &clients.active);
        let listener = TlsListener::new(active, authority, Arc::clone(tickets), challenges);
        Ok(Self { certificates, clients, listener })
    }

    fn reload_changed(&mut self, result: &mut TlsReload) {
        let replaced_before = result.replaced.len();
        for pair in &mut self.certificates {
            pair.reload_if_changed(result);
        }
        let authority_changed = self.clients.as_mut().is_some_and(|clients| clients.reload_if_changed(result));
        if authority_changed || result.replaced.len() > replaced_before {
            let clients = self.clients.as_ref().map(|clients| &clients.active);
            self.listener.replace(self.certificates.iter().filter_map(|pair| pair.active.as_ref()), clients);
        }
    }
}

impl PairFiles {
    fn read(paths: CertificatePaths) -> Result<Self, Vec<String>> {
        let mut certificate = WatchedFile::read(paths.certificate);
        let mut key = WatchedFile::read(paths.key);
        let mut ocsp = paths.ocsp.map(WatchedFile::read);
        let active = parse(&mut certificate, &mut key, ocsp.as_mut())?;
        Ok(Self { certificate, key, ocsp, domain: None, active: Some(active), error: None })
    }

    /// Reads a file with key and chain. An unusable one is replaced by the next certificate, so it prevents no start.
    fn read_issued(file: (PathBuf, Location), domain: String) -> Self {
        let mut certificate = WatchedFile::read(file.clone());
        let mut key = WatchedFile::read(file);
        let active = parse(&mut certificate, &mut key, None).ok();
        Self { certificate, key, ocsp: None, domain: Some(domain), active, error: None }
    }

    fn reload_if_changed(&mut self, result: &mut TlsReload) {
        let Self { certificate, key, ocsp, domain, active, error } = self;
        // All of them, not only up to the first that has changed.
        let changed = [certificate.update(), key.update(), ocsp.as_mut().is_some_and(WatchedFile::update)];
        if !changed.contains(&true) {
            return;
        }
        match parse(certificate, key, ocsp.as_mut()) {
            Ok(parsed) => {
                result.replaced.push(name(domain.as_deref(), &parsed).to_owned());
                *active = Some(parsed);
                *error = None;
            }
            Err(errors) => {
                *error = Some(errors.join("; "));
                result.errors.extend(errors);
            }
        }
    }

    fn state(&self) -> Option<CertificateState<'_>> {
        self.active.as_ref().map(|active| CertificateState {
            domain: name(self.domain.as_deref(), active),
            expires_at: active.expires_at(),
            error: self.error.as_deref(),
            location: &self.certificate.location,
        })
    }
}

fn name<'a>(domain: Option<&'a str>, certificate: &'a Certificate) -> &'a str {
    domain.or(certificate.dns_names().first().map(String::as_str)).unwrap_or("-")
}

fn parse(
    certificate: &mut WatchedFile,
    key: &mut WatchedFile,
    ocsp: Option<&mut WatchedFile>,
) -> Result<Certificate, Vec<String>> {
    let files = [Some(&*certificate), Some(&*key), ocsp.as_deref()];
    let errors: Vec<String> = files.into_iter().flatten().filter_map(WatchedFile::read_error).collect();
    let (Ok(chain), Ok(secret)) = (&certificate.content, &key.content) else { return Err(errors) };
    if !errors.is_empty() {
        return Err(errors);
    }
    let ocsp = ocsp.and_then(|file| file.content.clone().ok());
    let error = match Certificate::parse(chain, secret, ocsp) {
        Ok(parsed) => return Ok(parsed),
        Err(CertificateError::Certificate(reason)) => {
            certificate.error(&reason, "write a certificate in PEM, which begins with -----BEGIN CERTIFICATE-----")
        }
        Err(CertificateError::Key(reason)) => {
            key.error(&reason, "write an unencrypted private key in PEM: ECDSA, Ed25519, or RSA of at least 2048 bits")
        }
        Err(CertificateError::Mismatch) => key.error(
            &format!("is not the key of the certificate {}", certificate.watch.path().display()),
            "write the key for which that certificate was issued",
        ),
    };
    Err(vec![error])
}

impl AuthorityFile {
    fn read(ClientAuthorityFile { file, is_required }: ClientAuthorityFile) -> Result<Self, String> {
        let file = WatchedFile::read(file);
        let active = file.authentication(is_required)?;
        Ok(Self { file, is_required, active })
    }

    /// Reads the file if it has changed. Returns true if the authority is another one.
    fn reload_if_changed(&mut self, result: &mut TlsReload) -> bool {
        if !self.file.update() {
            return false;
        }
        match self.file.authentication(self.is_required) {
            Ok(active) => {
                self.active = active;
                true
            }
            Err(error) => {
                result.errors.push(error);
                false
            }
        }
    }
}

impl WatchedFile {
    fn read((path, location): (PathBuf, Location)) -> Self {
        let watch = FileWatch::new(&path, MAX_FILE_BYTES);
        let mut file = Self { watch, location, content: Ok(Vec::new()) };
        file.update();
        file
    }

    /// Reads the file if it has changed. Returns true if it has.
    fn update(&mut self) -> bool {
        let Some(content) = self.watch.read_if_changed() else { return false };
        self.content = content.map_err(|error| error.to_string());
        true
    }

    fn read_error(&self) -> Option<String> {
        let reason = self.content.as_ref().err()?;
        Some(self.error(&format!("cannot be read: {reason}"), "write the path of a file that the gateway may read"))
    }

    fn error(&self, reason: &str, hint: &str) -> String {
        format!("{}: {} {reason}; {hint}", self.location, self.path().display())
    }

    fn path(&self) -> &Path {
        self.watch.path()
    }

    fn authentication(&self, is_required: bool) -> Result<ClientAuthentication, String> {
        if let Some(error) = self.read_error() {
            return Err(error);
        }
        let pem = self.content.as_deref().unwrap_or_default();
        ClientAuthentication::new(pem, is_required)
            .map_err(|reason| self.error(&reason, "write the certificates of the authorities in PEM"))
    }
}

impl fmt::Display for TlsErrors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for TlsErrors {}
