//! What the cache has for a request: a stored response that it may use, or who fetches one that is missing.

use super::answer::tunnel::wanted_protocol;
use super::cache_trip::CopyReason;
use super::client_connection::ClientConnection;
use super::journal::Journal;
use super::known::Known;
use super::origin_head::selecting_fields;
use super::within;
use crate::gateway::cache::{
    CacheEntry, CacheFetch, CacheKey, FetchEnd, FetchGuard, FetchRole, FetchRules, FetchWaiter, MessageFields,
    RequestCredentials, StoredResponse, UrlKey, Variants, load,
};
use crate::gateway::message::site::Site;
use crate::gateway::transport::connection_memory::{MemoryCharge, REQUEST};
use crate::gateway::worker::Worker;
use http::Method;
use std::sync::Arc;
use std::time::Duration;
use tidegate_http_cache::range::may_be_range;
use tidegate_http_cache::validation::has_origin_condition;
use tidegate_http_cache::{ForwardReason, RequestDirectives, Reuse};
use tidegate_http1::{Fields, Name};
use tidegate_policy::identity::ClientKey;
use tidegate_policy::request_fields::FieldMatch;
use tidegate_policy::{ClientKind, Reason, Timestamp};

/// Longest wait for the fetches of others, as a multiple of the time that one may take. Also that for a request of the gateway
/// itself.
pub(super) const PATIENCE_FACTOR: u32 = 2;

/// Most entries that are read from disk for one request: that of the URL, those of responses that its sets of fields
/// select, and some that took the place of one of them meanwhile.
const MAX_LOADS: usize = 12;

/// Maximum wait of a request for a read from disk. A disk that takes longer counts as one without the response.
const MAX_DISK_WAIT: Duration = Duration::from_secs(2);

/// Part of the cache in a request.
pub(in crate::gateway) enum CacheRole {
    /// None: the route is not cached, or the gateway itself answers.
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
    /// A crowd requests the URL.
    is_crowded: bool,
}

impl CacheRole {
    /// Returns the role of a copy that may be used at `now`.
    fn reusable(copy: Arc<StoredResponse>, is_crowded: bool, now: Timestamp) -> Self {
        let is_for_crowd = is_crowded && !copy.terms().is_fresh(now);
        Self::Copy(copy, if is_for_crowd { CopyReason::Crowd } else { CopyReason::Reusable })
    }

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
    pub(in crate::gateway) fn fetch_for_origin_cache(self, journal: &Journal) -> Option<Box<CacheFetch>> {
        let reason = journal.verdict.refusal()?.reason;
        let (config, route, now) = (&journal.known.config, journal.known.classified.route, journal.origin.decided_at);
        match self {
            Self::Fetch(mut fetch) if reason.allows_copy() && config.trusts_origin_cache(route, now) => {
                fetch.hand_over();
                Some(fetch)
            }
            _ => None,
        }
    }
}

