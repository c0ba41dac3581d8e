//! Certificates from ACME servers: read at the start, ordered when they are missing or due, and kept in `state_dir/acme`.
//! Gateways with one ledger share them ([`sharing`]).

mod seal;
mod sharing;

use super::ServiceState;
use super::server_trust;
use aws_lc_rs::digest::{SHA256, digest};
use parking_lot::Mutex;
use sharing::{SharedState, Sharing, Synced};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tidegate_acme::{
    AcmeClient, AcmeOrder, ChallengeKind, DnsHook, HookTurn, IssuedCertificate, OrderError, Publish, RenewalSchedule,
};
use tidegate_config::Settings;
use tidegate_config::settings::{Acme, CertificateSource};
use tidegate_engine::files;
use tidegate_policy::Timestamp;
use tidegate_policy::rng::Rng;
use tidegate_tls::{AcmeFile, Certificate, PendingChallenges, ServerTrust};
use tracing::{info, warn};

/// Interval at which it is checked whether a certificate is due.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum size of the files read here.
const MAX_FILE_BYTES: usize = 4 << 20;

/// Maximum length of the domain in the name of a file.
const MAX_NAME: usize = 100;

/// Certificates that the gateway orders, each once, and the answers to their challenges.
#[derive(Debug, Default)]
pub struct AcmeCertificates {
    pub(super) challenges: Arc<PendingChallenges>,
    certificates: Vec<AcmeCertificate>,
    /// Connection to what the gateways share; `None` without a shared ledger.
    sharing: Option<Sharing>,
}

/// A certificate that the gateway orders.
#[derive(Debug)]
struct AcmeCertificate {
    location: String,
    /// Identifies the domains and the server, for all gateways.
    name: String,
    /// File with key and chain.
    file: PathBuf,
    order: AcmeOrder,
    shared: tokio::sync::Mutex<SharedState>,
    progress: Mutex<OrderProgress>,
}

#[derive(Debug)]
struct OrderProgress {
    /// Challenges, in the order in which they are tried.
    kinds: Vec<ChallengeKind>,
    schedule: RenewalSchedule,
    jitter: Rng,
    /// Start and end of the validity of the present certificate, in seconds since 1970; `None` if there is none.
    validity: Option<(u64, u64)>,
    /// Error of the last attempt, if it failed.
    error: Option<String>,
    /// DNS records of the last attempt that could not be removed, if it succeeded.
    left_over: Option<String>,
    /// True while a certificate is due and the other gateways cannot be asked.
    is_cut_off: bool,
    /// Number of failed attempts since the start.
    failures: u64,
}

impl AcmeCertificates {
    /// Reads the present certificates and the authorities of the servers, or returns all errors.
    pub(super) fn read(settings: &Settings, seed: u64) -> Result<Self, Vec<String>> {
        let (mut read, mut errors, turn) = (Self::default(), Vec::new(), HookTurn::default());
        match Sharing::new(settings) {
            Ok(sharing) => read.sharing = sharing,
            Err(error) => errors.push(error),
        }
        let has_plain_listener = settings.listen.iter().any(|listener| listener.tls.is_none());
        for tls in settings.listen.iter().filter_map(|listener| listener.tls.as_ref()) {
            let CertificateSource::Acme(acme) = &tls.certificates else { continue };
            let file = certificate_file(acme, &settings.state_dir);
            if read.certificates.iter().any(|certificate| certificate.file == file) {
                continue;
            }
            match client(acme, settings).and_then(|client| Ok((client, hook(acme, settings, &turn)?))) {
                Err(error) => errors.push(error),
                Ok((client, hook)) => {
                    let kinds = match has_plain_listener {
                        true => vec![ChallengeKind::Http01, ChallengeKind::TlsAlpn01],
                        false => vec![ChallengeKind::TlsAlpn01],
                    };
                    let mut jitter = Rng::from_seed(seed, &acme.domains.join(","));
                    let pem = files::read(&file, MAX_FILE_BYTES).unwrap_or_default();
                    let present = Certificate::parse(&pem, &pem, None).ok();
                    let id = present.as_ref().map(|_| short_hash(&String::from_utf8_lossy(&pem)));
                    let schedule = present.as_ref().map(|certificate| renewal(certificate, &mut jitter));
                    let progress = OrderProgress {
                        kinds,
                        schedule: schedule.unwrap_or_default(),
                        jitter,
                        validity: present.as_ref().map(validity),
                        error: None,
                        left_over: None,
                        is_cut_off: false,
                        failures: 0,
                    };
                    let order = AcmeOrder {
                        domains: acme.domains.clone(),
                        contact: acme.contact.clone(),
                        directory: acme.directory.clone(),
                        account_file: account_file(acme, &settings.state_dir),
                        client,
                        challenges: Arc::clone(&read.challenges),
                        hook,
                    };
                    let location = settings.location_of(&acme.path);
                    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                    let shared = SharedState::new(id.unwrap_or_default());
                    let (progress, shared) = (Mutex::new(progress), tokio::sync::Mutex::new(shared));
                    read.certificates.push(AcmeCertificate { location, name, file, order, shared, progress });
                }
            }
        }
        if errors.is_empty() { Ok(read) } else { Err(errors) }
    }

