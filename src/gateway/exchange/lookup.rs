//! The cache in the life of a request: which stored response it may use, who fetches one that is missing, and the
//! response made from a copy.

use super::answer::compress::encode_not_modified;
use super::answer::head::prepare_copy;
use super::answer::tunnel::wanted_protocol;
use super::client_connection::RequestHandler;
use super::within;
use crate::gateway::cache::CacheKey;
use crate::gateway::cache::{
    CacheEntry, CacheFetch, CopyBody, FetchEnd, FetchGuard, FetchRole, FetchRules, FetchWaiter, MessageFields,
    StoredResponse, UrlKey, Variants, load,
};
use crate::gateway::exchange::journal::RequestContext;
use crate::gateway::exchange::problem::Problem;
use crate::gateway::exchange::response_body::ResponseBody;
use crate::gateway::exchange::site::Site;
use crate::gateway::exchange::target::ClientRequest;
use crate::gateway::transport::connection_memory::{MemoryCharge, REQUEST};
use crate::gateway::upstream::RequestBody;
use crate::gateway::worker::CurrentConfig;
use http::{Method, StatusCode};
use std::fmt::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tidegate_engine::{AcquireOutcome, Classified};
use tidegate_http_cache::range::{RequestedRange, may_be_range, requested_range};
use tidegate_http_cache::validation::{allows_range, has_origin_condition, is_not_modified, is_sent_in_304};
use tidegate_http_cache::{CacheResult, CacheStatus, ForwardReason, HitDetail, RequestDirectives, Reuse};
use tidegate_http1::{Fields, Name, Response};
use tidegate_policy::identity::{ClientAddress, ClientKey};
use tidegate_policy::{Reason, RouteId, Timestamp};

/// Longest wait for the fetches of others, as a multiple of the time that one may take.
const PATIENCE_FACTOR: u32 = 2;

/// Most entries that are read from disk for one request: that of the URL, those of responses that its sets of fields
/// select, and some that took the place of one of them meanwhile.
const MAX_LOADS: usize = 12;

/// Maximum wait of a request for a read from disk. A disk that takes longer counts as one without the response.
const MAX_DISK_WAIT: Duration = Duration::from_secs(2);

/// Part of the cache in a request.
pub(in crate::gateway) enum CacheRole {
    /// None: the route is not cached.
    Unused,
    /// The request is forwarded, and its response not stored. The stored response may be sent in place of a refusal.
    Bypass(ForwardReason, Option<Arc<StoredResponse>>),
    /// A stored response is sent.
    Copy(Arc<StoredResponse>, CopyReason),
    /// A stored response is sent, and this request validates it meanwhile.
    CopyAndFetch(Arc<StoredResponse>, Box<CacheFetch>),
    /// The request is forwarded for the cache.
    Fetch(Box<CacheFetch>),
    /// The client wants a stored response, and there is none.
    OnlyIfCached,
    /// Others fetch the response, and have not received it in time.
    Overdue,
}

/// Reason for which a stored response is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum CopyReason {
    /// It may be used for the request.
    Reusable,
    /// Another request fetched it while this one waited.
    Collapsed(ForwardReason),
    /// The gateway would have refused the request.
    Refused,
    /// The origin failed.
    Error,
    /// The origin confirmed it.
    Validated,
}

/// What the store has for a request.
struct Found {
    variants: Option<Arc<Variants>>,
    copy: Option<(CacheKey, Arc<StoredResponse>)>,
    reason: ForwardReason,
    /// Requests for the URL do not wait for each other.
    is_pass: bool,
}

/// An entry that is not in memory.
struct OnDisk(CacheKey);

/// Whom a stored response must be for.
#[derive(Clone, Copy)]
struct RequestCredentials {
    /// The request has cookies that are no part of the key.
    has_cookies: bool,
    has_authorization: bool,
}

impl RequestCredentials {
    fn is_any(self) -> bool {
        self.has_cookies || self.has_authorization
    }
}

