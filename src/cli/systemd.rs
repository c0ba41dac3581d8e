//! Systemd: sockets that it opened, and messages about the state of the service. Does nothing without it.

use crate::gateway::ListenSockets;
use sd_notify::NotifyState;
use std::future::pending;
use tidegate_config::Settings;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::warn;

/// Adds the sockets that systemd opened (`LISTEN_FDS`), each to the listener with its address.
pub(super) fn add_sockets(sockets: &mut ListenSockets, settings: &Settings) {
    let forward_auth = settings.forward_auth.as_ref().map(|forward_auth| forward_auth.listen);
    let addresses: Vec<_> = settings.listen.iter().map(|listener| listener.address).chain(forward_auth).collect();
    let mut opened = listenfd::ListenFd::from_env();
    for index in 0..opened.len() {
        let Ok(Some(socket)) = opened.take_tcp_listener(index) else {
            warn!("Socket {index} of systemd is no TCP socket that listens: not used");
            continue;
        };
        let Ok(address) = socket.local_addr() else { continue };
        match addresses.contains(&address) {
            true => sockets.add(address.to_string(), socket.into()),
            false => warn!("Socket of systemd at {address} is no listener of the configuration: not used"),
        }
    }
}

/// Says that this process serves.
pub(super) fn notify_ready() {
    notify(&[NotifyState::Ready]);
}

/// Says that the process lives, for the watchdog.
pub(super) fn notify_alive() {
    notify(&[NotifyState::Watchdog]);
}

/// Says that another process serves in place of this one.
pub(super) fn notify_main_process(id: u32) {
    notify(&[NotifyState::MainPid(id)]);
}

/// Says that the configuration is being read again.
pub(super) fn notify_reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
}

/// Says that the last requests are served.
pub(super) fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(%error, "Cannot notify systemd: {error}");
    }
}

/// Watchdog of systemd (`WatchdogSec`), which restarts a service that says nothing.
pub(super) struct Watchdog(Option<Interval>);

/// Returns the watchdog.
pub(super) fn watchdog() -> Watchdog {
    Watchdog(sd_notify::watchdog_enabled().map(|timeout| {
        let mut ticks = interval(timeout / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }))
}

impl Watchdog {
    /// Waits until it is time, and says that the process lives.
    pub(super) async fn tick(&mut self) {
        match &mut self.0 {
            None => pending().await,
            Some(ticks) => {
                ticks.tick().await;
                notify_alive();
            }
        }
    }
}
