//! What the gateway shows, every few seconds, compared with the promise; and the webhooks that are told of it.

use super::remedy::{RemedySearch, UNKNOWN_REMEDY};
use super::{ServiceState, server_trust};
use crate::admin::state::{KeptPromiseDocument, PromiseDocument};
use crate::gateway::OriginView;
use crate::telemetry::ClassTraffic;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tidegate_access_log::rfc3339;
use tidegate_config::settings::Webhook;
use tidegate_config::{SettingPath, Settings};
use tidegate_engine::{QuotaView, ScopeState};
use tidegate_notify::{
    Certificate, Delivery, DeliveryCounts, Observation, PageCounts, QuotaUsage, Refusals, Trouble, Watch, WatchStore,
    WebhookClient, WindowCounts, missed_text, select,
};
use tidegate_policy::promise::{Promise, PromisedFigure};
use tidegate_policy::quota::Quota;
use tidegate_policy::tier::Share;
use tidegate_policy::window::Window;
use tidegate_policy::{ClientKind, QuotaId, Reason, Timestamp, Units};
use tidegate_tls::{ServerTrust, TlsErrors};
use tracing::warn;

/// Interval at which the gateway is observed.
const OBSERVATION_INTERVAL: Duration = Duration::from_secs(2);

/// Interval at which the counts of the day are saved.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// Time for which a failure of the origin lasts before it is an event.
const OUTAGE_DURATION: Duration = Duration::from_secs(30);

/// Time for which a scope backs off before it is an event.
const BACKOFF_DURATION: Duration = Duration::from_secs(60);

/// Time between two searches for what would have kept the promise.
const SEARCH_INTERVAL: Duration = Duration::from_secs(3600);

/// Watch of the gateway, and the webhooks that are told.
struct Notifier {
    watch: Watch,
    store: WatchStore,
    webhooks: Vec<(Webhook, Delivery)>,
    counts: Arc<DeliveryCounts>,
    /// Time since the start at which the state was saved.
    saved_at: Duration,
    /// True if an event has begun since then.
    has_unsaved_events: bool,
    remedy: Option<Remedy>,
}

/// What would have kept the promise in a window.
struct Remedy {
    window_start: Timestamp,
    /// Time since the start at which the search began.
    started_at: Duration,
    /// The search, until it has ended.
    search: Option<JoinHandle<String>>,
    text: Option<String>,
}

/// Returns the clients of all webhooks, or all errors of the files that they name.
pub fn webhook_clients(settings: &Settings) -> Result<Vec<WebhookClient>, TlsErrors> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let (mut clients, mut errors) = (Vec::new(), Vec::new());
    for (index, webhook) in settings.webhooks.iter().enumerate() {
        let trust = webhook.authority.as_deref().map_or_else(
            || Ok(ServerTrust::public()),
            |file| {
                let location = settings.location_of(&SettingPath::ROOT.notify().index(index).ca());
                server_trust::read(file, &location)
            },
        );
        match trust {
            Ok(trust) => clients.push(WebhookClient::new(webhook.clone(), trust, host.clone())),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(clients) } else { Err(TlsErrors(errors)) }
}

impl Notifier {
    fn new(state_dir: &Path, counts: Arc<DeliveryCounts>) -> Self {
        let store = WatchStore::new(state_dir);
        let state = store.restore().unwrap_or_else(|error| {
            warn!("Notifications: {error}; what has been said may be said again");
            Default::default()
        });
        Self {
            watch: Watch::new(state),
            store,
            webhooks: Vec::new(),
            counts,
            saved_at: Duration::ZERO,
            has_unsaved_events: false,
            remedy: None,
        }
    }

    /// Starts the deliveries of new webhooks, and ends those of others.
    fn use_webhooks(&mut self, settings: &Settings) {
        if self.webhooks.iter().map(|(webhook, _)| webhook).eq(&settings.webhooks) {
            return;
        }
        // The files were readable when the settings were loaded.
        let clients = match webhook_clients(settings) {
            Ok(clients) => clients,
            Err(error) => return warn!("Notifications go to the webhooks of before: {error}"),
        };
        let mut before = std::mem::take(&mut self.webhooks);
        for (webhook, client) in settings.webhooks.iter().zip(clients) {
            let kept = before.iter().position(|(other, _)| other == webhook).map(|index| before.swap_remove(index));
            let start = || (webhook.clone(), Delivery::start(client, Arc::clone(&self.counts)));
            self.webhooks.push(kept.unwrap_or_else(start));
        }
    }

    /// Queues what has begun since the last observation.
    fn observe(&mut self, observation: &Observation) {
        let notifications = self.watch.observe(observation);
        self.has_unsaved_events |= !notifications.is_empty();
        for (webhook, delivery) in &self.webhooks {
            select(&notifications, webhook).into_iter().for_each(|notification| delivery.queue(notification.clone()));
        }
        // What is not delivered within that time is said again after a crash, to all.
        let is_due = observation.uptime.saturating_sub(self.saved_at) >= SAVE_INTERVAL;
        let is_delivered = || self.webhooks.iter().all(|(_, delivery)| delivery.is_idle());
        if is_due || self.has_unsaved_events && is_delivered() {
            (self.saved_at, self.has_unsaved_events) = (observation.uptime, false);
            self.save();
        }
    }

