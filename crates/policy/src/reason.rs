//! Reasons for which requests are refused, each in one row: what is done and said, wherever a refusal is shown.

use http::StatusCode;

/// Declares the reasons, each with its row, in the order of their labels.
macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident: $row:expr,)*) => {
        /// Rule that can refuse a request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[$doc])* $reason,)*
        }

        impl Reason {
            /// All reasons, in the order of their labels.
            pub const ALL: [Self; [$(stringify!($reason)),*].len()] = [$(Self::$reason),*];

            /// Returns what is done and said about refusals of the reason.
            pub const fn row(self) -> &'static ReasonRow {
                match self {
                    $(Self::$reason => &$row,)*
                }
            }
        }
    };
}

/// What is done and said about the refusals of one reason.
#[derive(Debug)]
pub struct ReasonRow {
    /// Name in logs, metrics and problem documents.
    pub name: &'static str,
    /// Type of the problem document.
    pub problem: ProblemType,
    /// Detail of the problem document.
    pub detail: &'static str,
    /// Meaning in the reference of the access log.
    pub meaning: &'static str,
    /// True if a stored response may be sent in place of the refusal. Blocks and buckets hold for stored responses, too.
    pub allows_copy: bool,
    /// True if a scope refuses, after the decision has admitted the request.
    pub is_of_scope: bool,
    /// True if a rule of the class refuses, which the problem document names as the policy.
    pub is_of_class: bool,
}

/// Type of a problem document (RFC 9457).
#[derive(Debug)]
pub struct ProblemType {
    /// Status of the response.
    pub status: StatusCode,
    /// URI that identifies the type.
    pub uri: &'static str,
    /// Title, the same for all problems of the type.
    pub title: &'static str,
}

impl ProblemType {
    // The URIs and titles are those that draft-ietf-httpapi-ratelimit-headers registers.
    const QUOTA_EXCEEDED: Self = Self {
        status: StatusCode::TOO_MANY_REQUESTS,
        uri: "https://iana.org/assignments/http-problem-types#quota-exceeded",
        title: "Request cannot be satisfied as assigned quota has been exceeded",
    };
    const ABNORMAL_USAGE: Self = Self {
        status: StatusCode::TOO_MANY_REQUESTS,
        uri: "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
        title: "Request not satisfied due to detection of abnormal request pattern",
    };
    const REDUCED_CAPACITY: Self = Self {
        status: StatusCode::SERVICE_UNAVAILABLE,
        uri: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
        title: "Request cannot be satisfied due to temporary server capacity constraints",
    };
    const UNAVAILABLE: Self =
        Self { status: StatusCode::SERVICE_UNAVAILABLE, uri: "about:blank", title: "Service Unavailable" };
}

