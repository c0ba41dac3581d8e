//! Refreshes stored responses with surplus units: those that no request of the window is expected to need.
//!
//! The plan of a quota releases its surplus over the last part of the window (`policy::pacing`). Meanwhile the stale
//! responses that are requested most are fetched again, each by a request of its own, for the class that was last sent the
//! response. It is decided, logged and charged like any other, but takes only surplus units and free slots.

use super::{FillRequest, StoredResponse};
use crate::gateway::FillOutcome;
use crate::gateway::Handle;
use crate::gateway::message::page_url::PageUrl;
use crate::gateway::message::site::Site;
use foldhash::fast::RandomState;
use http::Uri;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;
use tidegate_http1::Fields;
use tidegate_policy::cache::CacheFill;
use tidegate_policy::own_hosts::without_last_dot;
use tidegate_policy::{RouteId, Timestamp};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Interval between two looks for surplus units.
const INTERVAL: Duration = Duration::from_secs(1);
/// Most refreshes at once.
const MAX_IN_FLIGHT: usize = 4;
/// Most responses that are collected at once, and the least time between two collections, which read the whole memory.
const MAX_CANDIDATES: usize = 1000;
const COLLECTION_INTERVAL: Duration = Duration::from_secs(10);
/// Least time between two requests for a response, however short its lifetime is.
const MIN_AGE: Duration = Duration::from_secs(60);

/// Stale responses that are refreshed next.
#[derive(Default)]
struct Candidates {
    responses: VecDeque<Arc<StoredResponse>>,
    /// Monotonic time of the next collection.
    next_at: Timestamp,
    /// Times of the last requests, by response: not all of them are stored.
    asked_at: HashMap<u64, Timestamp, RandomState>,
}

impl Handle {
    /// Refreshes stored responses while there are surplus units, until dropped.
    pub async fn run_refreshes(&self) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut candidates = Candidates::default();
        loop {
            ticks.tick().await;
            self.refresh_stale(&mut candidates).await;
        }
    }

    /// Refreshes until the surplus of this time is used, no slot is free, or nothing is stale.
    async fn refresh_stale(&self, candidates: &mut Candidates) {
        let mut in_flight = JoinSet::new();
        loop {
            while in_flight.len() < MAX_IN_FLIGHT
                && let Some(copy) = self.next_stale(candidates)
                && let Some(request) = self.refresh_of(&copy)
            {
                in_flight.spawn(request);
            }
            match in_flight.join_next().await {
                Some(Ok(Ok(Ok(outcome)))) if !outcome.is_refused && outcome.status < 500 => {}
                // Refused, or the origin fails: the rest waits for the next look.
                Some(_) => break,
                None => return,
            }
        }
        while in_flight.join_next().await.is_some() {}
    }

    /// Returns the next stale response for which there are surplus units. Those that are no longer to be refreshed are dropped.
    fn next_stale(&self, candidates: &mut Candidates) -> Option<Arc<StoredResponse>> {
        let config = self.0.config();
        if !config.settings.cache?.refreshes_surplus {
            return None;
        }
        let (now, uptime) = (self.now(), self.uptime());
        let routes = 0..config.settings.rules.routes.len();
        let may_refresh = |route: usize| config.admission.may_refresh(RouteId::from_index(route), now);
        if !routes.into_iter().any(may_refresh) {
            candidates.responses.clear();
            return None;
        }
        if candidates.responses.is_empty() && uptime >= candidates.next_at {
            candidates.next_at = uptime + COLLECTION_INTERVAL;
            candidates.asked_at.retain(|_, asked_at| now.saturating_duration_since(*asked_at) < MIN_AGE);
            candidates.responses = self.0.cache.store.most_requested_stale(MAX_CANDIDATES, now).into();
        }
        while let Some(copy) = candidates.responses.pop_front() {
            let response = candidates.asked_at.hasher().hash_one((&copy.url, &copy.selecting));
            if now.saturating_duration_since(copy.requested_at) >= MIN_AGE
                && let Some(route) = self.route_of(&copy)
                && may_refresh(route.index())
                && !candidates.asked_at.contains_key(&response)
            {
                candidates.asked_at.insert(response, now);
                return Some(copy);
            }
        }
        None
    }

    /// Returns the route of a stored response, unless it is no longer cached.
    fn route_of(&self, copy: &StoredResponse) -> Option<RouteId> {
        let config = self.0.config();
        let (rules, url) = (&config.settings.rules, copy.url.parse().ok()?);
        let route = Site::from_url(&url)?.route(&url, rules);
        rules[route].cache.as_ref().map(|_| route)
    }

    /// Sends the refresh of a response to a worker; `None` if too many wait, or its class is gone.
    fn refresh_of(&self, copy: &StoredResponse) -> Option<oneshot::Receiver<Result<FillOutcome, String>>> {
        let config = self.0.config();
        let class = config.settings.rules.classes.get(copy.usage.class_index()?)?;
        let fields = Fields::from_lines(copy.selecting.as_deref()?.to_vec().into())?;
        self.fill(copy.url.parse().ok()?, fields, &class.name, CacheFill::Refresh)
    }

    /// Sends a request of the gateway itself to a worker; `None` if too many wait.
    pub(in crate::gateway) fn fill(
        &self,
        url: Uri,
        fields: Fields,
        class: &str,
        fill: CacheFill,
    ) -> Option<oneshot::Receiver<Result<FillOutcome, String>>> {
        let (reply, outcome) = oneshot::channel();
        let request = FillRequest { url, fields, class: class.into(), fill, reply };
        self.0.cache.fills.send(request).then_some(outcome)
    }

    /// Warms the cache: fetches a URL within the limits of `class`, unless a fresh response is stored. One of a sitemap,
    /// whose host is `site`, is fetched if its host is that one, or named in `hosts`. Returns where the outcome arrives, or
    /// an error of one line.
    pub fn warm_cache(
        &self,
        url: &str,
        class: &str,
        site: Option<&str>,
    ) -> Result<oneshot::Receiver<Result<FillOutcome, String>>, String> {
        let config = self.0.config();
        let rules = &config.settings.rules;
        if rules.class_id(class).is_none() {
            let names: Vec<_> = rules.classes.iter().map(|class| class.name.as_str()).collect();
            return Err(format!("class: found {class:?}; known here: {}", names.join(", ")));
        }
        let invalid =
            || format!("url: found {url:?}; give a URL with scheme and host, such as https://example.com/item/42");
        let uri = PageUrl::parse(url).and_then(|url| url.to_uri()).ok_or_else(invalid)?;
        let is_of_site = |site: &str| {
            uri.host().is_some_and(|host| without_last_dot(host).eq_ignore_ascii_case(without_last_dot(site)))
        };
        // A request for a host that is not in `hosts` is refused like a client's.
        if config.settings.hosts.is_none() && !site.is_none_or(is_of_site) {
            let (reply, outcome) = oneshot::channel();
            let _ = reply.send(Ok(FillOutcome::of_another_host()));
            return Ok(outcome);
        }
        self.fill(uri, Fields::new(), class, CacheFill::Warm)
            .ok_or_else(|| "too many requests wait; try again later".to_owned())
    }
}
