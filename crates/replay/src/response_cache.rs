//! Simulation of the gateway's cache, for logs that do not say what a cache did.
//!
//! The rules are those of the gateway ([`tidegate_http_cache`]), applied to what a log line shows: method, path, query,
//! status and size. A log shows neither cookies nor response fields, so every request counts as one without cookies, and
//! every response as one without `Set-Cookie`, `Vary`, validators and `Cache-Control`, except for the assumed `max-age`.

use super::page_hash::PageHash;
use super::request::ReplayRequest;
use super::response_store::{ResponseStore, StoreUsage, StoredCopy};
use http::Method;
use std::sync::Arc;
use std::time::Duration;
use tidegate_access_log::CLIENT_CLOSED_REQUEST;
use tidegate_config::Settings;
use tidegate_http_cache::invalidation::invalidates;
use tidegate_http_cache::storage::{self, StorageRequest};
use tidegate_http_cache::{CacheResult, RequestDirectives, Reuse};
use tidegate_policy::cache::crowd::CrowdDetector;
use tidegate_policy::cache::{CacheRules, RouteCacheRules, query_filter};
use tidegate_policy::identity::ClientKey;
use tidegate_policy::{Reason, RequestFacts, RouteId, Rules, Timestamp};

/// Cache of one policy.
pub(super) struct ResponseCache {
    rules: Arc<Rules>,
    store: ResponseStore,
    /// Freshness lifetime that the origin states; `None` if it states none.
    max_age: Option<Duration>,
    /// The gateway has responses on disk.
    is_persistent: bool,
    crowds: CrowdDetector,
}

/// Part of the cache in a simulated request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheRole {
    /// None: the route is not cached.
    Unused,
    /// As the log says.
    Logged(LoggedUse),
    /// The request is forwarded, and its response not stored.
    Bypass,
    /// A fresh response is sent.
    Copy(PageHash),
    /// The request is forwarded for the cache.
    Fetch {
        /// Page that is stored.
        page: PageHash,
        /// A stored response may be sent in place of a refusal.
        may_replace_refusal: bool,
    },
}

/// Use of the cache that the log names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoggedUse {
    /// What the cache did.
    pub(super) result: CacheResult,
    /// A stored response answered the request without a cost.
    pub(super) is_free: bool,
    /// A stored response was sent in place of a refusal.
    pub(super) is_replacement: bool,
}

/// Response of the origin, as far as a log shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OriginResponse {
    pub(super) status: u16,
    /// Bytes of the body; `None` if unknown.
    pub(super) body_bytes: Option<u64>,
}

impl CacheRole {
    /// Returns true if the response costs nothing.
    pub(super) fn is_free(self) -> bool {
        matches!(self, Self::Copy(_) | Self::Logged(LoggedUse { is_free: true, .. }))
    }

    /// Returns true if a simulated response is sent, which the log does not know of.
    pub(super) fn is_simulated_copy(self) -> bool {
        matches!(self, Self::Copy(_))
    }

    /// Returns what the cache does for the request, if it is refused for `refusal`, or admitted.
    pub(super) fn result(self, refusal: Option<Reason>) -> Option<CacheResult> {
        match (self, refusal) {
            (Self::Unused, _) => None,
            (Self::Logged(used), Some(reason)) => (used.is_replacement && reason.allows_copy()).then_some(used.result),
            (Self::Logged(used), None) if used.is_replacement => Some(CacheResult::Miss),
            (Self::Logged(used), None) => Some(used.result),
            (Self::Fetch { may_replace_refusal: true, .. }, Some(reason)) if reason.allows_copy() => {
                Some(CacheResult::Stale)
            }
            (Self::Bypass | Self::Copy(_) | Self::Fetch { .. }, Some(_)) => None,
            (Self::Bypass, None) => Some(CacheResult::Bypass),
            (Self::Copy(_), None) => Some(CacheResult::Hit),
            (Self::Fetch { .. }, None) => Some(CacheResult::Miss),
        }
    }
}

