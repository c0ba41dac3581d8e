//! The limit of open files, of which each connection needs one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_config::Settings;

/// Files that the gateway needs besides its connections: logs, ledger, lists, admin connections, bodies in files.
const RESERVED: u64 = 256;

/// Raises the soft limit of open files to the hard limit. Returns a warning if the connections of `settings` do not fit.
pub(super) fn raise_limit(settings: &Settings) -> Option<String> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    let available = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let connections: usize = settings.origins.iter().map(|origin| origin.max_connections).sum();
    let origin = connections + settings.limits.max_upgrades;
    shortage(settings.limits.max_connections as u64, origin as u64, available)
}

/// Returns a warning if `available` descriptors are too few; `None` is no limit.
fn shortage(clients: u64, origin: u64, available: Option<u64>) -> Option<String> {
    let needed = clients + origin + RESERVED;
    available.filter(|available| *available < needed).map(|available| {
        format!(
            "{available} open files are allowed, and limits.max_connections ({clients}), origin.max_connections with \
             limits.max_upgrades ({origin}) and {RESERVED} others need {needed}: raise the limit (LimitNOFILE=, ulimit \
             -n), or lower limits.max_connections"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortage_is_what_does_not_fit() {
        assert_eq!(shortage(1000, 100, None), None);
        assert_eq!(shortage(1000, 100, Some(1356)), None);
        let warning = shortage(1000, 100, Some(1355)).expect("one is missing");
        assert!(warning.starts_with("1355 open files are allowed") && warning.contains("need 1356"), "{warning}");
    }
}
