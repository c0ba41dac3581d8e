//! Outcome of the verification of a signature.

/// Outcome of a request's signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SignatureOutcome {
    /// The request has no signature of an agent.
    Absent,
    /// The signature of the named agent is valid.
    Verified,
    /// The signature is invalid.
    Invalid(SignatureError),
    /// The signature could not be verified.
    Unknown(UnverifiedReason),
}

/// Reason why a signature is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SignatureError {
    /// A field cannot be parsed, or fields contradict each other.
    #[error("malformed signature fields")]
    MalformedFields,
    /// The signature would be valid for any other site.
    #[error("the host is not covered")]
    TargetNotCovered,
    /// The signature covers no agent, or several.
    #[error("the agent is not covered, or several are")]
    AgentNotCovered,
    /// The parameters lack the creation time, the expiry or the key id.
    #[error("created, expires or keyid is missing")]
    MissingParams,
    /// The signature has expired.
    #[error("expired")]
    Expired,
    /// The creation time is in the future by the gateway's clock.
    #[error("created in the future (clock skew)")]
    CreatedInFuture,
    /// The lifetime exceeds the limit of the config.
    #[error("lifetime exceeds verify.signatures.max_lifetime")]
    LifetimeTooLong,
    /// The algorithm needs a shared secret, which a published key is not.
    #[error("the algorithm needs a shared secret")]
    SymmetricAlgorithm,
    /// A component is covered twice.
    #[error("a component is covered twice")]
    DuplicateComponent,
    /// A covered component is not in the request.
    #[error("a covered component is missing")]
    ComponentAbsent,
    /// The URL of the keys is not HTTPS, so the keys could be tampered with.
    #[error("the agent's URL is not https")]
    NotHttps,
    /// The digest of the body does not match.
    #[error("the body digest does not match")]
    DigestMismatch,
    /// The signature does not verify with the key.
    #[error("signature does not verify")]
    InvalidSignature,
    /// The nonce was used before.
    #[error("replayed nonce")]
    Replayed,
}

/// Reason why a signature could not be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnverifiedReason {
    /// The fields exceed the size limits.
    TooLarge,
    /// A covered component is not supported.
    UnsupportedComponent,
    /// The algorithm is not supported.
    UnsupportedAlgorithm,
    /// The member of `Signature-Agent` has parameters, so that it is ignored.
    AgentIgnored,
    /// The agent is unknown and was not added.
    AgentUnknown,
    /// The agent's keys have not been fetched yet.
    Pending,
    /// The agent has no such key, or it is not valid now.
    KeyUnknown,
    /// The client has reached the limit of invalid signatures.
    FailureLimit,
}

impl From<SignatureError> for SignatureOutcome {
    fn from(error: SignatureError) -> Self {
        Self::Invalid(error)
    }
}

impl From<UnverifiedReason> for SignatureOutcome {
    fn from(reason: UnverifiedReason) -> Self {
        Self::Unknown(reason)
    }
}