/// A request as the cache reads it.
struct CacheLookup {
    url: UrlKey,
    credentials: RequestCredentials,
    wanted: RequestDirectives,
    /// The response may be stored: GET, without a range.
    can_store: bool,
    client: ClientKey,
    /// Time that the fetch of another request may take before one of those that wait takes it over.
    patience: Duration,
    /// Longest staleness of a response in place of an error.
    stale_if_error: Duration,
    /// The connection to the origin names the client.
    names_clients: bool,
}

impl CacheRole {
    /// Returns true if the response costs nothing.
    pub(in crate::gateway) fn is_free(&self) -> bool {
        matches!(self, Self::Copy(..) | Self::OnlyIfCached | Self::Overdue)
    }

    /// Returns the stored response that may replace a refusal for `reason`.
    pub(in crate::gateway) fn replacement(
        &self,
        reason: Reason,
        limit: Duration,
        now: Timestamp,
    ) -> Option<Arc<StoredResponse>> {
        let copy = match self {
            Self::Copy(copy, _) | Self::CopyAndFetch(copy, _) => copy,
            Self::Fetch(fetch) => &fetch.copy.as_ref()?.1,
            Self::Bypass(_, Some(copy)) => copy,
            Self::Unused | Self::Bypass(_, None) | Self::OnlyIfCached | Self::Overdue => return None,
        };
        (reason.allows_copy() && copy.terms().may_replace_refusal(limit, now)).then(|| Arc::clone(copy))
    }

    /// Returns the fetch of a refused request that may ask the origin's own cache. Others do not wait for it.
    pub(in crate::gateway) fn fetch_for_origin_cache(self, context: &RequestContext) -> Option<Box<CacheFetch>> {
        let reason = context.decision().verdict.refusal()?.reason;
        let (current, route, now) = (context.current(), context.evaluation().route, context.started_at());
        match self {
            Self::Fetch(mut fetch) if reason.allows_copy() && current.trusts_origin_cache(route, now) => {
                fetch.hand_over();
                Some(fetch)
            }
            _ => None,
        }
    }
}

impl RequestHandler {
    /// Returns the part of the cache in a request. Waits if another request fetches the response. `now` is the time; it is
    /// read again after a wait.
    pub(in crate::gateway) async fn cache_role(
        &self,
        request: &ClientRequest,
        classified: &Classified,
        client_address: &ClientAddress,
        current: &CurrentConfig,
        now: &mut Timestamp,
    ) -> CacheRole {
        let rules = &current.settings.rules;
        let Some(fetch_rules) = self.fetch_rules(current, classified.route) else { return CacheRole::Unused };
        let FetchRules { rules: cache_rules, route, .. } = fetch_rules;
        let head = &request.head;
        let lines = MessageFields(&head.fields);
        if !matches!(head.method, Method::GET | Method::HEAD) {
            return CacheRole::Bypass(ForwardReason::Method, None);
        }
        // An upgrade that is ignored, as the one to h2c of every Java client, changes nothing.
        let is_upgrade = wanted_protocol(head, request.has_body).is_some();
        if request.has_body || has_origin_condition(&lines) || is_upgrade {
            return CacheRole::Bypass(ForwardReason::Bypass, None);
        }
        let wanted = RequestDirectives::read(&lines);
        let may_reload = cache_rules.reload.includes(classified.classification.kind);
        let wanted = if may_reload { wanted } else { wanted.without_reload() };
        let site = Site::from_head(head, self.is_https(&rules.trust, &head.fields));
        let credentials = RequestCredentials {
            has_cookies: has_cookies(&head.fields) && route.key_cookies.is_none(),
            has_authorization: head.fields.contains(Name::Authorization),
        };
        // The address that the origin is sent, not the one that the client claims.
        let mut with_address = None;
        if fetch_rules.is_keyed_by_address() {
            let fields: &mut Fields = with_address.insert(head.fields.clone());
            self.write_client_address(fields, client_address);
        }
        let fields = with_address.as_ref().unwrap_or(&head.fields);
        let (path, query) = (request.origin_path(), head.target.query());
        let url = UrlKey::for_request(&site, path, query, fields, fetch_rules);
        let patience = current.settings.response_timeout(classified.route);
        let mut found = match self.find(&url, fields, credentials, &[], *now) {
            Ok(found) => found,
            Err(OnDisk(_)) => {
                let found = Box::pin(self.find_copy(&url, fields, credentials)).await;
                *now = self.worker.now();
                found
            }
        };
        if let Some((key, copy)) = &found.copy {
            let variants = found.variants.as_ref().map(|_| url.key);
            self.worker.shared().cache.store.record_use((*key, variants), copy, classified.key);
        }
        if let Some((_, copy)) = found.copy.take_if(|(_, copy)| copy.terms().reuse(&wanted, *now) == Reuse::Fresh) {
            return CacheRole::Copy(copy, CopyReason::Reusable);
        }
        let can_store = head.method == Method::GET && !head.fields.all(Name::Range).any(may_be_range);
        let (client, stale_if_error) = (classified.key, cache_rules.stale_if_error);
        let names_clients = fetch_rules.names_clients;
        let lookup =
            CacheLookup { url, credentials, wanted, can_store, client, patience, stale_if_error, names_clients };
        // Boxed to keep the future of requests with a copy small.
        let role = Box::pin(self.fetch_or_wait(fields, lookup, found)).await;
        *now = self.worker.now();
        role
    }