    /// Returns the file of a certificate, for the listener that uses it.
    pub(super) fn file(&self, acme: &Acme, settings: &Settings) -> AcmeFile {
        let file = (certificate_file(acme, &settings.state_dir), settings.location_of(&acme.path));
        let domain = acme.domains.first().cloned().unwrap_or_default();
        AcmeFile { file, domain, challenges: Arc::clone(&self.challenges) }
    }

    /// Returns the number of failed attempts since the start by the first domain of each certificate.
    pub(super) fn failures(&self) -> BTreeMap<&str, u64> {
        let mut failures = BTreeMap::new();
        for certificate in &self.certificates {
            *failures.entry(certificate.domain()).or_default() += certificate.progress.lock().failures;
        }
        failures
    }

    /// Returns a warning for each certificate whose last attempt failed.
    pub(super) fn warnings(&self, now: Timestamp) -> Vec<String> {
        let warning = |certificate: &AcmeCertificate| {
            let progress = certificate.progress.lock();
            let (location, domain) = (&certificate.location, certificate.domain());
            let Some(error) = progress.error.as_deref() else {
                let left_over = progress.left_over.as_deref()?;
                return Some(format!("{location}.hook: {left_over}; remove it by hand"));
            };
            let effect = match progress.validity {
                Some((_, expires_at)) if expires_at > now.seconds() => "keeping the previous certificate",
                Some(_) => "the previous certificate has expired",
                None => "its handshakes are refused",
            };
            let wait = progress.schedule.due().saturating_duration_since(now).as_secs();
            Some(format!("{location}: no new certificate for {domain}: {error}; {effect}; next attempt in {wait} s"))
        };
        self.certificates.iter().filter_map(warning).collect()
    }
}

impl AcmeCertificate {
    fn domain(&self) -> &str {
        self.order.domains.first().map_or("-", String::as_str)
    }

    /// Orders the certificate and writes it. Returns key and chain.
    async fn attempt(&self, sharing: Option<&Sharing>, now: Timestamp) -> Result<String, OrderError> {
        let kinds = self.progress.lock().kinds.clone();
        let dir = self.file.parent().unwrap_or(Path::new("."));
        files::create_dir(dir).map_err(|error| local(dir, error))?;
        let publish: &Publish<'_> = &|challenges| {
            Box::pin(async move {
                match sharing {
                    Some(sharing) => sharing.publish(&self.name, &challenges, now).await,
                    None => Ok(()),
                }
            })
        };
        let IssuedCertificate { pem, kind, left_over } = self.order.run(&kinds, now, publish).await?;
        let parsed = Certificate::parse(pem.as_bytes(), pem.as_bytes(), None);
        let certificate = parsed.map_err(|error| OrderError::local(format_args!("unusable certificate: {error:?}")))?;
        self.write(&pem, &certificate)?;
        if let Some(left_over) = &left_over {
            warn!("Certificate for {}: {left_over}; remove it by hand", self.domain());
        }
        let mut progress = self.progress.lock();
        // The one that works is the first next time.
        progress.kinds.sort_by_key(|&other| Some(other) != kind);
        progress.left_over = left_over;
        drop(progress);
        Ok(pem)
    }

    /// Writes a certificate, and schedules its renewal.
    fn write(&self, pem: &str, certificate: &Certificate) -> Result<(), OrderError> {
        let dir = self.file.parent().unwrap_or(Path::new("."));
        files::create_dir(dir).map_err(|error| local(dir, error))?;
        files::replace(&self.file, pem.as_bytes()).map_err(|error| local(&self.file, error))?;
        let mut progress = self.progress.lock();
        progress.schedule = renewal(certificate, &mut progress.jitter);
        progress.validity = Some(validity(certificate));
        progress.error = None;
        Ok(())
    }

    /// Notes a failed attempt. Returns the seconds until the next one.
    fn note_failure(&self, error: &OrderError, now: Timestamp) -> u64 {
        let mut progress = self.progress.lock();
        let jitter = progress.jitter.gen_f64();
        progress.schedule = progress.schedule.after_failure(error, now, jitter);
        progress.error = Some(error.to_string());
        progress.failures += 1;
        progress.schedule.due().saturating_duration_since(now).as_secs()
    }

    /// Notes that a certificate is due, and that it is not known whether another gateway orders it.
    fn note_cut_off(&self, error: &OrderError, now: Timestamp) {
        let mut progress = self.progress.lock();
        if progress.schedule.is_due(now) {
            progress.error = Some(error.reason.clone());
            if !std::mem::replace(&mut progress.is_cut_off, true) {
                warn!("No new certificate for {}: {error}", self.domain());
            }
        }
    }
}

