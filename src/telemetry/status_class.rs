//! Status classes as exported in metrics: by first digit, with 429 and 503, which the gateway itself sends, apart.

/// A status class of a closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatusClass {
    Informational,
    Success,
    Redirection,
    ClientError,
    TooManyRequests,
    ServerError,
    Unavailable,
    /// No response, or one with an invalid status.
    Error,
}

impl StatusClass {
    /// All classes, by index.
    pub(super) const ALL: [Self; 8] = [
        Self::Informational,
        Self::Success,
        Self::Redirection,
        Self::ClientError,
        Self::TooManyRequests,
        Self::ServerError,
        Self::Unavailable,
        Self::Error,
    ];
    /// Names of all classes, by index.
    pub(super) const NAMES: [&'static str; Self::ALL.len()] = {
        let mut names = [""; Self::ALL.len()];
        let mut index = 0;
        while index < names.len() {
            names[index] = Self::ALL[index].name();
            index += 1;
        }
        names
    };

    /// Returns the class of `status`; an invalid status counts as an error.
    pub(super) const fn from_status(status: u16) -> Self {
        match status {
            429 => Self::TooManyRequests,
            503 => Self::Unavailable,
            100..=199 => Self::Informational,
            200..=299 => Self::Success,
            300..=399 => Self::Redirection,
            400..=499 => Self::ClientError,
            500..=599 => Self::ServerError,
            _ => Self::Error,
        }
    }

    /// Returns the value of the label.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Informational => "1xx",
            Self::Success => "2xx",
            Self::Redirection => "3xx",
            Self::ClientError => "4xx",
            Self::TooManyRequests => "429",
            Self::ServerError => "5xx",
            Self::Unavailable => "503",
            Self::Error => "error",
        }
    }

    /// Returns the index in [`Self::ALL`].
    pub(super) const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::StatusClass;

    #[test]
    fn each_class_is_found_at_its_index() {
        for (index, class) in StatusClass::ALL.into_iter().enumerate() {
            assert_eq!((class.index(), StatusClass::NAMES[index]), (index, class.name()));
        }
    }

    #[test]
    fn status_counts_for_its_class() {
        for (status, name) in [
            (100, "1xx"),
            (204, "2xx"),
            (304, "3xx"),
            (404, "4xx"),
            (429, "429"),
            (499, "4xx"),
            (502, "5xx"),
            (503, "503"),
            (99, "error"),
            (600, "error"),
        ] {
            assert_eq!(StatusClass::from_status(status).name(), name, "{status}");
        }
    }
}
