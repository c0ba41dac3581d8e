//! An order of one certificate.

use super::account;
use super::challenge::{Challenge, ChallengeKind};
use super::client::AcmeClient;
use super::error::{FailedStage, OrderError, is_unknown_account, problem_text};
use super::hook::{DnsHook, DnsRecord, HookAction};
use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Error, Identifier, KeyAuthorization, NewOrder, Order, OrderStatus,
    RetryPolicy,
};
use std::fs;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::Timestamp;
use tidegate_tls::PendingChallenges;

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
    /// Sets DNS records, by which the server validates all domains; `None`: it asks the listeners.
    pub hook: Option<DnsHook>,
}

/// An issued certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// Private key and chain, in PEM.
    pub pem: String,
    /// Challenge by which the domains were validated; `None` if it was DNS-01.
    pub kind: Option<ChallengeKind>,
    /// DNS records that could not be removed, and why; `None` if none is left over.
    pub left_over: Option<String>,
}

/// Challenge of a domain that the server has not validated.
struct OpenChallenge {
    /// Domain, without the `*.` of a wildcard.
    domain: String,
    token: String,
    authorization: KeyAuthorization,
}

impl AcmeOrder {
    /// Orders a certificate, by DNS records if there is a hook, else by the first of `kinds` by which the server can validate
    /// the domains. `now` dates `Retry-After`. `publish` is for other gateways, which the server may ask.
    pub async fn run(
        &self,
        kinds: &[ChallengeKind],
        now: Timestamp,
        publish: &Publish<'_>,
    ) -> Result<IssuedCertificate, OrderError> {
        if let Some(hook) = &self.hook {
            return self.order_by_dns(hook).await.map_err(|error| error.retry_after(self.client.retry_after(now)));
        }
        let mut failures = Vec::new();
        for &kind in kinds {
            match self.order_by(kind, publish).await {
                Ok(pem) => return Ok(IssuedCertificate { pem, kind: Some(kind), left_over: None }),
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
        let (mut challenges, mut answers) = (Vec::new(), Vec::new());
        for open in open_challenges(&mut order, &self.domains, kind.challenge_type()).await? {
            let authorization = open.authorization.as_str().to_owned();
            let challenge = Challenge { kind, domain: open.domain, token: open.token, authorization };
            // Given until the order is finished or has failed.
            answers.push(challenge.answer(&self.challenges).map_err(|error| OrderError::local(&*error))?);
            challenges.push(challenge);
        }
        if !challenges.is_empty() {
            publish(challenges).await?;
        }
        complete(&mut order, &kind.challenge_type()).await
    }

    async fn order_by_dns(&self, hook: &DnsHook) -> Result<IssuedCertificate, OrderError> {
        let mut order = self.open_order().await?;
        let mut records = Vec::new();
        let result = set_records_and_complete(&mut order, &self.domains, hook, &mut records).await;
        let mut left_over = Vec::new();
        for record in &records {
            if let Err(problem) = hook.run(HookAction::Remove, record).await {
                left_over.push(format!("{record} is left over: {problem}"));
            }
        }
        let left_over = (!left_over.is_empty()).then(|| left_over.join("; "));
        match (result, left_over) {
            (Ok(pem), left_over) => Ok(IssuedCertificate { pem, kind: None, left_over }),
            (Err(error), None) => Err(error),
            (Err(error), Some(left_over)) => Err(error.with_further(&left_over)),
        }
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
}

/// Sets a record for each domain that the server has not validated lately, appended to `records` before it is set, and
/// completes the order.
async fn set_records_and_complete(
    order: &mut Order,
    domains: &[String],
    hook: &DnsHook,
    records: &mut Vec<DnsRecord>,
) -> Result<String, OrderError> {
    for open in open_challenges(order, domains, ChallengeType::Dns01).await? {
        let record =
            DnsRecord { name: format!("_acme-challenge.{}", open.domain), value: open.authorization.dns_value() };
        records.push(record.clone());
        hook.run(HookAction::Set, &record).await.map_err(OrderError::local)?;
    }
    complete(order, &ChallengeType::Dns01).await.map_err(|error| match error.stage {
        FailedStage::Validation => error.with_further("the command must end after all name servers have the record"),
        _ => error,
    })
}

/// Returns the challenges of those of `domains` that the server has not validated lately.
async fn open_challenges(
    order: &mut Order,
    domains: &[String],
    kind: ChallengeType,
) -> Result<Vec<OpenChallenge>, OrderError> {
    let mut open = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(|error| OrderError::of_request(&error))?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let handle = authorization.challenge(kind.clone());
        let handle = handle.ok_or_else(|| OrderError::not_validated("the server does not offer this challenge"))?;
        let domain = ordered(domains, &handle.identifier().identifier.authorized(false).to_string())?;
        open.push(OpenChallenge { domain, token: handle.token.clone(), authorization: handle.key_authorization() });
    }
    Ok(open)
}

/// Returns the domain that a server asks to prove, without the `*.` of a wildcard. A server may send any text, which a command would
/// get as a name, so that it must be one of `domains`.
fn ordered(domains: &[String], asked: &str) -> Result<String, OrderError> {
    let mut names = domains.iter().map(|domain| domain.strip_prefix("*.").unwrap_or(domain));
    let name = names.find(|name| name.eq_ignore_ascii_case(asked));
    name.map(str::to_owned).ok_or_else(|| {
        OrderError::refused(&format!("the server asks to prove {asked:?}, which is none of the ordered domains"))
    })
}

/// Tells the server that all challenges of this kind are answered. Returns key and chain of the certificate.
async fn complete(order: &mut Order, kind: &ChallengeType) -> Result<String, OrderError> {
    set_ready(order, kind).await?;
    let polls = RetryPolicy::new().timeout(POLL_TIMEOUT).backoff(1.5);
    match order.poll_ready(&polls).await {
        Ok(OrderStatus::Ready) => {}
        // A server may show the error of an order before its status is invalid.
        Ok(_) | Err(Error::Api(_)) if order.state().status == OrderStatus::Invalid || order.state().error.is_some() => {
            return Err(validation_error(order).await);
        }
        Ok(status) => return Err(OrderError::refused(&format!("the order is {status:?} after its validation"))),
        Err(error) => return Err(OrderError::of_request(&error)),
    }
    let key = order.finalize().await.map_err(|error| OrderError::of_request(&error))?;
    let chain = order.poll_certificate(&polls).await.map_err(|error| OrderError::of_request(&error))?;
    Ok(format!("{key}{chain}"))
}

/// Lets the server validate the domains that it has not validated lately.
async fn set_ready(order: &mut Order, kind: &ChallengeType) -> Result<(), OrderError> {
    let mut refused = None;
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(|error| OrderError::of_request(&error))?;
        if authorization.status != AuthorizationStatus::Valid
            && let Some(mut handle) = authorization.challenge(kind.clone())
            && let Err(error) = handle.set_ready().await
        {
            refused = Some(error);
            break;
        }
    }
    let Some(error) = refused else { return Ok(()) };
    // The server may have tried to validate the domain before it responds.
    Err(match &failed_validations(order).await[..] {
        [] => OrderError::of_request(&error),
        reasons => OrderError::not_validated(&reasons.join("; ")),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ordered_domains_are_proved() {
        let domains = ["example.com", "*.example.com", "*.shop.example"].map(str::to_owned);
        for asked in ["example.com", "EXAMPLE.com", "shop.example"] {
            assert_eq!(ordered(&domains, asked), Ok(asked.to_ascii_lowercase()));
        }
        for asked in
            ["", "*.shop.example", "a.shop.example", "example.org", "example.com.", "example.com 60 A 192.0.2.1\nsend"]
        {
            let error = ordered(&domains, asked).expect_err("another name");
            assert!(error.reason.contains("none of the ordered domains") && !error.reason.contains('\n'), "{error}");
        }
    }
}