impl OriginResponse {
    /// Returns the response to the same request without conditions. The cache sends no conditions of clients.
    pub(super) fn unconditional(status: u16, body_bytes: u64) -> Self {
        match status {
            304 => Self::UNKNOWN,
            status => Self { status, body_bytes: Some(body_bytes) },
        }
    }

    /// A page whose size the log does not tell.
    pub(super) const UNKNOWN: Self = Self { status: 200, body_bytes: None };
}

impl ResponseCache {
    /// Creates the cache of a policy; `None` if it has none. The origin gives its responses the lifetime `max_age`.
    pub(super) fn new(settings: &Settings, max_age: Option<Duration>) -> Option<Self> {
        let size = settings.cache?;
        let store = ResponseStore::new(size.memory.saturating_add(size.disk.unwrap_or_default()));
        let (rules, is_persistent) = (Arc::clone(&settings.rules), size.disk.is_some());
        Some(Self { rules, store, max_age, is_persistent, crowds: CrowdDetector::default() })
    }

    /// Returns the part of the cache in a request for `route` whose logged status is `status`.
    pub(super) fn role(&self, request: &ReplayRequest<'_>, route: RouteId, status: u16, now: Timestamp) -> CacheRole {
        let Some((rules, route)) = self.rules_of(route) else { return CacheRole::Unused };
        if self.rules.read_exemption(request.method, &request.path).is_some() {
            return CacheRole::Unused;
        }
        if !matches!(*request.method, Method::GET | Method::HEAD) {
            return CacheRole::Bypass;
        }
        let page = key(request, rules, route);
        let terms = self.store.get(page).map(StoredCopy::terms);
        // Responses to HEAD and to ranges are not stored.
        let can_store = request.method == Method::GET && status != PARTIAL_CONTENT;
        match terms {
            Some(terms) if terms.reuse(&self.wanted(page, rules, now), now) == Reuse::Fresh => CacheRole::Copy(page),
            _ if !can_store => CacheRole::Bypass,
            terms => {
                let limit = rules.stale_when_refused;
                let may_replace_refusal = terms.is_some_and(|terms| terms.may_replace_refusal(limit, now));
                CacheRole::Fetch { page, may_replace_refusal }
            }
        }
    }

    /// Records that the person `client` sends a request that would cost units.
    pub(super) fn record_person(
        &mut self,
        request: &ReplayRequest<'_>,
        route: RouteId,
        client: ClientKey,
        now: Timestamp,
    ) {
        let Some((rules, route)) = self.rules_of(route) else { return };
        if !rules.crowd_max_age.is_zero() && matches!(*request.method, Method::GET | Method::HEAD) {
            let page = key(request, rules, route);
            self.crowds.record(page.number(), client, now);
        }
    }

    /// Returns how stale a response a request for `page` may have.
    fn wanted(&self, page: PageHash, rules: &CacheRules, now: Timestamp) -> RequestDirectives {
        let is_crowded = !rules.crowd_max_age.is_zero() && self.crowds.is_crowded(page.number(), now);
        let max_stale = if is_crowded { rules.crowd_max_age } else { Duration::ZERO };
        RequestDirectives { max_stale, ..RequestDirectives::default() }
    }

    /// Records that a stored response was sent.
    pub(super) fn record_use(&mut self, page: PageHash) {
        self.store.record_use(page);
    }

    /// Stores the response to an admitted request, which was sent at `now`, or removes what it replaces or invalidates.
    ///
    /// Requests that arrive before the response wait for it, and its lifetime begins with the request, so that it may be
    /// stored at once.
    pub(super) fn record_response(
        &mut self,
        request: &ReplayRequest<'_>,
        (role, route): (CacheRole, RouteId),
        response: OriginResponse,
        now: Timestamp,
    ) {
        match role {
            CacheRole::Fetch { page, .. } => self.record_fetch(page, route, response, now),
            CacheRole::Unused | CacheRole::Bypass => self.invalidate(request, response.status),
            CacheRole::Copy(_) | CacheRole::Logged(_) => {}
        }
    }

