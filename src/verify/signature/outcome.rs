//! What can come of looking at a signature.

/// What a request's signature says of who sent it, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SignatureOutcome {
    /// Nobody signed it as an agent: that says nothing.
    Absent,
    /// The agent that it names has signed it.
    Verified,
    /// It is not as that agent would send it.
    Invalid(SignatureError),
    /// Nobody can tell.
    Unknown(UnverifiedReason),
}

/// What is wrong with a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SignatureError {
    /// One of its fields is not what it should be, or two of them do not go together.
    #[error("its fields cannot be read")]
    MalformedFields,
    /// It would be as good for any other site.
    #[error("it does not cover the host")]
    TargetNotCovered,
    /// It does not cover who is said to have signed, or several are.
    #[error("it does not cover one agent")]
    AgentNotCovered,
    /// It does not say when it was made, when it ends, or with which key.
    #[error("created, expires or keyid is missing")]
    MissingParams,
    /// It has ended.
    #[error("it has ended")]
    Expired,
    /// It is not made yet, by our clock.
    #[error("it is of the future: a clock is wrong")]
    NotYet,
    /// It lasts longer than the settings allow.
    #[error("it lasts longer than verify.signatures.max_lifetime")]
    LifetimeTooLong,
    /// It is made in another way than by Ed25519.
    #[error("its algorithm is not ed25519")]
    Algorithm,
    /// It covers the same thing twice.
    #[error("it covers something twice")]
    DuplicateComponent,
    /// It covers what the request does not have.
    #[error("it covers what the request does not have")]
    ComponentAbsent,
    /// Its keys would come over a connection that anybody could have tampered with.
    #[error("its agent's address is not https")]
    NotHttps,
    /// The body that it covers is another.
    #[error("it is of another body")]
    DigestMismatch,
    /// The key says so.
    #[error("it is of another request, or of another key")]
    InvalidSignature,
    /// It was used before.
    #[error("it was used before")]
    Replayed,
}

/// Why nobody can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnverifiedReason {
    /// Its fields are larger, or say more, than anybody needs.
    TooLarge,
    /// It covers what is not looked at here.
    Uncheckable,
    /// Nobody has named this agent to us.
    AgentUnknown,
    /// The agent's keys have not been fetched yet.
    Pending,
    /// The agent has no such key, or not now.
    KeyUnknown,
    /// This client has had too many wrong ones lately.
    FailureLimit,
}

impl From<SignatureError> for SignatureOutcome {
    fn from(fault: SignatureError) -> Self {
        Self::Invalid(fault)
    }
}

impl From<UnverifiedReason> for SignatureOutcome {
    fn from(doubt: UnverifiedReason) -> Self {
        Self::Unknown(doubt)
    }
}