    /// Returns the part of the cache in a request without a fresh copy.
    async fn fetch_or_wait(&self, fields: &Fields, lookup: CacheLookup, mut found: Found) -> CacheRole {
        let CacheLookup { url, credentials, wanted, can_store, client, patience, stale_if_error, names_clients } =
            lookup;
        let worker = &self.worker;
        let cache = &worker.shared().cache;
        // A request that waits occupies as much memory as one that is forwarded.
        let _memory = MemoryCharge::new(self.connection_state.memory(), REQUEST + fields.memory());
        let end_of_patience = worker.monotonic_now() + patience * PATIENCE_FACTOR;
        let mut waited = None;
        loop {
            let reuse = found.reuse(&wanted, worker.now());
            if let Some((copy, Reuse::Fresh)) = reuse {
                return CacheRole::Copy(copy, waited.map_or(CopyReason::Reusable, CopyReason::Collapsed));
            }
            if wanted.only_if_cached {
                return CacheRole::OnlyIfCached;
            }
            let reason = found.forward_reason(worker.now());
            let stale_use = reuse.and_then(|(copy, reuse)| (reuse == Reuse::StaleWhileRevalidate).then_some(copy));
            if !can_store {
                let bypass = || CacheRole::Bypass(reason, found.copy.as_ref().map(|(_, copy)| Arc::clone(copy)));
                return stale_use.map_or_else(bypass, |copy| CacheRole::Copy(copy, CopyReason::Reusable));
            }
            cache.record_fetch(&url);
            let is_shared = found.is_shared() && !credentials.is_any();
            let mut fetch =
                Box::new(CacheFetch::new(url.clone(), found.variants.clone(), found.copy.clone(), reason, &wanted));
            fetch.is_personal = credentials.is_any() && found.copy.is_none();
            fetch.is_refused_without_client = found.is_pass && names_clients;
            (fetch.had_cookies, fetch.had_authorization) = (credentials.has_cookies, credentials.has_authorization);
            if !is_shared || wanted.no_store {
                return CacheRole::Fetch(fetch);
            }
            match (cache.fetches.acquire(fetch.lock_key(fields), client, worker.monotonic_now()), stale_use) {
                (FetchRole::Fetch(guard), stale_use) => {
                    // Another request may have stored the response since.
                    let again = self.find_copy(&url, fields, credentials).await;
                    if let Some((copy, Reuse::Fresh)) = again.reuse(&wanted, worker.now()) {
                        guard.end(FetchEnd::Stored);
                        return CacheRole::Copy(copy, CopyReason::Reusable);
                    }
                    fetch.guard = Some(guard);
                    return match stale_use {
                        None => CacheRole::Fetch(fetch),
                        Some(copy) => CacheRole::CopyAndFetch(copy, fetch),
                    };
                }
                (FetchRole::Wait(_), Some(copy)) => return CacheRole::Copy(copy, CopyReason::Reusable),
                (FetchRole::Wait(waiter), None) => {
                    match self.wait_for_fetch(&waiter, patience, end_of_patience).await {
                        Some(Ok(FetchEnd::Stored)) => waited = Some(reason),
                        Some(Err(guard)) => {
                            fetch.guard = Some(guard);
                            return CacheRole::Fetch(fetch);
                        }
                        Some(Ok(FetchEnd::Unshared)) => return CacheRole::Fetch(fetch),
                        None => {
                            let now = worker.now();
                            let copy = found.copy.map(|(_, copy)| copy);
                            let copy = copy.filter(|copy| copy.terms().may_replace_error(stale_if_error, now));
                            return copy.map_or(CacheRole::Overdue, |copy| CacheRole::Copy(copy, CopyReason::Error));
                        }
                    }
                }
            }
            found = self.find_copy(&url, fields, credentials).await;
        }
    }

