//! Kinds of clients: humans, bots and impostors.

/// Kind of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientKind {
    /// No evidence of a bot.
    Human,
    /// A bot with a proven operator.
    VerifiedBot,
    /// A bot that declares itself, unproven.
    DeclaredBot,
    /// An undeclared bot, detected by its behavior.
    SuspectedBot,
    /// A bot that claims an operator whose exhaustive data do not cover it.
    Impostor,
}

impl ClientKind {
    /// All kinds, in the order of the contract.
    pub const ALL: [Self; 5] = [Self::Human, Self::VerifiedBot, Self::DeclaredBot, Self::SuspectedBot, Self::Impostor];

    /// Returns the name in YAML, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::VerifiedBot => "verified_bot",
            Self::DeclaredBot => "declared_bot",
            Self::SuspectedBot => "suspected_bot",
            Self::Impostor => "impostor",
        }
    }

    /// Returns true if clients of the kind may have sessions: bots that say so have none.
    pub const fn may_have_session(self) -> bool {
        matches!(self, Self::Human | Self::SuspectedBot)
    }
}
