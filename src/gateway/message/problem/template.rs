//! Texts of the problems, as JSON that is built once: at compile time, or from the row of a reason.

use crate::gateway::message::target::RequestError;
use crate::gateway::upstream::{ClientBodyError, ForwardError};
use http::StatusCode;
use std::sync::LazyLock;
use tidegate_http1 as http1;
use tidegate_policy::Reason;
use tidegate_policy::path::{Ambiguity, PathError};
use tidegate_policy::reason::ProblemType;

/// Constant parts of a problem: all of its document but the decision id and the violated policies.
#[derive(Clone, Copy)]
pub(super) struct ProblemTemplate {
    pub(super) status: u16,
    pub(super) detail: &'static str,
    pub(super) before_id: &'static str,
    pub(super) after_id: &'static str,
    /// Methods that `Allow` of a 405 lists (RFC 9110 section 15.5.6); empty for other statuses.
    pub(super) allow: &'static str,
}

/// Builds the document, with its members in the order of RFC 9457.
macro_rules! template {
    ($status:literal, $kind:literal, $title:literal, $detail:literal, $after_id:expr) => {
        ProblemTemplate {
            status: $status,
            detail: $detail,
            before_id: concat!(
                "{\"type\":\"",
                $kind,
                "\",\"title\":\"",
                $title,
                "\",\"status\":",
                $status,
                ",\"detail\":\"",
                $detail,
                "\",\"instance\":\"urn:tidegate:decision:"
            ),
            after_id: $after_id,
            allow: "",
        }
    };
}

/// Builds a problem without details beyond its status.
macro_rules! plain {
    ($status:literal, $title:literal, $detail:literal) => {
        template!($status, "about:blank", $title, $detail, "\"}\n")
    };
}

/// Templates of all reasons, in the order of [`Reason::ALL`].
static REFUSALS: LazyLock<[ProblemTemplate; Reason::ALL.len()]> = LazyLock::new(|| {
    Reason::ALL.map(|reason| ProblemTemplate::of_refusal(reason, &reason.row().problem, reason.row().detail))
});

/// A tier that leaves a class nothing of the quota, however little of it is used.
static NO_SHARE: LazyLock<ProblemTemplate> = LazyLock::new(|| {
    let detail = "Clients of this class get no pages that cost units of the quota.";
    ProblemTemplate::of_refusal(Reason::Tier, &Reason::Tier.row().problem, detail)
});

/// A blocked class with `refuse_with: 401`.
static UNAUTHORIZED: LazyLock<ProblemTemplate> = LazyLock::new(|| {
    let problem = ProblemType { status: StatusCode::UNAUTHORIZED, uri: "about:blank", title: "Unauthorized" };
    ProblemTemplate::of_refusal(Reason::Blocked, &problem, "The request has no valid API key.")
});

/// A blocked class with `refuse_with: 403`.
static FORBIDDEN: LazyLock<ProblemTemplate> = LazyLock::new(|| {
    let problem = ProblemType { status: StatusCode::FORBIDDEN, uri: "about:blank", title: "Forbidden" };
    ProblemTemplate::of_refusal(Reason::Blocked, &problem, Reason::Blocked.row().detail)
});

impl ProblemTemplate {
    /// A method that a document of the gateway does not support.
    pub(super) const METHOD_NOT_ALLOWED: Self =
        Self { allow: "GET, HEAD", ..plain!(405, "Method Not Allowed", "This document supports only GET and HEAD.") };

    /// The usage of a customer, without a key of one.
    pub(super) const NO_KEY: Self = plain!(401, "Unauthorized", "The request has no valid API key.");

    /// No stored response for a client that wants no other.
    pub(super) const ONLY_IF_CACHED: Self =
        plain!(504, "Gateway Timeout", "The request asks for a stored response, and there is none.");

    /// A robots.txt without a copy, and too many fetches of others.
    pub(super) const ROBOTS_UNAVAILABLE: Self =
        plain!(503, "Service Unavailable", "The robots.txt of this host cannot be fetched now.");

    /// A page that other requests fetch for too long.
    pub(super) const FETCH_OVERDUE: Self =
        plain!(503, "Service Unavailable", "The page is being fetched for others, and the site sends it slowly.");

    /// Returns the texts of a refusal.
    pub(super) fn for_refusal(reason: Reason) -> Self {
        REFUSALS[reason as usize]
    }

    /// Returns the texts of a refusal by a tier that leaves the class nothing.
    pub(super) fn for_no_share() -> Self {
        *NO_SHARE
    }

    /// Returns the texts of a refusal by a block, with its `status`.
    pub(super) fn for_block(status: StatusCode) -> Self {
        match status {
            StatusCode::UNAUTHORIZED => *UNAUTHORIZED,
            StatusCode::FORBIDDEN => *FORBIDDEN,
            _ => Self::for_refusal(Reason::Blocked),
        }
    }

    /// Builds the texts of the refusals of a reason, once: they remain in memory.
    fn of_refusal(reason: Reason, problem: &ProblemType, detail: &'static str) -> Self {
        let ProblemType { status, uri, title } = problem;
        let (status, name) = (status.as_u16(), reason.name());
        let before_id = format!(
            "{{\"type\":\"{uri}\",\"title\":\"{title}\",\"status\":{status},\"detail\":\"{detail}\",\
             \"instance\":\"urn:tidegate:decision:"
        );
        let after_id = format!("\",\"reason\":\"{name}\",\"violated-policies\":[");
        Self { status, detail, before_id: before_id.leak(), after_id: after_id.leak(), allow: "" }
    }