    /// Waits for the end of another request's fetch. Returns a guard if this request takes it over, because it was left or
    /// has taken `patience`, and `None` at `end_of_patience`.
    async fn wait_for_fetch(
        &self,
        waiter: &FetchWaiter,
        patience: Duration,
        end_of_patience: Timestamp,
    ) -> Option<Result<FetchEnd, FetchGuard>> {
        let clock = || self.worker.monotonic_now();
        loop {
            let now = clock();
            if let Some(guard) = waiter.take_over_late(patience, now) {
                return Some(Err(guard));
            }
            if now >= end_of_patience {
                return None;
            }
            let wait = waiter.time_left(patience, now).min(end_of_patience.saturating_duration_since(now));
            let deadline = self.worker.upstream().new_deadline(wait);
            if let Some(end) = within(&deadline, waiter.wait(clock)).await {
                return Some(end);
            }
        }
    }

    /// Returns what the store has for a request. What is on disk is read first.
    async fn find_copy(&self, url: &UrlKey, fields: &Fields, credentials: RequestCredentials) -> Found {
        let cache = &self.worker.shared.cache;
        let deadline = self.worker.upstream().new_deadline(MAX_DISK_WAIT);
        let mut loaded = Vec::new();
        loop {
            let OnDisk(key) = match self.find(url, fields, credentials, &loaded, self.worker.now()) {
                Ok(found) => return found,
                Err(_) if loaded.len() == MAX_LOADS => return Found::nothing(),
                Err(on_disk) => on_disk,
            };
            let Some(entry) = within(&deadline, load(cache, key)).await else { return Found::nothing() };
            loaded.push((key, entry));
        }
    }

