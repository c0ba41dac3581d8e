//! Switches of administrators: changed through the admin API, shared with other gateways, active in the rules.

use super::{ServiceState, ledger};
use crate::admin::SwitchChange;
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_config::settings::Ledger;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_engine::ledger::redis::SharedSwitches;
use tidegate_engine::switch_store::{MAINTENANCE, SwitchEntry, SwitchError, SwitchStore};
use tidegate_policy::network::IpPrefix;
use tidegate_policy::switches::{SwitchEffect, Switches};
use tidegate_policy::{ClassId, Rules, Timestamp};
use tracing::{info, warn};

/// Interval at which gateways exchange their switches.
const EXCHANGE_INTERVAL: Duration = Duration::from_secs(1);

/// Shortest prefix of a network, in bits: a wider one has clients that nobody means.
const SHORTEST_PREFIX: (u8, u8) = (8, 19);

/// Returns the connection to the switches of all gateways, if they share a ledger.
pub(super) fn shared(settings: &Settings) -> Result<Option<SharedSwitches>, String> {
    match &settings.ledger {
        Ledger::Redis(redis) => Ok(Some(SharedSwitches::new(ledger::endpoint(redis, settings)?, &redis.prefix))),
        Ledger::Memory | Ledger::File => Ok(None),
    }
}

/// Resolves the switches in effect by the names of `rules`.
pub(super) fn resolve(store: &SwitchStore, operators: &OperatorTable, rules: &Rules, now: Timestamp) -> Switches {
    store.resolve(|name| operators.id(name), |name| class_id(rules, name), now)
}

fn class_id(rules: &Rules, name: &str) -> Option<ClassId> {
    rules.classes.iter().position(|class| class.name == name).map(ClassId::from_index)
}

impl ServiceState {
    /// Makes a change and activates it. Returns it, or an error of one line.
    pub(super) fn change_switch(&self, change: SwitchChange) -> Result<SwitchEntry, String> {
        let now = self.handle.now();
        let target = self.handle.with_settings(|settings| self.switch_target(&change, &settings.rules))?;
        let until = change.lasts.filter(|_| change.effect.is_some()).map(|lasts| now + lasts);
        let entry = SwitchEntry {
            target,
            effect: change.effect.map(|effect| effect.name().to_owned()),
            changed_at_us: now.0 / 1000,
            until_s: until.map(Timestamp::seconds),
            except: change.except,
            why: change.why,
            by: change.by,
            peer: change.peer,
        };
        if entry.effect.is_none() && !self.switches.current(now).iter().any(|known| known.target == entry.target) {
            return Err(format!("target: no switch of {} is in effect; `tidegate status` lists all", entry.target));
        }
        let changed = self.switches.change(entry.clone(), now);
        self.apply_switches();
        match changed {
            Ok(()) => Ok(entry),
            Err(error @ SwitchError::NotStored { .. }) => {
                warn!("Switch of {}: {error}", entry.target);
                Ok(entry)
            }
            Err(error @ SwitchError::TooMany) => Err(format!("target: {error}")),
        }
    }

    /// Activates the switches in effect.
    pub(super) fn apply_switches(&self) {
        let _lock = self.switch_lock.lock();
        let now = self.handle.now();
        let switches =
            self.handle.with_settings(|settings| resolve(&self.switches, &self.operators, &settings.rules, now));
        self.handle.replace_switches(switches);
    }

    /// Exchanges switches with other gateways, until dropped. Returns at once if there are none.
    pub(super) async fn share_switches(&self) {
        let Some(shared) = &self.shared_switches else { return };
        let mut shared = shared.lock().await;
        let mut ticks = tokio::time::interval(EXCHANGE_INTERVAL);
        let mut is_failing = false;
        loop {
            ticks.tick().await;
            let now = self.handle.now();
            let result = shared.exchange(&self.switches.changes(now), now).await;
            match (&result, is_failing) {
                (Err(error), false) => warn!("Switches are not shared with other gateways: {error}"),
                (Ok(_), true) => info!("Switches are shared with other gateways again"),
                _ => {}
            }
            is_failing = result.is_err();
            match self.switches.merge(result.unwrap_or_default(), now) {
                Ok(false) => {}
                Ok(true) => self.apply_switches(),
                Err(error) => {
                    warn!("Switches of other gateways: {error}");
                    self.apply_switches();
                }
            }
        }
    }

    /// Returns the canonical target of a change.
    fn switch_target(&self, change: &SwitchChange, rules: &Rules) -> Result<String, String> {
        let text = change.target.as_str();
        let is_maintenance = change.effect == Some(SwitchEffect::Maintenance);
        if text == MAINTENANCE && (is_maintenance || change.effect.is_none()) {
            return Ok(text.to_owned());
        }
        // A class that a reload removed, or a network that another gateway blocked, can still be ended.
        let is_ended = change.effect.is_none();
        if let Some(network) = IpPrefix::parse(text) {
            return network_target(text, network, rules.trust.ipv6_prefix, is_ended);
        }
        let is_class = |name: &str| class_id(rules, name).is_some();
        let is_operator = |name: &str| self.operators.id(name).is_some();
        let target = match text.split_once(':') {
            Some(("class", name)) if is_class(name) || is_ended => Some(text.to_owned()),
            Some(("operator", name)) if is_operator(name) || is_ended => Some(text.to_owned()),
            _ => match (is_class(text), is_operator(text)) {
                (true, true) => {
                    return Err(format!(
                        "target: {text} is a class and an operator; write class:{text} or operator:{text}"
                    ));
                }
                (true, false) => Some(format!("class:{text}")),
                (false, true) => Some(format!("operator:{text}")),
                (false, false) => None,
            },
        };
        target.ok_or_else(|| {
            let classes: Vec<&str> = rules.classes.iter().map(|class| class.name.as_str()).collect();
            format!(
                "target: found {text:?}; give an address, a network such as 192.0.2.0/24, an operator such as googlebot, or \
                 a class ({})",
                classes.join(", ")
            )
        })
    }
}

/// Returns a network as a target: one IPv6 address becomes the network of its client.
fn network_target(text: &str, network: IpPrefix, ipv6_prefix: u8, is_ended: bool) -> Result<String, String> {
    let (first, _) = network.bounds();
    let shortest = if first.is_ipv4() { SHORTEST_PREFIX.0 } else { SHORTEST_PREFIX.1 };
    if network.length() < shortest && !is_ended {
        return Err(format!("target: {text} has too many clients; give a network of at least /{shortest}, or a class"));
    }
    let client = IpPrefix::new(first, ipv6_prefix).filter(|_| first.is_ipv6() && network.length() == 128);
    Ok(client.unwrap_or(network).to_string())
}