    fn save(&mut self) {
        if let Err(error) = self.store.save(self.watch.state()) {
            warn!(%error, "Cannot save what was notified: {error}; a restart may say it again");
        }
    }
}

impl Notifier {
    /// Begins to look for what would have kept the promise, if the last window has missed it, or takes over what was found. One
    /// search begins in [`SEARCH_INTERVAL`], so that short windows do not keep a processor busy.
    fn find_remedy(&mut self, promise: Promise, uptime: Duration, search: impl FnOnce() -> RemedySearch) {
        if let Some(remedy) = &mut self.remedy {
            remedy.poll();
        }
        let Some(window) = self.watch.promise().last().filter(|window| missed_text(&promise, window).is_some()) else {
            return;
        };
        let window_start = window.start();
        let is_busy = |remedy: &Remedy| {
            let is_early = uptime.saturating_sub(remedy.started_at) < SEARCH_INTERVAL;
            remedy.window_start == window_start || remedy.search.is_some() || is_early
        };
        if self.remedy.as_ref().is_some_and(is_busy) {
            return;
        }
        let search = search();
        // Ends with the process: a replay takes a minute or so.
        let thread = std::thread::Builder::new().name("remedy".into()).spawn(move || search.run());
        let text = thread.as_ref().err().map(|error| format!("{UNKNOWN_REMEDY}: {error}."));
        self.remedy = Some(Remedy { window_start, started_at: uptime, search: thread.ok(), text });
    }

    /// Returns what the windows keep of the promise; `None` if nothing is promised.
    fn promise(&self, promise: Promise) -> Option<PromiseDocument> {
        let watch = self.watch.promise();
        let kept = |window: &WindowCounts, has_ended| {
            let figures = window.figures(has_ended);
            let missed = promise.missed(&figures).into_iter().map(PromisedFigure::name).map(str::to_owned);
            KeptPromiseDocument {
                window_start: rfc3339(window.start()),
                people_refused: figures.people_refused,
                search_served: figures.search_served,
                left_over: figures.left_over,
                overrun: figures.overrun.into(),
                missed: missed.collect(),
            }
        };
        let last = watch.last();
        let missed = last.and_then(|window| {
            let text = missed_text(&promise, window)?;
            let remedy = self.remedy.as_ref().filter(|remedy| remedy.window_start == window.start());
            let remedy = remedy.and_then(|remedy| remedy.text.as_deref()).unwrap_or_default();
            Some(format!("{text} {remedy}").trim_end().to_owned())
        });
        Some(PromiseDocument {
            people_refused: promise.people_refused.map(Share::ratio),
            search_served: promise.search_served.map(Share::ratio),
            left_over: promise.left_over.map(Share::ratio),
            current: kept(watch.current()?, false),
            last: last.map(|window| kept(window, true)),
            missed,
        })
    }
}

/// Saves the state at an orderly stop.
impl Drop for Notifier {
    fn drop(&mut self) {
        self.save();
    }
}

impl Remedy {
    /// Takes over the result of a search that has ended.
    fn poll(&mut self) {
        if let Some(search) = self.search.take_if(|search| search.is_finished()) {
            self.text = Some(search.join().unwrap_or_else(|_| format!("{UNKNOWN_REMEDY}.")));
        }
    }
}

impl ServiceState {
    /// Observes the gateway and notifies the webhooks, until dropped. Does nothing while there is neither a webhook nor a promise.
    pub(super) async fn run_notifications(&self) {
        let mut notifier = None;
        let mut ticks = tokio::time::interval(OBSERVATION_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let has_use = |settings: &Settings| !settings.webhooks.is_empty() || !settings.promise.is_empty();
            if notifier.is_none() && !self.handle.with_settings(has_use) {
                continue;
            }
            let state_dir = &self.startup_settings.state_dir;
            let notifier = notifier.get_or_insert_with(|| Notifier::new(state_dir, Arc::clone(&self.notifications)));
            self.handle.with_settings(|settings| notifier.use_webhooks(settings));
            let observation = self.observation(notifier.remedy.as_ref());
            notifier.observe(&observation);
            self.handle.with_settings(|settings| {
                notifier.find_remedy(settings.promise, observation.uptime, || {
                    RemedySearch::new(settings, Arc::clone(&self.user_agents), Arc::clone(&self.operators))
                });
                *self.promise.lock() = notifier.promise(settings.promise);
            });
        }
    }