/// Returns the part of the cache in a request. Waits if another request fetches the response. `now` is the time; it is
/// read again after a wait.
pub(in crate::gateway) async fn cache_role(known: &Known, now: &mut Timestamp) -> CacheRole {
    let Known { request, classified, config, .. } = known;
    let Some(fetch_rules) = FetchRules::of_route(&config.settings, classified.route) else { return CacheRole::Unused };
    let FetchRules { rules: cache_rules, route, .. } = fetch_rules;
    // Others must not wait for it like for the fetch of a page: robots.txt has a cache of its own.
    if known.is_for_gateway() {
        return CacheRole::Unused;
    }
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
    let mut wanted = if may_reload { wanted } else { wanted.without_reload() };
    let site = Site::from_head(head, known.is_https());
    let credentials = RequestCredentials {
        has_cookies: has_cookies(&head.fields) && route.key_cookies.is_none(),
        has_authorization: head.fields.contains(Name::Authorization),
    };
    let fields = &selecting_fields(known, fetch_rules);
    let (path, query) = (request.origin_path(), head.target.query());
    let url = UrlKey::for_request(&site, path, query, fields, fetch_rules);
    let is_crowded = !cache_rules.crowd_max_age.is_zero() && is_crowded(known, &url, *now);
    if is_crowded {
        wanted.max_stale = wanted.max_stale.max(cache_rules.crowd_max_age);
    }
    let patience = config.settings.response_timeout(classified.route);
    let mut found = match find(known.worker(), &url, fields, credentials, &[], *now) {
        Ok(found) => found,
        Err(OnDisk(_)) => {
            let found = Box::pin(find_copy(known.worker(), &url, fields, credentials)).await;
            *now = known.worker().now();
            found
        }
    };
    if let Some((key, copy)) = &found.copy {
        let variants = found.variants.as_ref().map(|_| url.key);
        known.worker().shared().cache.store.record_use((*key, variants), copy, classified.key);
    }
    if let Some((_, copy)) = found.copy.take_if(|(_, copy)| copy.terms().reuse(&wanted, *now) == Reuse::Fresh) {
        return CacheRole::reusable(copy, is_crowded, *now);
    }
    // The origin may read fields that choose the route as those of a request with other copies.
    let is_ambiguous = known.request.field_match().is_some_and(FieldMatch::is_ambiguous);
    let can_store = head.method == Method::GET && !is_ambiguous && !head.fields.all(Name::Range).any(may_be_range);
    let (client, stale_if_error) = (classified.key, cache_rules.stale_if_error);
    let names_clients = fetch_rules.names_clients;
    let lookup = CacheLookup {
        url,
        credentials,
        wanted,
        can_store,
        client,
        patience,
        stale_if_error,
        names_clients,
        is_crowded,
    };
    // Boxed to keep the future of requests with a copy small.
    let role = Box::pin(fetch_or_wait(&known.connection, fields, lookup, found)).await;
    *now = known.worker().now();
    role
}

/// Returns true if a crowd requests the page. Requests of people that would cost units without a copy count.
#[cold]
fn is_crowded(known: &Known, url: &UrlKey, now: Timestamp) -> bool {
    let classified = &known.classified;
    let is_person = classified.classification.kind == ClientKind::Human && classified.exemption.is_none();
    let is_counted = is_person && known.config.admission.is_costly(classified.route, &known.request.facts());
    let person = is_counted.then(|| known.address_key());
    known.worker().shared().cache.is_crowded(url, person, now)
}

