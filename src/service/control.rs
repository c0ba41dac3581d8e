//! The control thread: the admin listener and all background tasks, on one thread beside the workers.
//!
//! All of them end when the service shuts down.

use super::shadow_summary::ShadowSummary;
use super::{ExternalAccess, ServiceState, acme, crawlers};
use crate::admin::{self, AccessControl, BoundListener, GatewayApi};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tidegate_crawlers::verify::RangeRefresher;
use tokio::sync::oneshot;
use tracing::{info, warn};

/// Interval at which new observations are saved.
const LEARNED_SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// Interval between two summaries of shadow mode.
const SHADOW_SUMMARY_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// Time limit of the last export of traces.
const LAST_EXPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs the control thread until `shutdown`. Sends to `origin_resolved` after the first DNS lookup of the origin.
pub(super) fn run(
    state: &Arc<ServiceState>,
    admin: Option<(BoundListener, AccessControl)>,
    range_refresher: RangeRefresher,
    origin_resolved: mpsc::Sender<()>,
    shutdown: oneshot::Receiver<()>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            warn!(%error, "Cannot start the control runtime: {error}");
            return;
        }
    };
    runtime.block_on(async {
        if let Some((listener, access)) = admin {
            spawn_admin_listener(state, listener, access);
        }
        tokio::spawn(crawlers::run_dns_verification(Arc::clone(state)));
        tokio::spawn(range_refresher.run());
        acme::spawn_orders(state);
        let tasks = Arc::clone(state);
        let state_tasks = async move {
            tasks.handle.resolve_origins().await;
            // Fails if the start no longer waits for it.
            let _ = origin_resolved.send(());
            tasks.run_periodic_tasks().await;
        };
        tokio::select! {
            () = state_tasks => {}
            _ = shutdown => {}
        }
        // Requests that ended in the last second.
        let _ = tokio::time::timeout(LAST_EXPORT_TIMEOUT, state.export_spans()).await;
    });
}

/// Serves the admin API until the runtime is dropped.
fn spawn_admin_listener(state: &Arc<ServiceState>, listener: BoundListener, access: AccessControl) {
    let listener = match listener.into_listener() {
        Ok(listener) => listener,
        Err(error) => {
            warn!(%error, "Cannot start the admin listener: {error}");
            return;
        }
    };
    tokio::spawn(admin::run(listener, Arc::clone(state) as Arc<dyn GatewayApi>, access, std::future::pending()));
}

impl ServiceState {
    /// Runs the tasks that use this state, until dropped.
    async fn run_periodic_tasks(&self) {
        let ExternalAccess { fetcher, allowed_addresses } = &self.external;
        // Joined instead of spawned, because they borrow the state.
        tokio::join!(
            self.handle.run_maintenance(),
            self.handle.run_refreshes(),
            self.handle.run_health_checks(),
            self.poll_files(),
            self.persist_learned_loop(),
            self.log_shadow_refusals(),
            self.run_notifications(),
            self.run_trace_export(),
            self.record_usage_history(),
            self.share_switches(),
            self.share_session_secret(),
            self.signatures.run_fetches(fetcher, *allowed_addresses, || self.handle.uptime())
        );
    }

    /// Saves the learned demand and baseline periodically, until dropped.
    async fn persist_learned_loop(&self) {
        let mut ticks = tokio::time::interval(LEARNED_SAVE_INTERVAL);
        loop {
            ticks.tick().await;
            self.persist_learned();
        }
    }

    /// Logs once a day what rules in shadow mode would have refused, until dropped.
    async fn log_shadow_refusals(&self) {
        let mut summary = ShadowSummary::default();
        let mut days = tokio::time::interval(SHADOW_SUMMARY_INTERVAL);
        loop {
            days.tick().await;
            if let Some(text) = summary.advance(self.telemetry.class_traffic()) {
                info!("{text}");
            }
        }
    }

    /// Saves the learned demand and baseline if they have changed. A failure is only logged.
    pub(super) fn persist_learned(&self) {
        if let Err(error) = self.demand_store.save(&self.engine.learned_demand()) {
            warn!(%error, "Cannot save the demand history: {error}; keeping it in memory");
        }
        if let Err(error) = self.baseline_store.save(&self.engine.learned_baseline()) {
            warn!(%error, "Cannot save the baseline of bot detection: {error}; keeping it in memory");
        }
    }
}
