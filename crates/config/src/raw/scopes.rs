//! Raw section `scopes`.

use super::partition::PartitionBy;
use crate::scalars::{Amount, Change, Mark, Span};
use crate::section::{any, positive, section, stored_as_written};
use crate::sections::quotas::Quota;
use crate::serde_forms::{OneOrRange, present_or_default, word_or_keys};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;
use tidegate_policy::Units;

/// Limits of the load on a part of the origin. A request needs a slot in every scope of its route. A scope has at most
/// one of the controllers autothrottle, adaptive_concurrency and rampup. A key with a section and no value, such as
/// `backoff:`, means the defaults of the section.
///
/// The values in use are in `tidegate status`, `tidegate_origin_concurrency_limit` and `tidegate_origin_delay_seconds`.
/// A reload keeps what was learned within the new bounds: no backoff is longer than the new rules allow. A restart
/// resets it.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Scope {
    /// Partition key: one instance of the scope per value of the host (host), the route (route, by its match), a query
    /// parameter ({ query: NAME }), a header ({ header: NAME }) or a path segment ({ path: 1 } is the first). Routes
    /// must name the scope. Default none: one instance.
    ///
    /// Requests without a value, or with two different values, share one instance. a%20b and a+b are one value; hosts
    /// are compared in lower case without port and trailing dot, paths as in routes. `tidegate status` and
    /// /api/v1/state show the busiest values: do not use a header with a secret (Authorization, Proxy-Authorization and
    /// Cookie are refused). Metrics show one series per scope: the sum (in flight, queue length) or the maximum (delay,
    /// backoff).
    pub partition_by: Option<PartitionBy>,
    /// Maximum number of instances, 1 to 1000000, about 0.5 KiB each; requires partition_by. Default 10000.
    ///
    /// Further values share the instance `(others)`; no request is refused for it. A value that gets its own instance
    /// while a request of it is in flight in `(others)` has both until that request ends. An instance is evicted once
    /// it has no request in flight or queued and its pauses are over; its learned state (delay, backoff level) expires
    /// after ten minutes without a request. Clients that choose the value can create this many instances: keep
    /// `default` in the route.
    pub max_partitions: Option<u32>,
    /// Quota with the name of the scope, in the form of an entry of `quotas`. Each request of a route in this scope
    /// costs 1 unit; `cost: { SCOPE: 3 }` or `cost: { SCOPE: 0 }` on a route overrides this. `tidegate quota set`,
    /// tiers, headers and metrics work as for other quotas. Not with partition_by, because the usage is stored
    /// permanently and partitions are not. Default none.
    pub quota: Option<Quota>,
    /// Maximum number of requests in flight, at least 1; a request is in flight until the origin has sent its response.
    /// Default none.
    pub concurrency: Option<u32>,
    /// Slots of the scope that one client may occupy, and the same part of the queue: a share of concurrency (its
    /// current value, if a controller adapts it) or a number, more than 0. The client is the owner of the bucket key;
    /// clients of a class that share a key are told apart by address. With 100%, one client may occupy all slots.
    /// Default a quarter, at least 2.
    pub per_client: Option<Mark>,
    /// Minimum time between two requests. Default none.
    pub delay: Option<Span>,
    /// Minimum time between the starts of two requests in one slot. A slot stays occupied until this time after its
    /// request was sent. Requires concurrency or adaptive_concurrency. Default none.
    pub delay_per_slot: Option<Span>,
    /// Random change of delay: up to this share longer, or a range. `20%` is up to a fifth longer; `[-10%, 30%]` is
    /// from a tenth shorter to three tenths longer. Default 0%.
    pub jitter: Option<OneOrRange<Change>>,
    /// Controller that varies the delay with the latency of the origin, from delay to max_delay. Default none: a fixed
    /// delay.
    ///
    /// Responses from the origin's cache (`Cache-Status: ...; hit`, or `Age`) and routes with sample_latency: false are
    /// ignored. The controller reacts within seconds.
    #[serde(deserialize_with = "present_or_default")]
    pub autothrottle: Option<Autothrottle>,
    /// Controller that varies the concurrency with the latency of the origin: gradient, or { min, max }. Default none:
    /// a fixed concurrency.
    ///
    /// The controller starts with 8 and adjusts every 20 responses, at most ten times a second. While responses take at
    /// most 1.35 times as long as without a queue, the limit rises by up to its square root; beyond that it falls in
    /// proportion, by half at most. Timeouts, broken connections and the statuses of backoff lower it by their share;
    /// other errors have no effect. The limit does not rise while less than half of it is used. Responses from the
    /// origin's cache and routes with sample_latency: false are ignored. If the origin returns 429 beyond a fixed
    /// number, set max near it, or use concurrency.
    #[serde(deserialize_with = "present_or_default")]
    pub adaptive_concurrency: Option<AdaptiveConcurrency>,
    /// Circuit breaker: pauses the scope after overload responses, timeouts and broken connections, or only the client
    /// or route that they concern (min_clients). `backoff:` without a value is the same as `backoff: {}`. If statuses
    /// contains 429, as by default, a 429 of the origin is never forwarded: the client receives a Retry-After with the
    /// backoff. Default none.
    ///
    /// Each consecutive overload multiplies the backoff by factor. After it, one probe request is sent; every response
    /// that is not an overload admits one more concurrent request. The wait that the origin requests is the minimum of
    /// the backoff, up to max_delay: Retry-After (seconds, or a date relative to the origin's Date), else the first
    /// field that reports zero remaining: RateLimit (all drafts), RateLimit-Remaining with -Reset,
    /// X-RateLimit-Remaining with -Reset or -Interval-Seconds. A successful response that reports zero remaining pauses
    /// the scope until the reset, without a probe and without a longer backoff.
    #[serde(deserialize_with = "present_or_default")]
    pub backoff: Option<Backoff>,
    /// Controller that raises the load until overloads occur as often as configured. Requires backoff, and delay or
    /// concurrency as the initial value. Default none.
    ///
    /// The controller varies delay if the scope has one (a tenth to ten times of it, or min_delay to max_delay), else
    /// concurrency (1 to ten times of it, or max_concurrency), by at most a tenth once per backoff.window. It speeds up
    /// only if half of what is allowed is used. Overloads within the target do not lengthen the backoff.
    #[serde(deserialize_with = "present_or_default")]
    pub rampup: Option<Rampup>,
    /// Wait queue of the scope: { max_wait, max_length }. The next free slot goes to the highest priority, in turn over
    /// the clients of that priority; every eighth goes to the request that has waited longest. Set max_length above the
    /// number of requests that a crawler has in flight, and max_wait below the crawler's timeout. Default: a scope with
    /// a limit queues 256 requests for 2 s.
    #[serde(deserialize_with = "present_or_default")]
    pub queue: Option<Queue>,
}

