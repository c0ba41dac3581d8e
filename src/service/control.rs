//! The control thread: the admin listener and all background tasks.

use super::{ExternalAccess, ServiceState, crawlers};
use crate::admin::{self, AccessControl, GatewayApi};
use crate::verify::RangeRefresher;
use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::warn;

/// Interval at which new demand observations are saved.
const DEMAND_SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// Runs the control thread: the admin listener and all background tasks.
pub(super) fn run(
    state: &Arc<ServiceState>,
    admin: Option<(TcpListener, AccessControl)>,
    range_refresher: RangeRefresher,
    resolved: mpsc::Sender<()>,
    shutdown: oneshot::Receiver<()>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return warn!(%error, "Cannot start the control runtime: {error}"),
    };
    runtime.block_on(async {
        if let Some((listener, access)) = admin {
            let router = admin::router(Arc::clone(state) as Arc<dyn GatewayApi>, access);
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => drop(tokio::spawn(admin::serve(listener, router, std::future::pending()))),
                Err(error) => warn!(%error, "Cannot start the admin listener: {error}"),
            }
        }
        tokio::spawn(crawlers::run_dns_verification(Arc::clone(state)));
        tokio::spawn(range_refresher.run());
        let work = async move {
            state.handle.resolve_origin().await;
            let _ = resolved.send(());
            let ExternalAccess { fetcher, allowed_addresses: reach } = &state.external;
            let key_fetches = state.signatures.run_fetches(fetcher, *reach, || state.handle.uptime());
            tokio::join!(
                state.handle.run_maintenance(),
                state.poll_address_lists(),
                state.persist_demand_loop(),
                key_fetches
            );
        };
        tokio::select! {
            () = work => {}
            _ = shutdown => {}
        }
    });
}

impl ServiceState {
    /// Saves the learned demand periodically, until dropped.
    async fn persist_demand_loop(&self) {
        let mut ticks = tokio::time::interval(DEMAND_SAVE_INTERVAL);
        loop {
            ticks.tick().await;
            self.persist_demand();
        }
    }

    /// Saves the learned demand if it has changed.
    pub(super) fn persist_demand(&self) {
        if let Err(error) = self.demand_store.save(&self.engine.learned_demand()) {
            warn!(%error, "Cannot save the demand history: {error}; keeping it in memory");
        }
    }
}
