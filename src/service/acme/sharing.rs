//! Certificates that the gateways of one Redis server share: one of them orders, and all serve it and answer its challenges.

use super::seal::CertificateSeal;
use super::{AcmeCertificate, CHECK_INTERVAL, MAX_FILE_BYTES, local, short_hash};
use crate::service::ledger;
use std::sync::Arc;
use std::time::Duration;
use tidegate_acme::{Challenge, OrderError};
use tidegate_config::Settings;
use tidegate_config::settings::Ledger;
use tidegate_engine::files;
use tidegate_engine::ledger::StoreError;
use tidegate_engine::ledger::redis::{SharedCertificate, SharedCertificates};
use tidegate_policy::Timestamp;
use tidegate_tls::{Certificate, ChallengeAnswer, PendingChallenges};
use tokio::sync::Mutex;
use tracing::warn;

/// Time after which all gateways have read the challenges of an order.
const PUBLISH_TIME: Duration = CHECK_INTERVAL.saturating_mul(3);

/// Maximum challenges of an order of another gateway.
const MAX_CHALLENGES: usize = 100;

/// Connection to the certificates that the gateways share.
#[derive(Debug)]
pub(super) struct Sharing {
    connection: Mutex<SharedCertificates>,
    /// Encrypts the certificates. Without it, gateways share their challenges only, and each orders its own certificate.
    seal: Option<CertificateSeal>,
}

/// What this gateway knows of a shared certificate.
#[derive(Debug, Default)]
pub(super) struct SharedState {
    /// Identifies the certificate that was read or ordered last; empty if there is none.
    id: String,
    /// Challenges of another gateway's order, as it published them, and the answers of this one.
    challenges: String,
    answers: Vec<ChallengeAnswer>,
}

/// Result of a look at a shared certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Synced {
    /// Nothing to do.
    Unchanged,
    /// A certificate of another gateway was written into the file.
    Replaced,
    /// This gateway may order.
    MayOrder,
}

impl Sharing {
    /// Returns the connection to the certificates of all gateways, if they share a ledger.
    pub(super) fn new(settings: &Settings) -> Result<Option<Self>, String> {
        let Ledger::Redis(redis) = &settings.ledger else { return Ok(None) };
        let mut name = [0; 16];
        getrandom::fill(&mut name).expect("the system has random numbers");
        let name = name.iter().map(|byte| format!("{byte:02x}")).collect();
        let server = ledger::endpoint(redis, settings)?;
        let connection = Mutex::new(SharedCertificates::new(server, &redis.prefix, name));
        Ok(Some(Self { connection, seal: redis.certificate_secret.as_ref().map(CertificateSeal::new) }))
    }

    /// Tells the other gateways the challenges of an order, and waits until they answer them.
    pub(super) async fn publish(&self, name: &str, challenges: &[Challenge], now: Timestamp) -> Result<(), OrderError> {
        let challenges = serde_json::to_string(challenges).map_err(OrderError::local)?;
        self.connection.lock().await.publish(name, &challenges, now).await.map_err(OrderError::local)?;
        tokio::time::sleep(PUBLISH_TIME).await;
        Ok(())
    }
}

impl AcmeCertificate {
    /// Reads the certificate of the other gateways, or stores that of this one if they have none as new. If it is due, asks
    /// to order it.
    pub(super) async fn sync(
        &self,
        sharing: &Sharing,
        challenges: &Arc<PendingChallenges>,
        now: Timestamp,
    ) -> Result<Synced, OrderError> {
        let mut known = self.shared.lock().await;
        let (is_due, starts_at) = {
            let progress = self.progress.lock();
            (progress.schedule.is_due(now), progress.validity.map(|(starts_at, _)| starts_at))
        };
        let synced = sharing.connection.lock().await.sync(&self.name, &known.id, is_due, now).await;
        let found = synced.map_err(OrderError::local)?;
        self.progress.lock().is_cut_off = false;
        known.answer(&found.challenges, challenges);
        if let Some(pem) = &found.pem {
            known.id.clone_from(&found.id);
            // A certificate that cannot be opened does not count: this gateway orders one of its own when that is due.
            let Some(seal) = &sharing.seal else { return Ok(Synced::Unchanged) };
            let Some(pem) = seal.open(&self.name, pem) else {
                warn!("Certificate of another gateway for {} has another certificate_secret", self.domain());
                return Ok(Synced::Unchanged);
            };
            return Ok(if self.replace(&pem, starts_at)? { Synced::Replaced } else { Synced::Unchanged });
        }
        if found.may_order {
            return Ok(Synced::MayOrder);
        }
        match starts_at {
            Some(starts_at) if sharing.seal.is_some() && !is_due && starts_at > found.starts_at => {
                let pem = files::read(&self.file, MAX_FILE_BYTES).map_err(|error| local(&self.file, error))?;
                let pem = String::from_utf8_lossy(&pem);
                known.id = self.store(sharing, &pem, starts_at, now).await.map_err(OrderError::local)?;
            }
            _ => {}
        }
        self.note_failure_of_another(&found, now);
        Ok(Synced::Unchanged)
    }

