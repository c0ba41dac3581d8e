//! An order of one certificate.

use super::account;
use super::challenge::{Challenge, ChallengeKind};
use super::client::AcmeClient;
use super::error::{FailedStage, OrderError, is_unknown_account, problem_text};
use instant_acme::{Account, AuthorizationStatus, Error, Identifier, NewOrder, Order, OrderStatus, RetryPolicy};
use std::fs;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::Timestamp;
use tidegate_tls::{ChallengeAnswer, PendingChallenges};

/// Time for which the server may validate, and then issue.
const POLL_TIMEOUT: Duration = Duration::from_secs(120);

/// Tells other gateways the challenges of an order. Completes once they answer them.
pub type Publish<'a> =
    dyn Fn(Vec<Challenge>) -> Pin<Box<dyn Future<Output = Result<(), OrderError>> + Send + 'a>> + Sync + 'a;

/// Everything that an order needs.
#[derive(Clone, Debug)]
pub struct AcmeOrder {
    /// Names of the certificate.
    pub domains: Vec<String>,
    /// URL by which the server reaches the operator.
    pub contact: Option<String>,
    /// URL of the directory of the server.
    pub directory: String,
    /// File of the account.
    pub account_file: PathBuf,
    /// Client that trusts the server.
    pub client: AcmeClient,
    /// Answers that the listeners give.
    pub challenges: Arc<PendingChallenges>,
}

impl AcmeOrder {
    /// Orders a certificate by the first of `kinds` by which the server can validate the domains. Returns its private key and
    /// its chain in one PEM text, and the kind. `now` dates `Retry-After`. `publish` is for other gateways, which the server
    /// may ask.
    pub async fn run(
        &self,
        kinds: &[ChallengeKind],
        now: Timestamp,
        publish: &Publish<'_>,
    ) -> Result<(String, ChallengeKind), OrderError> {
        let mut failures = Vec::new();
        for &kind in kinds {
            match self.order_by(kind, publish).await {
                Ok(pem) => return Ok((pem, kind)),
                Err(error) if error.stage == FailedStage::Validation => {
                    failures.push(format!("{}: {error}", kind.name()));
                }
                // Another kind of challenge would not help.
                Err(error) => return Err(error.retry_after(self.client.retry_after(now))),
            }
        }
        Err(OrderError::not_validated(&failures.join("; ")))
    }

    async fn order_by(&self, kind: ChallengeKind, publish: &Publish<'_>) -> Result<String, OrderError> {
        let mut order = self.open_order().await?;
        // Until the order is finished or has failed.
        let _answers = self.answer_challenges(&mut order, kind, publish).await?;
        let polls = RetryPolicy::new().timeout(POLL_TIMEOUT).backoff(1.5);
        match order.poll_ready(&polls).await {
            Ok(OrderStatus::Ready) => {}
            // A server may show the error of an order before its status is invalid.
            Ok(_) | Err(Error::Api(_))
                if order.state().status == OrderStatus::Invalid || order.state().error.is_some() =>
            {
                return Err(validation_error(&mut order).await);
            }
            Ok(status) => return Err(OrderError::refused(&format!("the order is {status:?} after its validation"))),
            Err(error) => return Err(OrderError::of_request(&error)),
        }
        let key = order.finalize().await.map_err(|error| OrderError::of_request(&error))?;
        let chain = order.poll_certificate(&polls).await.map_err(|error| OrderError::of_request(&error))?;
        Ok(format!("{key}{chain}"))
    }

    /// Creates the order, with a new account if the server has forgotten the present one.
    async fn open_order(&self) -> Result<Order, OrderError> {
        let identifiers: Vec<Identifier> = self.domains.iter().cloned().map(Identifier::Dns).collect();
        let order = NewOrder::new(&identifiers);
        match self.account().await?.new_order(&order).await {
            Err(error) if is_unknown_account(&error) => {
                fs::remove_file(&self.account_file).map_err(OrderError::local)?;
                self.account().await?.new_order(&order).await
            }
            created => created,
        }
        .map_err(|error| OrderError::of_request(&error))
    }

    async fn account(&self) -> Result<Account, OrderError> {
        account::open(&self.account_file, &self.directory, self.contact.as_deref(), &self.client).await
    }

    /// Answers a challenge for each domain that the server has not validated lately, publishes them, and tells the server.
    async fn answer_challenges(
        &self,
        order: &mut Order,
        kind: ChallengeKind,
        publish: &Publish<'_>,
    ) -> Result<Vec<ChallengeAnswer>, OrderError> {
        let (mut challenges, mut answers) = (Vec::new(), Vec::new());
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(|error| OrderError::of_request(&error))?;
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let handle = authorization.challenge(kind.challenge_type());
            let handle = handle.ok_or_else(|| OrderError::not_validated("the server does not offer this challenge"))?;
            let challenge = Challenge {
                kind,
                domain: handle.identifier().to_string(),
                token: handle.token.clone(),
                authorization: handle.key_authorization().as_str().to_owned(),
            };
            answers.push(challenge.answer(&self.challenges).map_err(|error| OrderError::local(&*error))?);
            challenges.push(challenge);
        }
        if challenges.is_empty() {
            return Ok(answers);
        }
        publish(challenges).await?;
        let mut refused = None;
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(|error| OrderError::of_request(&error))?;
            if authorization.status != AuthorizationStatus::Valid
                && let Some(mut handle) = authorization.challenge(kind.challenge_type())
                && let Err(error) = handle.set_ready().await
            {
                refused = Some(error);
                break;
            }
        }
        let Some(error) = refused else { return Ok(answers) };
        // The server may have tried to validate the domain before it responds.
        Err(match &failed_validations(order).await[..] {
            [] => OrderError::of_request(&error),
            reasons => OrderError::not_validated(&reasons.join("; ")),
        })
    }
}

/// Returns what the server says about the domains that it could not validate.
async fn validation_error(order: &mut Order) -> OrderError {
    let mut reasons = failed_validations(order).await;
    if reasons.is_empty() {
        let problem = order.state().error.as_ref();
        reasons.push(problem.map_or_else(|| "the server gives no reason".to_owned(), problem_text));
    }
    OrderError::not_validated(&reasons.join("; "))
}

/// Returns why validations have failed, one text for each.
async fn failed_validations(order: &mut Order) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else { continue };
        let domain = state.identifier().to_string();
        let problems = state.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
        reasons.extend(problems.map(|problem| format!("{domain}: {}", problem_text(problem))));
    }
    reasons
}