    /// Simulates a restart of the gateway.
    pub(super) fn restart(&mut self) {
        if !self.is_persistent {
            self.store.clear();
        }
    }

    /// Returns what is stored.
    pub(super) fn usage(&self) -> StoreUsage {
        self.store.usage()
    }

    fn record_fetch(&mut self, page: PageHash, route: RouteId, response: OriginResponse, now: Timestamp) {
        let Some((rules, route)) = self.rules_of(route) else { return };
        let OriginResponse { status, body_bytes } = response;
        let known_bytes = || self.store.get(page).map(|copy| u64::from(copy.body_bytes));
        let body_bytes = body_bytes.or_else(known_bytes).unwrap_or(UNKNOWN_BODY_BYTES);
        let storage = StorageRequest {
            is_no_store: false,
            has_authorization: false,
            has_cookies: false,
            requested_at: now,
            received_at: now,
            status,
            default_lifetime: self.max_age.or(route.ttl),
            useful_stale: rules.useful_stale(),
        };
        let is_too_large = body_bytes > rules.max_object;
        match storage::terms(&storage, &NO_FIELDS) {
            Ok(terms) if !is_too_large => {
                let body_bytes = u32::try_from(body_bytes).unwrap_or(u32::MAX);
                let (generated_at, lifetime_s) = (terms.generated_at, terms.lifetime_s);
                self.store.insert(page, StoredCopy { generated_at, lifetime_s, body_bytes, is_invalidated: false });
            }
            Err(_) if is_failure(status) => {}
            _ => self.store.remove(page),
        }
    }

    /// Invalidates the response of a page that a request has changed (RFC 9111 section 4.4).
    fn invalidate(&mut self, request: &ReplayRequest<'_>, status: u16) {
        if !invalidates(request.method, status) {
            return;
        }
        let facts = RequestFacts { method: &Method::GET, ..request.facts(self.rules.path_policy) };
        if let Some((rules, route)) = self.rules_of(self.rules.route(&facts)) {
            let page = key(request, rules, route);
            self.store.invalidate(page);
        }
    }

    /// Returns the rules of the cache for a route; `None` if it is not cached.
    fn rules_of(&self, route: RouteId) -> Option<(&CacheRules, &RouteCacheRules)> {
        Some((self.rules.cache.as_ref()?, self.rules[route].cache.as_ref()?))
    }
}

/// Returns the key of a request, as far as a log shows it: host, path as judged, and the parameters that are part of it.
fn key(request: &ReplayRequest<'_>, rules: &CacheRules, route: &RouteCacheRules) -> PageHash {
    let filtered = request
        .query
        .map(|query| query_filter::filter(query, route.key_parameters.as_deref(), &rules.ignored_parameters));
    let page = PageHash::new(request.host, &request.path, filtered.as_deref().filter(|query| !query.is_empty()));
    let parts = route.key_origin.as_deref().into_iter().chain(route.key_conditions.iter().map(AsRef::as_ref));
    parts.fold(page, PageHash::of_origin)
}

/// Returns true for statuses that say nothing of the page: the origin failed or refused the request, or the client left.
fn is_failure(status: u16) -> bool {
    status >= 500 || status == 429 || status == CLIENT_CLOSED_REQUEST
}

/// Status of the response to a range.
const PARTIAL_CONTENT: u16 = 206;

/// Fields of a response in a log.
const NO_FIELDS: [(&str, &str); 0] = [];

/// Bytes of a body of which the log does not tell the size.
pub(super) const UNKNOWN_BODY_BYTES: u64 = 16 * 1024;

#[cfg(test)]
mod tests;