    /// Returns what the store has for a request, or the key of what has to be read from disk. `loaded` was read from disk
    /// for this request; memory may have no space for it.
    fn find(
        &self,
        url: &UrlKey,
        fields: &Fields,
        credentials: RequestCredentials,
        loaded: &[(CacheKey, Option<CacheEntry>)],
        now: Timestamp,
    ) -> Result<Found, OnDisk> {
        let store = &self.worker.shared().cache.store;
        let get = |key| match (store.get(key), loaded.iter().find(|(loaded, _)| *loaded == key)) {
            (Some(entry), _) => Ok(Some(entry)),
            (None, Some((_, entry))) => Ok(entry.clone()),
            (None, None) if store.is_on_disk(key) => Err(OnDisk(key)),
            (None, None) => Ok(None),
        };
        let mut found = Found::nothing();
        let mut key = url.key;
        let mut entry = get(key)?;
        if let Some(CacheEntry::Variants(variants)) = entry {
            (key, entry) = match variants.find(url.key, fields, now, get)? {
                Some((key, entry)) => (key, Some(entry)),
                None => (key, None),
            };
            found.variants = Some(variants);
            found.reason = ForwardReason::VaryMiss;
        }
        match entry {
            // Its next request fetches it again.
            Some(CacheEntry::Response(copy)) if copy.body.is_damaged() => store.remove(key),
            // Equal keys of different URLs would mix the pages of clients.
            Some(CacheEntry::Response(copy)) if *copy.url == *url.url => {
                let is_written = found.variants.as_ref().is_some_and(|all| all.is_written_since(copy.requested_at));
                if is_written || self.is_invalidated(url, &copy) {
                    copy.invalidate();
                }
                match copy.is_for(credentials.has_cookies, credentials.has_authorization) {
                    true => found.copy = Some((key, copy)),
                    false => found.reason = ForwardReason::Bypass,
                }
            }
            Some(CacheEntry::Pass { until, .. }) => found.is_pass = now < until,
            _ => {}
        }
        Ok(found)
    }

    /// Returns the response that another request fetched while this one waited for slots.
    pub(in crate::gateway) fn copy_fetched_by_others(
        &self,
        context: &RequestContext,
    ) -> Option<(Arc<StoredResponse>, ForwardReason)> {
        let fetch = context.fetch().filter(|fetch| fetch.is_handed_over)?;
        let credentials =
            RequestCredentials { has_cookies: fetch.had_cookies, has_authorization: fetch.had_authorization };
        let now = self.worker.now();
        let found = self.find(&fetch.url, context.client_fields(), credentials, &[], now).ok()?;
        let (_, copy) = found.copy?;
        (copy.terms().is_fresh(now) && !copy.terms().always_validate).then_some((copy, fetch.reason))
    }

    /// Returns true if a write invalidated a response that is not found by its URL alone.
    fn is_invalidated(&self, url: &UrlKey, copy: &StoredResponse) -> bool {
        !url.is_plain() && self.worker.shared().cache.invalidations.includes(|| url.plain(), copy.requested_at)
    }

    /// Remembers that the response of a fetch was not for others, so that the next requests do not wait for each other.
    /// `fields` are those of the client.
    pub(in crate::gateway) fn remember_unshared(&self, fetch: &mut CacheFetch, fields: &Fields) {
        let store = &self.worker.shared().cache.store;
        if fetch.copy.is_none() {
            let key = fetch.lock_key(fields);
            // Other responses of the URL stay where they are found.
            if !matches!(store.get(key), Some(CacheEntry::Response(_) | CacheEntry::Variants(_))) {
                store.insert(key, CacheEntry::pass(&fetch.url.url, self.worker.now()));
            }
        }
        if let Some(guard) = fetch.guard.take() {
            guard.end(FetchEnd::Unshared);
        }
    }

    /// Responds that there is no stored response for a client that wants no other (RFC 9111 section 5.2.1.7).
    pub(in crate::gateway) fn respond_only_if_cached(&self, context: Box<RequestContext>) -> Response<ResponseBody> {
        self.respond_with_problem(context, Problem::only_if_cached())
    }

    /// Responds that the fetch of others, for which the request waited, takes too long.
    pub(in crate::gateway) fn respond_overdue(&self, context: Box<RequestContext>) -> Response<ResponseBody> {
        let (wait, spread) = (context.current().settings.origin.response_timeout, context.retry_after_spread());
        self.respond_with_problem(context, Problem::fetch_overdue(wait, spread))
    }