    fn observation(&self, remedy: Option<&Remedy>) -> Observation {
        let now = self.handle.now();
        let (mut people, mut others) = Default::default();
        for (kind, [admitted, refused]) in self.telemetry.kind_traffic() {
            let total: &mut Refusals = if kind == ClientKind::Human { &mut people } else { &mut others };
            *total += Refusals { requests: admitted + refused, refused };
        }
        let longest_refusals = self.engine.longest_refusals().into_iter();
        let certificates = self.certificates().into_iter();
        Observation {
            at: now,
            uptime: self.handle.uptime().saturating_duration_since(Timestamp::default()),
            day: day(now),
            quotas: self.quota_usage(),
            people,
            others,
            origin_troubles: self.origin_troubles(now),
            longest_refusals: longest_refusals
                .map(|(operator, span)| (self.operators.name(operator).to_owned(), span))
                .collect(),
            certificates: certificates
                .map(|it| Certificate { domain: it.domain, expires_at: Timestamp::from_seconds(it.expires_at) })
                .collect(),
            reload_error: self.settings.lock().last_reload_failed.as_ref().map(|failure| failure.errors.clone()),
            pages: self.pages(),
            promise: self.handle.with_settings(|settings| settings.promise),
            remedy: remedy.and_then(|remedy| Some((remedy.window_start, remedy.text.clone()?))),
        }
    }

    /// Returns the requests for pages since the start.
    fn pages(&self) -> PageCounts {
        let mut pages = PageCounts::default();
        // Of several quotas it is not known which one has refused.
        let has_one_quota = self.handle.with_settings(|settings| settings.rules.quotas.len() == 1);
        for ClassTraffic { class, costly, costly_admitted, refused, .. } in self.telemetry.class_traffic() {
            let of_reasons = |reasons: &[Reason]| -> u64 {
                refused.iter().filter(|(reason, _)| reasons.contains(reason)).map(|(_, count)| count).sum()
            };
            let refused = costly - costly_admitted;
            if has_one_quota {
                pages.saving_refusals += of_reasons(&[Reason::Tier, Reason::Pacing, Reason::Quota]);
            }
            match class.as_str() {
                Promise::PEOPLE_CLASS => {
                    let refused = refused.saturating_sub(of_reasons(&[Reason::ClientShare]));
                    pages.people = Refusals { requests: costly, refused };
                }
                Promise::SEARCH_CLASS => pages.search = Refusals { requests: costly, refused },
                _ => {}
            }
        }
        pages
    }

    fn quota_usage(&self) -> Vec<QuotaUsage> {
        let (views, path_costs) = (self.handle.quotas(), self.handle.path_costs());
        self.handle.with_settings(|settings| {
            let usage = |view: QuotaView| {
                let quotas = &settings.rules.quotas;
                let index = quotas.iter().position(|quota| quota.name == view.name)?;
                let id = QuotaId::from_index(index);
                let is_routed = settings.rules.routes.iter().any(|route| route.has_cost_in(id));
                let unrouted = path_costs.iter().filter(|cost| is_routed && cost.quota == view.name);
                let unrouted = unrouted.fold(Units::ZERO, |total, cost| total.saturating_add(cost.units));
                Some(QuotaUsage {
                    window_start: (!slides(&quotas[index])).then_some(view.window_start),
                    name: view.name,
                    limit: view.limit,
                    used: view.used,
                    window_end: view.window_end,
                    overrun: view.overrun,
                    unrouted,
                })
            };
            views.into_iter().filter_map(usage).collect()
        })
    }

    fn origin_troubles(&self, now: Timestamp) -> Vec<Trouble> {
        let mut troubles = Vec::new();
        for OriginView { name, servers, outage, .. } in self.handle.origins() {
            let name = name.map(|name| format!(" {name}")).unwrap_or_default();
            if let Some(outage) = outage {
                let since = now.saturating_duration_since(outage.since).as_secs();
                troubles.push(Trouble {
                    subject: format!("The origin{name}"),
                    text: format!(
                        "has not responded for {since} seconds, to {} requests; the last error: {}",
                        outage.failed_requests, outage.last_error
                    ),
                    min_duration: OUTAGE_DURATION,
                });
            }
            for server in servers.into_iter().filter(|server| !server.is_healthy) {
                troubles.push(Trouble {
                    subject: format!("The origin server {}", server.url),
                    text: format!(
                        "does not respond and is sent no requests; the last error: {}",
                        server.last_error.unwrap_or_default()
                    ),
                    min_duration: OUTAGE_DURATION,
                });
            }
        }
        let uptime = self.handle.uptime();
        let scopes = self.handle.with_admission(|admission| admission.scopes(uptime));
        let is_backing_off = |scope: &&ScopeState| !scope.backoff_remaining.is_zero();
        troubles.extend(scopes.iter().filter(is_backing_off).map(|scope| Trouble {
            subject: format!("The scope {}", scope.name),
            text:
                "has backed off for a minute, because the origin is overloaded; `tidegate status` has its state".into(),
            min_duration: BACKOFF_DURATION,
        }));
        troubles
    }
}

fn slides(quota: &Quota) -> bool {
    matches!(quota.window, Window::Sliding { .. })
}

/// Returns the calendar day of a time in the zone of the system.
fn day(at: Timestamp) -> String {
    let time = jiff::Timestamp::from_second(i64::try_from(at.seconds()).unwrap_or(i64::MAX)).unwrap_or_default();
    time.to_zoned_datetime(jiff::tz::TimeZone::system()).date().to_string()
}
