//! Sessions of browsers: whether a client came back with the cookie that the gateway gave it.

use std::time::Duration;

/// Time after which a refused browser comes back with its session.
pub const RETURN_AFTER: Duration = Duration::from_secs(2);

/// Session of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Session {
    /// No valid cookie came with the request.
    #[default]
    None,
    /// A valid cookie came.
    New,
    /// A valid cookie came, and a visit of a person was seen with it.
    Known,
}

impl Session {
    /// All sessions.
    pub const ALL: [Self; 3] = [Self::None, Self::New, Self::Known];

    /// Returns the name in YAML and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::New => "new",
            Self::Known => "known",
        }
    }

    /// Returns the name in sentences.
    pub const fn description(self) -> &'static str {
        match self {
            Self::None => "no session",
            Self::New => "a new session",
            Self::Known => "a known session",
        }
    }

    /// Returns the session with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|session| session.name() == name)
    }
}