    /// Stores the certificate of this gateway for the others, or only ends the order if it cannot be encrypted. Returns its
    /// identifier.
    async fn store(&self, sharing: &Sharing, pem: &str, starts_at: u64, now: Timestamp) -> Result<String, StoreError> {
        let mut connection = sharing.connection.lock().await;
        let Some(seal) = &sharing.seal else {
            connection.release(&self.name, now).await?;
            return Ok(String::new());
        };
        let id = short_hash(pem);
        connection.store(&self.name, &id, &seal.seal(&self.name, pem), starts_at, now).await?;
        Ok(id)
    }

    /// Ends an order of this gateway. If the server does not respond, the next look stores the certificate.
    pub(super) async fn end_order(&self, sharing: &Sharing, result: Result<&str, &OrderError>, now: Timestamp) {
        let (schedule, starts_at) = {
            let progress = self.progress.lock();
            (progress.schedule, progress.validity.unwrap_or_default().0)
        };
        let ended = match result {
            Ok(pem) => match self.store(sharing, pem, starts_at, now).await {
                Ok(id) => {
                    self.shared.lock().await.id = id;
                    Ok(())
                }
                Err(error) => Err(error),
            },
            Err(error) => {
                let mut shared = sharing.connection.lock().await;
                shared.fail(&self.name, schedule.due(), schedule.failures(), &error.reason, now).await
            }
        };
        if let Err(error) = ended {
            warn!("The other gateways do not know the end of the order for {}: {error}", self.domain());
        }
    }

    /// Writes the certificate of another gateway, if it is newer than the present one. Returns true if it is.
    fn replace(&self, pem: &str, starts_at: Option<u64>) -> Result<bool, OrderError> {
        if pem.len() > MAX_FILE_BYTES {
            return Err(OrderError::local(format_args!("certificate of another gateway above {MAX_FILE_BYTES} bytes")));
        }
        let parsed = Certificate::parse(pem.as_bytes(), pem.as_bytes(), None);
        let certificate = parsed
            .map_err(|error| OrderError::local(format_args!("unusable certificate of another gateway: {error:?}")))?;
        if starts_at.is_some_and(|starts_at| starts_at >= certificate.starts_at()) {
            return Ok(false);
        }
        self.write(pem, &certificate)?;
        Ok(true)
    }

    /// Heeds the time that another gateway waits after its failed order.
    fn note_failure_of_another(&self, found: &SharedCertificate, now: Timestamp) {
        if found.retry_at > now {
            let mut progress = self.progress.lock();
            let before = progress.schedule;
            progress.schedule = before.after_failures_of_others(found.retry_at, found.failures);
            if progress.schedule != before {
                progress.error = Some(format!("another gateway: {}", found.error));
            }
        }
    }
}

impl SharedState {
    /// Returns the state of a gateway that has the certificate `id`.
    pub(super) fn new(id: String) -> Self {
        Self { id, ..Self::default() }
    }

    /// Answers the challenges of another gateway's order.
    fn answer(&mut self, challenges: &str, pending: &Arc<PendingChallenges>) {
        if self.challenges == challenges {
            return;
        }
        challenges.clone_into(&mut self.challenges);
        let challenges: Vec<Challenge> = serde_json::from_str(challenges).unwrap_or_default();
        // One that cannot be answered fails the validation, whose error says why.
        let answers = challenges.iter().take(MAX_CHALLENGES).filter_map(|challenge| challenge.answer(pending).ok());
        self.answers = answers.collect();
    }
}
