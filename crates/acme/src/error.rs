//! Why an order failed, in the words of the ACME server where it has any.

use instant_acme::{Error, Problem};
use std::fmt;
use std::time::Duration;

/// Error of [`AcmeOrder::run`](super::AcmeOrder::run).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderError {
    /// Reason, of at most [`MAX_REASON`] bytes.
    pub reason: String,
    /// Time for which the server asks to wait.
    pub retry_after: Option<Duration>,
    /// Stage that failed.
    pub stage: FailedStage,
}

/// Stage at which an order failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedStage {
    /// The server could not be asked, or has failed itself.
    Request,
    /// The server has refused the account or the order.
    Order,
    /// The server could not validate a domain.
    Validation,
}

/// Maximum length of a reason: the text of a server is not bounded.
const MAX_REASON: usize = 500;

impl OrderError {
    /// Creates the error of this machine, such as that of a file.
    pub fn local(reason: impl fmt::Display) -> Self {
        Self { reason: bounded(&reason.to_string()), retry_after: None, stage: FailedStage::Request }
    }

    /// Creates the refusal of a server.
    pub(super) fn refused(reason: &str) -> Self {
        Self { reason: bounded(reason), retry_after: None, stage: FailedStage::Order }
    }

    /// Creates the failure of a validation.
    pub(super) fn not_validated(reason: &str) -> Self {
        Self { stage: FailedStage::Validation, ..Self::refused(reason) }
    }

    /// Adds a sentence to the reason. Each of the two has at least half of the space.
    pub(super) fn with_further(self, text: &str) -> Self {
        let further = bounded_to(text, MAX_REASON / 2);
        let reason = bounded_to(&self.reason, MAX_REASON - further.len() - "; ".len());
        Self { reason: format!("{reason}; {further}"), ..self }
    }

    /// Creates the error of a request to the server.
    pub(super) fn of_request(error: &Error) -> Self {
        match error {
            Error::Api(problem) if !is_of_server(problem) => Self::refused(&problem_text(problem)),
            Error::Api(problem) => Self::local(problem_text(problem)),
            error => Self::local(error),
        }
    }

    /// Creates the error of the first request to a server, whose directory is not known yet.
    pub(super) fn of_first_request(directory: &str, error: &Error) -> Self {
        match error {
            Error::Api(_) => Self::of_request(error),
            Error::Json(_) => Self::local(format_args!(
                "{directory} is not the directory of an ACME server ({error}); write its URL in acme.directory"
            )),
            error if error.to_string().contains("UnknownIssuer") => Self::local(format_args!(
                "the ACME server {directory}: {error}; write the authority of its own certificate in acme.ca"
            )),
            error => Self::local(format_args!("the ACME server {directory}: {error}")),
        }
    }

    /// Adds the time for which the server asks to wait.
    pub(super) fn retry_after(self, retry_after: Option<Duration>) -> Self {
        Self { retry_after, ..self }
    }
}

/// Returns true if the server blames itself, or a nonce that it has given out.
fn is_of_server(problem: &Problem) -> bool {
    let is_of_nonce = problem.r#type.as_deref() == Some("urn:ietf:params:acme:error:badNonce");
    is_of_nonce || problem.status.is_some_and(|status| status >= 500)
}

/// Returns what the server says, with the short name of the problem's type.
pub(super) fn problem_text(problem: &Problem) -> String {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    let kind = kind.strip_prefix("urn:ietf:params:acme:error:").unwrap_or(kind);
    let mut text = match (kind, problem.detail.as_deref().unwrap_or_default()) {
        ("", detail) => detail.to_owned(),
        (kind, "") => kind.to_owned(),
        (kind, detail) => format!("{kind}: {detail}"),
    };
    for part in &problem.subproblems {
        text.push_str(&format!("; {}", part.detail.as_deref().unwrap_or_default()));
    }
    text
}

/// Returns true if the server does not know the account any more.
pub(super) fn is_unknown_account(error: &Error) -> bool {
    let Error::Api(problem) = error else { return false };
    problem.r#type.as_deref() == Some("urn:ietf:params:acme:error:accountDoesNotExist")
}

fn bounded(text: &str) -> String {
    bounded_to(text, MAX_REASON)
}

/// Returns the first part of a text, of at most `length` bytes, on one line and without control characters.
fn bounded_to(text: &str, length: usize) -> String {
    let mut bounded: String = text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    let end = (0..=length.min(bounded.len())).rev().find(|&end| bounded.is_char_boundary(end));
    bounded.truncate(end.unwrap_or(0));
    bounded
}

impl fmt::Display for OrderError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.reason)
    }
}

impl std::error::Error for OrderError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_one_bounded_line() {
        assert_eq!(OrderError::refused("a\r\nb").reason, "a  b");
        assert_eq!(OrderError::refused(&"\u{e4}".repeat(MAX_REASON)).reason.len(), MAX_REASON);
        assert_eq!(OrderError::refused(&format!("a{}", "\u{e4}".repeat(MAX_REASON))).reason.len(), MAX_REASON - 1);
    }

    #[test]
    fn further_sentence_displaces_the_end_of_a_long_reason() {
        let long = "x".repeat(2 * MAX_REASON);
        assert_eq!(OrderError::refused("a").with_further("b").reason, "a; b");
        let reason = OrderError::refused(&long).with_further("the remedy").reason;
        assert!(reason.len() == MAX_REASON && reason.ends_with("x; the remedy"), "{reason}");
        let reason = OrderError::refused("the reason").with_further(&long).reason;
        assert!(reason.len() < MAX_REASON && reason.starts_with("the reason; x"), "{reason}");
    }
}