    /// Responds with a stored response.
    pub(in crate::gateway) fn respond_from_copy(
        &self,
        mut context: Box<RequestContext>,
        copy: &StoredResponse,
        reason: CopyReason,
    ) -> Response<ResponseBody> {
        // A reusable copy was found just before the decision.
        let now = if reason == CopyReason::Reusable { context.started_at() } else { self.worker.now() };
        let is_stale = !copy.terms().is_fresh(now) && reason != CopyReason::Validated;
        context.set_cache_result(match reason {
            CopyReason::Validated => CacheResult::Revalidated,
            _ if is_stale => CacheResult::Stale,
            _ => CacheResult::Hit,
        });
        // A refused request would have cost nothing; a confirmed copy was counted with its charge.
        if !matches!(reason, CopyReason::Validated | CopyReason::Refused) {
            context.count_saved_units();
        }
        if !context.is_fill() {
            copy.usage.record(context.evaluation().classification.class, context.saved_units());
        }
        let (status, fields, mut body) = self.copy_response(&context, copy, reason, now);
        let body = match body.take_small() {
            Some(bytes) => {
                context.finish_local_response(status, bytes.len() as u64);
                ResponseBody::full(bytes)
            }
            None => {
                context.begin_response(status);
                ResponseBody::stored(body, context)
            }
        };
        Response { status, fields, body }
    }

    /// Responds with a stale response, and validates it on behalf of all without letting the client wait (RFC 5861
    /// section 3). The request pays for the validation.
    pub(in crate::gateway) fn respond_while_revalidating(
        self: Rc<Self>,
        mut context: Box<RequestContext>,
        copy: &StoredResponse,
        fetch: Box<CacheFetch>,
    ) -> Response<ResponseBody> {
        let now = self.worker.now();
        let (status, fields, mut body) = self.copy_response(&context, copy, CopyReason::Reusable, now);
        let length = body.len();
        let body = match body.take_small() {
            Some(bytes) => ResponseBody::full(bytes),
            None => ResponseBody::stored_of_completed(body, &context),
        };
        context.set_cache_result(CacheResult::Stale);
        context.begin_response(status);
        context.add_body_bytes(length);
        context.disconnect(false);
        context.set_fetch(fetch);
        let handler = Rc::clone(&self);
        self.worker.run_detached(async move { handler.revalidate(context).await });
        Response { status, fields, body }
    }

    /// Validates a stored response in the background.
    async fn revalidate(self: Rc<Self>, mut context: Box<RequestContext>) {
        let slots = match self.acquire_slots(&context) {
            AcquireOutcome::Acquired(slots) => Some(slots),
            AcquireOutcome::Rejected(_) => None,
            AcquireOutcome::Queued(queued) => self.wait_for_slot_of_fetch(queued, &mut context).await.ok().map(Some),
        };
        match slots {
            // Dropping the response stores the rest of its body.
            Some(slots) => drop(self.forward(RequestBody::Empty, context, slots).await),
            None => {
                context.settle_unknown();
                context.finish();
            }
        }
    }