/// Returns the part of the cache in a request without a fresh copy.
async fn fetch_or_wait(
    connection: &ClientConnection,
    fields: &Fields,
    lookup: CacheLookup,
    mut found: Found,
) -> CacheRole {
    let CacheLookup {
        url,
        credentials,
        wanted,
        can_store,
        client,
        patience,
        stale_if_error,
        names_clients,
        is_crowded,
    } = lookup;
    let worker = &connection.worker;
    let cache = &worker.shared().cache;
    // A request that waits occupies as much memory as one that is forwarded.
    let _memory = MemoryCharge::new(connection.connection_state.memory(), REQUEST + fields.memory());
    let end_of_patience = worker.monotonic_now() + patience * PATIENCE_FACTOR;
    let mut waited = None;
    loop {
        let reuse = found.reuse(&wanted, worker.now());
        if let Some((copy, Reuse::Fresh)) = reuse {
            return match waited {
                None => CacheRole::reusable(copy, is_crowded, worker.now()),
                Some(reason) => CacheRole::Copy(copy, CopyReason::Collapsed(reason)),
            };
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
        // A crowd uses a response whose lifetime is over, too.
        let is_shared = (found.is_shared() || (is_crowded && !found.is_pass)) && !credentials.is_any();
        let mut fetch =
            Box::new(CacheFetch::new(url.clone(), found.variants.clone(), found.copy.clone(), reason, &wanted));
        fetch.is_personal = credentials.is_any() && found.copy.is_none();
        fetch.is_refused_without_client = found.is_pass && names_clients;
        fetch.credentials = credentials;
        if !is_shared || wanted.no_store {
            return CacheRole::Fetch(fetch);
        }
        match (cache.fetches.acquire(fetch.lock_key(fields), client, worker.monotonic_now()), stale_use) {
            (FetchRole::Fetch(guard), stale_use) => {
                // Another request may have stored the response since.
                let again = find_copy(worker, &url, fields, credentials).await;
                if let Some((copy, Reuse::Fresh)) = again.reuse(&wanted, worker.now()) {
                    guard.end(FetchEnd::Stored);
                    return CacheRole::reusable(copy, is_crowded, worker.now());
                }
                fetch.guard = Some(guard);
                return match stale_use {
                    None => CacheRole::Fetch(fetch),
                    Some(copy) => CacheRole::CopyAndFetch(copy, fetch),
                };
            }
            (FetchRole::Wait(_), Some(copy)) => return CacheRole::Copy(copy, CopyReason::Reusable),
            (FetchRole::Wait(waiter), None) => match wait_for_fetch(worker, &waiter, patience, end_of_patience).await {
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
            },
        }
        found = find_copy(worker, &url, fields, credentials).await;
    }
}

/// Waits for the end of another request's fetch. Returns a guard if this request takes it over, because it was left or
/// has taken `patience`, and `None` at `end_of_patience`.
async fn wait_for_fetch(
    worker: &Worker,
    waiter: &FetchWaiter,
    patience: Duration,
    end_of_patience: Timestamp,
) -> Option<Result<FetchEnd, FetchGuard>> {
    let clock = || worker.monotonic_now();
    loop {
        let now = clock();
        if let Some(guard) = waiter.take_over_late(patience, now) {
            return Some(Err(guard));
        }
        if now >= end_of_patience {
            return None;
        }
        let wait = waiter.time_left(patience, now).min(end_of_patience.saturating_duration_since(now));
        let deadline = worker.upstream().new_deadline(wait);
        if let Some(end) = within(&deadline, waiter.wait(clock)).await {
            return Some(end);
        }
    }
}

/// Returns what the store has for a request. What is on disk is read first.
async fn find_copy(worker: &Worker, url: &UrlKey, fields: &Fields, credentials: RequestCredentials) -> Found {
    let cache = &worker.shared.cache;
    let deadline = worker.upstream().new_deadline(MAX_DISK_WAIT);
    let mut loaded = Vec::new();
    loop {
        let OnDisk(key) = match find(worker, url, fields, credentials, &loaded, worker.now()) {
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
    worker: &Worker,
    url: &UrlKey,
    fields: &Fields,
    credentials: RequestCredentials,
    loaded: &[(CacheKey, Option<CacheEntry>)],
    now: Timestamp,
) -> Result<Found, OnDisk> {
    let store = &worker.shared().cache.store;
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
            if is_written || is_invalidated(worker, url, &copy) {
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
pub(in crate::gateway) fn copy_fetched_by_others(journal: &Journal) -> Option<(Arc<StoredResponse>, ForwardReason)> {
    let fetch = journal.cache.fetch.as_deref().filter(|fetch| fetch.is_handed_over)?;
    let (worker, now) = (journal.worker(), journal.worker().now());
    let rules = FetchRules::of_route(&journal.known.config.settings, journal.known.classified.route)?;
    let fields = selecting_fields(&journal.known, rules);
    let found = find(worker, &fetch.url, &fields, fetch.credentials, &[], now).ok()?;
    let (_, copy) = found.copy?;
    (copy.terms().is_fresh(now) && !copy.terms().always_validate).then_some((copy, fetch.reason))
}

/// Returns true if a write invalidated a response that is not found by its URL alone.
fn is_invalidated(worker: &Worker, url: &UrlKey, copy: &StoredResponse) -> bool {
    !url.is_plain() && worker.shared().cache.invalidations.includes(|| url.plain(), copy.requested_at)
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