reasons! {
    /// The class exceeds its share of the quota.
    Tier: ReasonRow {
        name: "tier",
        problem: ProblemType::QUOTA_EXCEEDED,
        detail: "The quota share of this client class is used up.",
        meaning: "The class exceeds its share of the quota: a tier refuses it.",
        allows_copy: true,
        is_of_scope: false,
        is_of_class: false,
    },
    /// The quota is used up.
    Quota: ReasonRow {
        name: "quota",
        problem: ProblemType::QUOTA_EXCEEDED,
        detail: "The quota of this period is used up.",
        meaning: "The quota is used up.",
        allows_copy: true,
        is_of_scope: false,
        is_of_class: false,
    },
    /// The bucket of the client is empty.
    Bucket: ReasonRow {
        name: "bucket",
        problem: ProblemType::QUOTA_EXCEEDED,
        detail: "The request rate exceeds the limit of this client class.",
        meaning: "The bucket of the client is empty.",
        allows_copy: false,
        is_of_scope: false,
        is_of_class: true,
    },
    /// The class is blocked, or an administrator blocks the client.
    Blocked: ReasonRow {
        name: "blocked",
        problem: ProblemType::ABNORMAL_USAGE,
        detail: "This client is blocked.",
        meaning: "The class has `block: true`, or an administrator blocks the client (`tidegate block`).",
        allows_copy: false,
        is_of_scope: false,
        is_of_class: true,
    },
    /// No slot of the origin is available in time.
    Throttle: ReasonRow {
        name: "throttle",
        problem: ProblemType::REDUCED_CAPACITY,
        detail: "The site has no capacity for another request now.",
        meaning: "No slot of the origin is available in time: the queue was full, or the wait would have been too long.",
        allows_copy: true,
        is_of_scope: true,
        is_of_class: false,
    },
    /// The quota has units left, but the ledger has not leased enough of them yet.
    Ledger: ReasonRow {
        name: "ledger",
        problem: ProblemType::REDUCED_CAPACITY,
        detail: "Quota units are temporarily unavailable; retry shortly.",
        meaning: "The quota has units left, but the ledger has not leased enough of them to this instance yet.",
        allows_copy: true,
        is_of_scope: false,
        is_of_class: false,
    },
    /// A scope of the route backs off after an overload of the origin.
    Backoff: ReasonRow {
        name: "backoff",
        problem: ProblemType::REDUCED_CAPACITY,
        detail: "The site is overloaded; requests are paused.",
        meaning: "A scope of the route was backing off after an overload of the origin.",
        allows_copy: true,
        is_of_scope: true,
        is_of_class: false,
    },
    /// The class is ahead of the pacing plan of the window.
    Pacing: ReasonRow {
        name: "pacing",
        problem: ProblemType::QUOTA_EXCEEDED,
        detail: "Requests of this client class exceed the pacing plan of the quota.",
        meaning: "The class is ahead of the pacing plan of the quota.",
        allows_copy: true,
        is_of_scope: false,
        is_of_class: false,
    },
    /// The client has used its share of the window.
    ClientShare: ReasonRow {
        name: "client_share",
        problem: ProblemType::QUOTA_EXCEEDED,
        detail: "This client has used its share of the quota of this period.",
        meaning: "The client has used its share of the window (`per_client`).",
        allows_copy: true,
        is_of_scope: false,
        is_of_class: false,
    },
    /// The site is in maintenance.
    Maintenance: ReasonRow {
        name: "maintenance",
        problem: ProblemType::UNAVAILABLE,
        detail: "The site is in maintenance and will be back soon.",
        meaning: "The site is in maintenance (`tidegate maintenance on`).",
        allows_copy: false,
        is_of_scope: false,
        is_of_class: false,
    },
}

impl Reason {
    /// Returns the name in logs, metrics and problem documents.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the reason with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// Returns the status of the response to a refused request.
    pub const fn status(self) -> StatusCode {
        self.row().problem.status
    }

    /// Returns true if a stored response may be sent in place of the refusal.
    pub const fn allows_copy(self) -> bool {
        self.row().allows_copy
    }

    /// Returns true if the administrator refuses the client, whatever it has used.
    pub const fn is_of_administrator(self) -> bool {
        matches!(self, Self::Blocked | Self::Maintenance)
    }

    /// Returns true if a scope refuses, after the decision has admitted the request.
    pub const fn is_of_scope(self) -> bool {
        self.row().is_of_scope
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_reasons_are_those_of_their_variants() {
        for reason in Reason::ALL {
            assert_eq!(reason.name().replace('_', ""), format!("{reason:?}").to_lowercase());
            assert_eq!(Reason::from_name(reason.name()), Some(reason));
        }
        assert_eq!(Reason::from_name("none"), None);
    }

    #[test]
    fn a_problem_is_of_the_client_or_of_the_site() {
        for reason in Reason::ALL {
            let status = reason.status().as_u16();
            assert!([429, 503].contains(&status), "{reason:?}");
            assert!(!reason.is_of_scope() || (status == 503 && reason.allows_copy()), "{reason:?}");
        }
    }
}