    /// Returns status, fields and body of the response that `copy` is to the request.
    fn copy_response(
        &self,
        context: &RequestContext,
        copy: &StoredResponse,
        reason: CopyReason,
        now: Timestamp,
    ) -> (StatusCode, Fields, CopyBody) {
        let head = &context.client_request().head;
        let client_fields = context.client_fields();
        let request = MessageFields(client_fields);
        let mut fields = copy.head.fields();
        let length = copy.body.len();
        let is_ok = copy.head.status == StatusCode::OK;
        let mut digits = itoa::Buffer::new();
        let is_condition = |name| matches!(name, Name::IfNoneMatch | Name::IfModifiedSince);
        let is_conditional = is_ok && client_fields.names().any(is_condition);
        let (status, body) = if is_conditional && is_not_modified(&request, &MessageFields(&fields)) {
            fields.retain(|field| is_sent_in_304(&String::from_utf8_lossy(field.text).to_ascii_lowercase()));
            encode_not_modified(context, &mut fields);
            (StatusCode::NOT_MODIFIED, CopyBody::none())
        } else if let Some(body) = self.encode_copy(context, copy, &mut fields) {
            if head.method == Method::HEAD {
                fields.append(Name::ContentLength, digits.format(body.len()).as_bytes());
                (copy.head.status, CopyBody::none())
            } else {
                (copy.head.status, body)
            }
        } else if head.method == Method::HEAD {
            fields.append(Name::ContentLength, digits.format(length).as_bytes());
            (copy.head.status, CopyBody::none())
        } else {
            let range =
                client_fields.get(Name::Range).filter(|_| is_ok && allows_range(&request, &MessageFields(&fields)));
            match range.map_or(RequestedRange::Whole, |value| requested_range(value, length)) {
                RequestedRange::Whole => (copy.head.status, copy.body.range(0, length)),
                RequestedRange::Part { first, last } => {
                    fields.append_with(Name::ContentRange, |text| write!(text, "bytes {first}-{last}/{length}"));
                    (StatusCode::PARTIAL_CONTENT, copy.body.range(first, last + 1))
                }
                RequestedRange::Unsatisfiable => {
                    fields.append_with(Name::ContentRange, |text| write!(text, "bytes */{length}"));
                    (StatusCode::RANGE_NOT_SATISFIABLE, CopyBody::none())
                }
            }
        };
        // Before the gateway's own fields, which no change concerns.
        prepare_copy(context, status, &mut fields);
        fields.append(Name::Age, digits.format(copy.terms().age(now).as_secs()).as_bytes());
        let ttl = copy.terms().ttl_seconds(now);
        let cache_status = match reason {
            CopyReason::Reusable => CacheStatus::Hit { ttl, detail: None },
            CopyReason::Collapsed(reason) => CacheStatus::Collapsed { reason },
            CopyReason::Refused => CacheStatus::Hit { ttl, detail: Some(HitDetail::Refused) },
            CopyReason::Error => CacheStatus::Hit { ttl, detail: Some(HitDetail::Error) },
            CopyReason::Validated => {
                CacheStatus::Forward { reason: ForwardReason::Stale, status: Some(304), stored: Some(Ok(())) }
            }
        };
        fields.append_with(Name::CacheStatus, |text| write!(text, "{cache_status}"));
        (status, fields, body)
    }

    /// Returns the rules of the cache for `route`; `None` if it is not cached.
    pub(in crate::gateway) fn fetch_rules<'a>(
        &'a self,
        current: &'a CurrentConfig,
        route: RouteId,
    ) -> Option<FetchRules<'a>> {
        let rules = &current.settings.rules;
        let route = &rules[route];
        Some(FetchRules {
            rules: rules.cache.as_ref()?,
            route: route.cache.as_ref()?,
            is_compressed: rules.compression.is_some() && route.is_compressed,
            address_header: rules.trust.source.header(),
            names_clients: current.settings.origin.proxy_protocol.is_some(),
        })
    }
}

/// Returns true if the request has a cookie: a field without one has no effect.
fn has_cookies(fields: &Fields) -> bool {
    fields.all(Name::Cookie).any(|line| line.iter().any(|byte| !matches!(byte, b';' | b' ' | b'\t')))
}

impl Found {
    /// Returns that the store has nothing for the request.
    fn nothing() -> Self {
        Self { variants: None, copy: None, reason: ForwardReason::UriMiss, is_pass: false }
    }

    fn reuse(&self, wanted: &RequestDirectives, now: Timestamp) -> Option<(Arc<StoredResponse>, Reuse)> {
        let (_, copy) = self.copy.as_ref()?;
        Some((Arc::clone(copy), copy.terms().reuse(wanted, now)))
    }

    /// Returns the reason for which the request is forwarded.
    fn forward_reason(&self, now: Timestamp) -> ForwardReason {
        match &self.copy {
            Some((_, copy)) if copy.terms().is_fresh(now) && !copy.terms().always_validate => ForwardReason::Request,
            Some(_) => ForwardReason::Stale,
            None => self.reason,
        }
    }

    /// Returns true if the response is probably for others, too, so that they wait for it.
    fn is_shared(&self) -> bool {
        !self.is_pass && self.copy.as_ref().is_none_or(|(_, copy)| copy.terms().is_reusable())
    }
}