section! {
    /// Controller that varies the delay with the latency of the origin, from delay to max_delay. It falls by half of
    /// the difference with each successful response and rises at once.
    pub(crate) struct Autothrottle {
        /// Number of requests to keep in flight, more than 0; may be below 1, such as 0.5.
        target_concurrency: Units = Units::from_whole(2) => Amount, more_than_zero;
        /// Initial delay between two requests, at most max_delay.
        start_delay: Duration = Duration::ZERO => Span, any;
        /// Maximum delay between two requests, at least delay.
        max_delay: Duration = Duration::from_secs(5) => Span, positive;
        /// Statuses that may shorten the delay. Others may only lengthen it, because errors are often faster than other
        /// responses. Default 200 to 299 and 304.
        success_statuses: Vec<u16>;
        /// true: logs the effect of every response on the delay.
        log_adjustments: bool = false => bool, any;
    }
}

/// Controller that varies the concurrency with the latency of the origin. It rises while responses take as long as
/// without a queue, and falls with longer latency, timeouts and overloads.
#[derive(Clone, Debug, Default)]
pub(crate) struct AdaptiveConcurrency(pub ConcurrencyBounds);

section! {
    /// Bounds of the concurrency.
    pub(crate) struct ConcurrencyBounds {
        /// Minimum concurrency, at least 1.
        min: u32 = 1 => u32, positive;
        /// Maximum concurrency, at most the scope's concurrency. Default the scope's concurrency, or else 256.
        max: Option<u32> = None => u32, positive;
    }
}