    /// Returns the texts of a failed origin.
    pub(super) fn for_forward_error(error: &ForwardError) -> Self {
        match error {
            ForwardError::PoolExhausted
            | ForwardError::NoSocket { .. }
            | ForwardError::TooManyUpgrades
            | ForwardError::ClientBody(ClientBodyError::NoSpace) => Self::for_refusal(Reason::Throttle),
            ForwardError::ConnectTimedOut { .. } => {
                plain!(504, "Gateway Timeout", "The site did not accept the request in time.")
            }
            ForwardError::TimedOut { .. } | ForwardError::BodyTimedOut => {
                plain!(504, "Gateway Timeout", "The site did not respond in time.")
            }
            ForwardError::ConnectFailed { .. } => plain!(502, "Bad Gateway", "The site is unreachable."),
            ForwardError::ResponseHeadTooLarge { .. } => {
                plain!(502, "Bad Gateway", "The site sent an invalid response.")
            }
            ForwardError::OriginClosed { .. } => {
                plain!(502, "Bad Gateway", "The site closed the connection without a response.")
            }
            ForwardError::NotUpgraded { .. } => plain!(502, "Bad Gateway", "The site does not accept the upgrade."),
            ForwardError::ClientBody(ClientBodyError::TooLarge) => Self::for_request_error(RequestError::TooLarge),
            ForwardError::ClientBody(ClientBodyError::TooSlow) => {
                plain!(408, "Request Timeout", "The request body was sent too slowly.")
            }
            ForwardError::ClientBody(ClientBodyError::Aborted) => {
                plain!(400, "Bad Request", "The request body is incomplete.")
            }
        }
    }

    /// Returns the texts of a request that cannot be forwarded.
    pub(super) fn for_request_error(error: RequestError) -> Self {
        match error {
            RequestError::Host => plain!(400, "Bad Request", "The request needs exactly one valid host."),
            RequestError::Misdirected => {
                plain!(421, "Misdirected Request", "This site does not serve the requested host.")
            }
            RequestError::Path(PathError::EncodedNul) => {
                plain!(400, "Bad Request", "The path contains an encoded NUL.")
            }
            RequestError::Path(PathError::EncodedSlash) => {
                plain!(400, "Bad Request", "The path contains an encoded slash (%2F).")
            }
            RequestError::Path(PathError::Backslash) => {
                plain!(400, "Bad Request", "The path contains a backslash.")
            }
            RequestError::Path(PathError::EncodedControl) => {
                plain!(400, "Bad Request", "The path contains an encoded control character.")
            }
            RequestError::Path(PathError::Ambiguous(Ambiguity::Costs)) => {
                plain!(400, "Bad Request", "The path can be read as pages with costs in different quotas.")
            }
            RequestError::Path(PathError::Ambiguous(Ambiguity::Origin)) => {
                plain!(400, "Bad Request", "The path can be read as pages of different origins.")
            }
            RequestError::Path(PathError::Ambiguous(Ambiguity::Rewrite)) => {
                plain!(400, "Bad Request", "The path can be read as one that is not rewritten.")
            }
            RequestError::Path(PathError::TooManySegments) => {
                plain!(414, "URI Too Long", "The path has more than 256 segments.")
            }
            RequestError::Body(Ambiguity::Costs) => {
                plain!(400, "Bad Request", "The body can be read as calls with costs in different quotas.")
            }
            RequestError::Body(Ambiguity::Origin) => {
                plain!(400, "Bad Request", "The body can be read as calls of different origins.")
            }
            RequestError::Body(Ambiguity::Rewrite) => {
                plain!(400, "Bad Request", "The body can be read as a call with another path at the origin.")
            }
            RequestError::Fields(Ambiguity::Costs) => {
                plain!(
                    400,
                    "Bad Request",
                    "A header field or cookie that chooses the route can be read in several ways, with costs in different quotas. Send it once."
                )
            }
            RequestError::Fields(Ambiguity::Origin) => {
                plain!(
                    400,
                    "Bad Request",
                    "A header field or cookie that chooses the route can be read in several ways, which lead to different origins. Send it once."
                )
            }
            RequestError::Fields(Ambiguity::Rewrite) => {
                plain!(
                    400,
                    "Bad Request",
                    "A header field or cookie that chooses the route can be read in several ways, with different paths at the origin. Send it once."
                )
            }
            RequestError::Query => plain!(414, "URI Too Long", "The query has more than 1,000 parameters."),
            RequestError::Target => plain!(400, "Bad Request", "The request target is neither a path nor a URL."),
            RequestError::FieldValue => {
                plain!(400, "Bad Request", "A header field has a space or tab before or after its value.")
            }
            RequestError::Framing => {
                plain!(400, "Bad Request", "Content-Length and Transfer-Encoding exclude each other.")
            }
            RequestError::DocumentMethod => Self::METHOD_NOT_ALLOWED,
            RequestError::Method => Self {
                allow: "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
                ..plain!(405, "Method Not Allowed", "CONNECT and TRACE are not supported.")
            },
            RequestError::Expectation => {
                plain!(417, "Expectation Failed", "Only the expectation 100-continue is supported.")
            }
            RequestError::TooLarge => plain!(413, "Payload Too Large", "The request body is too large."),
            RequestError::Loop => plain!(508, "Loop Detected", "The request has already passed through this gateway."),
            RequestError::Malformed(http1::Malformed::HeadTooLarge) => {
                plain!(431, "Request Header Fields Too Large", "The request header is too large.")
            }
            RequestError::Malformed(http1::Malformed::TargetTooLong) => {
                plain!(414, "URI Too Long", "The request target is too long.")
            }
            RequestError::Malformed(_) => {
                plain!(400, "Bad Request", "The request is malformed or ambiguous HTTP/1.1.")
            }
        }
    }
}
