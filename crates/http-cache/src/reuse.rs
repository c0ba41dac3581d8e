//! Reuse of a stored response: numbers computed when it was stored, compared with the time of a request (RFC 9111
//! section 4).

use super::Timestamp;
use super::directives::RequestDirectives;
use std::time::Duration;

/// Terms of a stored response: when it may be used, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReuseTerms {
    /// Time at which the origin generated the response: when it was received, less its age then.
    pub generated_at: Timestamp,
    /// Freshness lifetime, in seconds.
    pub lifetime_s: u32,
    /// Seconds after it for which the response may be used while it is validated.
    pub stale_while_revalidate_s: u32,
    /// Seconds after it for which the response may be used if the origin fails; `None` if the origin does not say.
    pub stale_if_error_s: Option<u32>,
    /// The response must be validated each time (`no-cache`).
    pub always_validate: bool,
    /// A write has invalidated the response: it must be validated before it is used as a fresh one. It may replace refusals
    /// and errors as a stale one.
    pub is_invalidated: bool,
    /// The response must not be used stale (`must-revalidate`, `proxy-revalidate`).
    pub never_stale: bool,
    /// The lifetime is that of `s-maxage`, which forbids stale use, except in place of an own refusal.
    pub is_shared_lifetime: bool,
    /// Reloads of clients need no validation while the response is fresh.
    pub is_immutable: bool,
    /// The response is for requests with cookies, too (`public`).
    pub is_public: bool,
    /// The response is for requests with `Authorization`, too.
    pub is_for_authorized: bool,
}

/// Way to use a stored response for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Use it.
    Fresh,
    /// Use it now, and validate it meanwhile.
    StaleWhileRevalidate,
    /// Validate it first.
    Validate,
}

impl ReuseTerms {
    /// Returns the terms of a response that was generated at `generated_at` and states nothing but its lifetime.
    pub const fn of_lifetime(generated_at: Timestamp, lifetime_s: u32) -> Self {
        Self {
            generated_at,
            lifetime_s,
            stale_while_revalidate_s: 0,
            stale_if_error_s: None,
            always_validate: false,
            is_invalidated: false,
            never_stale: false,
            is_shared_lifetime: false,
            is_immutable: false,
            is_public: false,
            is_for_authorized: false,
        }
    }

    /// Returns the age of the response.
    pub fn age(&self, now: Timestamp) -> Duration {
        now.saturating_duration_since(self.generated_at)
    }

    /// Returns the seconds for which the response stays fresh; negative if it is stale.
    pub fn ttl_seconds(&self, now: Timestamp) -> i64 {
        let ttl = i64::from(self.lifetime_s).saturating_sub(i64::try_from(self.age(now).as_secs()).unwrap_or(i64::MAX));
        if self.is_invalidated { ttl.min(0) } else { ttl }
    }

    /// Returns the freshness lifetime.
    pub fn lifetime(&self) -> Duration {
        seconds(self.lifetime_s)
    }

    /// Returns true while the response is fresh.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        !self.is_invalidated && self.age(now) < self.lifetime()
    }

    /// Returns the time for which the response has been stale.
    fn staleness(&self, now: Timestamp) -> Duration {
        self.age(now).saturating_sub(self.lifetime())
    }

    /// Returns true if the response may be used without the origin, at least for some time.
    pub fn is_reusable(&self) -> bool {
        self.lifetime_s > 0 && !self.always_validate
    }

    /// Returns how a request with these directives may use the response.
    pub fn reuse(&self, wanted: &RequestDirectives, now: Timestamp) -> Reuse {
        if self.always_validate || self.is_invalidated {
            return Reuse::Validate;
        }
        let age = self.age(now);
        let is_young_enough = wanted.max_age.is_none_or(|max_age| age <= max_age);
        if self.is_fresh(now) {
            let is_wanted = !wanted.no_cache && is_young_enough && self.lifetime() - age >= wanted.min_fresh;
            return if is_wanted || self.is_immutable { Reuse::Fresh } else { Reuse::Validate };
        }
        if self.never_stale || wanted.no_cache || !is_young_enough || !wanted.min_fresh.is_zero() {
            return Reuse::Validate;
        }
        let staleness = self.staleness(now);
        if staleness < seconds(self.stale_while_revalidate_s) {
            Reuse::StaleWhileRevalidate
        } else if !self.is_shared_lifetime && staleness <= wanted.max_stale && !wanted.max_stale.is_zero() {
            Reuse::Fresh
        } else {
            Reuse::Validate
        }
    }

    /// Returns true if the response may be sent in place of a refusal of the gateway, at most `limit` after its
    /// lifetime. The administrator's `limit` overrides `s-maxage` (RFC 9111 section 4.2.4).
    pub fn may_replace_refusal(&self, limit: Duration, now: Timestamp) -> bool {
        !self.always_validate && (self.is_fresh(now) || (!self.never_stale && self.staleness(now) < limit))
    }

    /// Returns true if the response may be sent after a failure of the origin: as long as it says (RFC 5861 section
    /// 4), else at most `limit` after its lifetime.
    pub fn may_replace_error(&self, limit: Duration, now: Timestamp) -> bool {
        if self.always_validate || self.never_stale {
            return false;
        }
        match self.stale_if_error_s {
            Some(allowed) => self.staleness(now) < seconds(allowed),
            None => !self.is_shared_lifetime && self.staleness(now) < limit,
        }
    }
}

fn seconds(count: u32) -> Duration {
    Duration::from_secs(u64::from(count))
}