word_or_keys! {
    AdaptiveConcurrency, "a concurrency controller; use gradient, or { min: 2, max: 64 }":
    "gradient" => Self::default(),
    ConcurrencyBounds => Self
}

section! {
    /// Circuit breaker of a scope. After the backoff, one probe request is sent; every response that is not an overload
    /// admits one more concurrent request.
    pub(crate) struct Backoff {
        /// Statuses that count as overload; timeouts, broken connections and aborted responses always do. Default: 429,
        /// 502, 503, 504 and 520 to 524.
        statuses: Vec<u16>;
        /// Factor by which each consecutive backoff grows, at least 1.
        factor: u32 = 2 => u32, positive;
        /// First backoff, more than 0.
        min_delay: Duration = Duration::from_secs(1) => Span, positive;
        /// Longest backoff, even if the origin requests more by Retry-After, or by RateLimit or X-RateLimit fields that
        /// report zero remaining. At least min_delay.
        max_delay: Duration = Duration::from_secs(300) => Span, any;
        /// Random change of the backoff: up to this share longer (`10%`), or a range (`[-10%, 30%]`); never below the
        /// origin's Retry-After.
        jitter: OneOrRange<Change> = OneOrRange::One(Change(0.1)) => OneOrRange<Change>, any;
        /// Time without overload that lowers the backoff level by one, more than 0; overload older than this is no
        /// evidence.
        window: Duration = Duration::from_secs(60) => Span, positive;
        /// Number of clients, of as many networks (/24, or /48 for IPv6), whose overload responses pause the scope,
        /// more than 0. Overload of fewer clients pauses only these clients or their network, and overload of one route
        /// while others succeed only this route. An origin that cannot be reached pauses the scope at once. With 1, any
        /// overload response pauses the scope: for an origin whose limits count the gateway as a single client.
        min_clients: u32 = 3 => u32, positive;
    }
}

section! {
    /// Controller that raises the load until overloads occur as often as configured. Once per backoff.window it
    /// compares the number of overloads with the target: below it, the load rises by a step if at least half of what is
    /// allowed was used; above it, the load falls by a step. It varies delay if the scope has one, else concurrency.
    pub(crate) struct Rampup {
        /// Target number of overloads per backoff.window: a number, at least 1, or `[min, max]`.
        target_overloads: OneOrRange<u32> = OneOrRange::One(1) => OneOrRange<u32>, not_empty;
        /// Maximum concurrency, at least concurrency; without delay only. Default ten times concurrency.
        max_concurrency: Option<u32> = None => u32, positive;
        /// Shortest delay between two requests, more than 0 and at most delay; with delay only. Default a tenth of
        /// delay.
        min_delay: Option<Duration> = None => Span, positive;
        /// Longest delay between two requests, at least delay; with delay only. Default ten times delay.
        max_delay: Option<Duration> = None => Span, any;
    }
}

section! {
    /// Wait queue of a scope.
    pub(crate) struct Queue {
        /// Longest wait; a request that would wait longer is refused at once. 0s: no queue.
        max_wait: Duration = Duration::from_secs(2) => Span, any;
        /// Maximum number of waiters, at least 1.
        max_length: u32 = 256 => u32, positive;
    }
}

stored_as_written!(OneOrRange<Change>, OneOrRange<u32>);

fn more_than_zero(Amount(target): &Amount, _: Option<&Amount>) -> Option<String> {
    let hint = "write a number such as 2, or 0.5 for as much idle time as work";
    target.is_zero().then(|| format!("found 0, needs more than 0; {hint}"))
}

fn not_empty(target: &OneOrRange<u32>, _: Option<&OneOrRange<u32>>) -> Option<String> {
    let is_empty = target.bounds().is_empty() || *target.bounds().end() == 0;
    let hint = "write a number such as 1, or [1, 3] with the minimum first";
    is_empty.then(|| format!("invalid target: the range is empty; {hint}"))
}