/// Orders the certificates that are missing or due, until dropped.
pub(super) fn spawn_orders(state: &Arc<ServiceState>) {
    for index in 0..state.acme.certificates.len() {
        tokio::spawn(order_when_due(Arc::clone(state), index));
    }
}

async fn order_when_due(state: Arc<ServiceState>, index: usize) {
    let certificate = &state.acme.certificates[index];
    let domain = certificate.domain();
    let mut ticks = tokio::time::interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = state.handle.now();
        let sharing = state.acme.sharing.as_ref();
        let may_order = match sharing {
            None => certificate.progress.lock().schedule.is_due(now),
            Some(sharing) => match certificate.sync(sharing, &state.acme.challenges, now).await {
                Ok(Synced::MayOrder) => true,
                Ok(Synced::Unchanged) => false,
                Ok(Synced::Replaced) => {
                    info!("Another gateway has ordered a certificate for {domain}");
                    state.reload_certificates();
                    false
                }
                Err(error) => {
                    certificate.note_cut_off(&error, now);
                    false
                }
            },
        };
        if !may_order {
            continue;
        }
        let ordered = certificate.attempt(sharing, now).await;
        match &ordered {
            Ok(_) => {
                info!("Ordered a certificate for {domain}");
                state.reload_certificates();
            }
            Err(error) => {
                let wait = certificate.note_failure(error, state.handle.now());
                warn!("No new certificate for {domain}: {error}; next attempt in {wait} s");
            }
        }
        if let Some(sharing) = sharing {
            let ended = ordered.as_ref().map(String::as_str);
            certificate.end_order(sharing, ended, state.handle.now()).await;
        }
    }
}

fn local(path: &Path, error: impl std::fmt::Display) -> OrderError {
    OrderError::local(format_args!("{}: {error}", path.display()))
}

fn validity(certificate: &Certificate) -> (u64, u64) {
    (certificate.starts_at(), certificate.expires_at())
}

fn renewal(certificate: &Certificate, jitter: &mut Rng) -> RenewalSchedule {
    RenewalSchedule::of_certificate(certificate.starts_at(), certificate.expires_at(), jitter.gen_f64())
}

fn client(acme: &Acme, settings: &Settings) -> Result<AcmeClient, String> {
    let Some(file) = &acme.authority else { return Ok(AcmeClient::new(ServerTrust::public())) };
    let servers = server_trust::read(file, &settings.location_of(&acme.path.ca()))?;
    Ok(AcmeClient::new(servers))
}

/// Returns the command that sets DNS records, if there is one.
fn hook(acme: &Acme, settings: &Settings, turn: &HookTurn) -> Result<Option<DnsHook>, String> {
    let Some(hook) = &acme.hook else { return Ok(None) };
    let found = DnsHook::find(&hook.program, &hook.arguments, turn);
    found.map(Some).map_err(|error| format!("{}: {error}", settings.location_of(&acme.path.hook())))
}

/// Returns the file of the certificate. Other domains, and the same ones from another server, have another file.
fn certificate_file(acme: &Acme, state_dir: &Path) -> PathBuf {
    let mut domains = acme.domains.clone();
    domains.sort();
    let name: String =
        acme.domains.first().map_or("", String::as_str).replace('*', "_").chars().take(MAX_NAME).collect();
    let hash = short_hash(&format!("{}\n{}", acme.directory, domains.join("\n")));
    state_dir.join("acme").join(format!("{name}-{hash}.pem"))
}

/// Returns the file of the account, one for each server.
fn account_file(acme: &Acme, state_dir: &Path) -> PathBuf {
    state_dir.join("acme").join(format!("account-{}.json", short_hash(&acme.directory)))
}

fn short_hash(text: &str) -> String {
    digest(&SHA256, text.as_bytes()).as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}
