//! Fields that only the gateway's own log contains.

use smallvec::SmallVec;
use std::borrow::Cow;
use std::time::Duration;
use tidegate_http_cache::CacheResult;
use tidegate_policy::bot_detection::HeadersSeen;
use tidegate_policy::cache::CacheFill;
use tidegate_policy::network_origin::NetworkOrigin;
use tidegate_policy::request_body::JsonMatch;
use tidegate_policy::request_fields::FieldMatch;
use tidegate_policy::switches::{Switch, SwitchEffect};
use tidegate_policy::{Timestamp, Units};

/// Fields that only the gateway's own log contains.
#[derive(Clone, Debug)]
pub struct NativeFields<'a> {
    /// Start time of the gateway process, in microseconds; 0 if not logged.
    pub started_us: u64,
    /// Id of the decision.
    pub id: u64,
    /// Time of settlement, after the response was sent.
    pub settled_at: Timestamp,
    /// Key whose bucket was charged.
    pub key: Cow<'a, str>,
    /// Request headers; empty if they were not examined.
    pub headers_seen: HeadersSeen,
    /// Kind of the client.
    pub kind: &'a str,
    /// Class of the client.
    pub class: Cow<'a, str>,
    /// Session of the client.
    pub session: Option<&'a str>,
    /// Part of the id of the session, in hexadecimal.
    pub session_id: Option<&'a str>,
    /// Autonomous system and country of the client.
    pub network_origin: NetworkOrigin,
    /// Names of the classes whose header fields and cookies the request had.
    pub field_classes: Vec<Cow<'a, str>>,
    /// Key of the customer that paid.
    pub customer: Option<&'a str>,
    /// What the JSON body of the request said; `None` if no route asked for it.
    pub json: Option<JsonMatch>,
    /// Conditions of routes on header fields and cookies that the request met; `None` if it met none.
    pub fields: Option<FieldMatch>,
    /// Evidence for the classification.
    pub evidence: Vec<Cow<'a, str>>,
    /// Quotas of the route.
    pub quotas: SmallVec<[QuotaFields<'a>; 2]>,
    /// Units charged for costs that the route did not expect, by quota.
    pub unexpected_costs: SmallVec<[UnexpectedCostFields<'a>; 2]>,
    /// Reason of the refusal; `None` if the request was admitted.
    pub reason: Option<&'a str>,
    /// Reason of the first rule in shadow mode that would have refused the request.
    pub shadow_reason: Option<&'a str>,
    /// Effect of the switch that applied to the client.
    pub switch: Option<SwitchEffect>,
    /// Reason of a request that the gateway made itself.
    pub fill: Option<CacheFill>,
    /// `Retry-After` sent with the response, in seconds.
    pub retry_after_s: Option<u64>,
    /// Tier of the class.
    pub tier: Option<u8>,
    /// Scope that refused the request.
    pub scope: Option<Cow<'a, str>>,
    /// Time in the wait queue.
    pub scope_wait: Duration,
    /// Response time of the origin; `None` if the request was not sent.
    pub origin_latency: Option<Duration>,
    /// What the cache did; `None` if it did nothing, or there was none.
    pub cache: Option<CacheResult>,
    /// True if a stored response answered the request, which cost nothing.
    pub has_copy: bool,
    /// True if a stored response was sent in place of a refusal.
    pub has_copy_of_refusal: bool,
}

/// A quota after the decision.
#[derive(Clone, Debug)]
pub struct QuotaFields<'a> {
    /// Name of the quota.
    pub quota: Cow<'a, str>,
    /// Expected cost of the request.
    pub cost: Units,
    /// Units charged in the end.
    pub charged: Units,
    /// Units taken after the decision.
    pub used: Units,
    /// Sequence number of the decision on this quota.
    pub sequence: u64,
    /// Sequence number of the settlement, among the decisions and settlements on this quota. In logs of earlier
    /// versions: sequence number of the last decision before it.
    pub settle_sequence: Option<u64>,
    /// Sequence number of the second charge, if a retry was charged.
    pub retry_sequence: Option<u64>,
}

/// Logged charge in a quota in which the route has no cost.
#[derive(Clone, Debug)]
pub struct UnexpectedCostFields<'a> {
    /// Name of the quota.
    pub quota: Cow<'a, str>,
    /// Units charged.
    pub charged: Units,
    /// Sequence number of the settlement on the quota.
    pub settle_sequence: u64,
}

impl NativeFields<'_> {
    /// Returns the switch that applied to the client. Its end is not logged.
    pub fn logged_switch(&self) -> Option<Switch> {
        self.switch.map(|effect| Switch { effect, until: None })
    }

    /// Returns the units charged to `quota`; `None` if the request did not use it.
    pub fn charged(&self, quota: &str) -> Option<Units> {
        self.quotas.iter().find(|account| account.quota == quota).map(|account| account.charged)
    }
}
