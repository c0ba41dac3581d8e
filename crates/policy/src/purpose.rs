//! Purposes of crawlers, as their operators state them.

/// What an operator fetches pages for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// An index of a search engine.
    Search,
    /// A request of a user, whom a program answers.
    Agent,
    /// Training of models.
    Training,
    /// Checks of a site, such as whether it is up.
    Monitor,
    /// Previews of links.
    Preview,
}

impl Purpose {
    /// All purposes.
    pub const ALL: [Self; 5] = [Self::Search, Self::Agent, Self::Training, Self::Monitor, Self::Preview];

    /// Returns the name in YAML and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::Agent => "agent",
            Self::Training => "training",
            Self::Monitor => "monitor",
            Self::Preview => "preview",
        }
    }

    /// Returns the purpose with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|purpose| purpose.name() == name)
    }
}
