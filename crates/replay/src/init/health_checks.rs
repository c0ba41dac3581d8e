//! Paths that only the site's own machines request: health checks of balancers and orchestrators, and calls over loopback.

use std::collections::BTreeMap;
use std::net::IpAddr;
use tidegate_policy::network::is_private;

/// Number of requests for paths that machines of the site request, by path: own ones, and those of others.
#[derive(Debug, Default)]
pub(super) struct HealthChecks(BTreeMap<String, (u64, u64)>);

impl HealthChecks {
    /// Records a request.
    pub(super) fn record(&mut self, path: &str, client: Option<IpAddr>, user_agent: &[u8]) {
        let is_own = client.is_some_and(|client| is_own(client, user_agent));
        if let Some((own, others)) = self.0.get_mut(path) {
            *(if is_own { own } else { others }) += 1;
        } else if is_own && self.0.len() < MAX_PATHS {
            self.0.insert(path.to_owned(), (1, 0));
        }
    }

    /// Returns the paths that nearly nobody else requests, with the number of own requests, most first.
    pub(super) fn paths(&self) -> Vec<(&str, u64)> {
        let is_check = |(own, others): &(u64, u64)| *own >= MIN_CALLS && *own >= others.saturating_mul(MIN_RATIO);
        let checks = self.0.iter().filter(|(path, counts)| is_check(counts) && is_plain(path));
        let mut paths: Vec<(&str, u64)> = checks.map(|(path, (own, _))| (path.as_str(), *own)).collect();
        paths.sort_by_key(|(_, own)| std::cmp::Reverse(*own));
        paths.truncate(MAX_CHECKS);
        paths
    }
}

/// Returns true for a request over loopback, and for one of a checker inside of the network. A user agent alone proves nothing.
fn is_own(client: IpAddr, user_agent: &[u8]) -> bool {
    client.is_loopback() || is_private(client) && CHECKERS.iter().any(|name| user_agent.starts_with(name.as_bytes()))
}

/// Returns true for a path that stands for itself in a pattern and in YAML. The root is a page of people, whoever checks it.
fn is_plain(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte);
    path.len() > 1 && path.len() <= MAX_LENGTH && path.bytes().all(is_plain)
}

/// Starts of the user agents of health checkers.
const CHECKERS: [&str; 7] =
    ["kube-probe/", "ELB-HealthChecker/", "GoogleHC/", "Consul Health Check", "Envoy/HC", "HAProxy", "Go-http-client/"];

/// Number of own calls from which a path is a check. A few lines are easily forged.
const MIN_CALLS: u64 = 20;
/// Own calls for each call of others, at least.
const MIN_RATIO: u64 = 50;
/// Maximum number of paths tracked.
const MAX_PATHS: usize = 256;
/// Maximum number of paths returned: a site has one or two.
const MAX_CHECKS: usize = 3;
/// Maximum length of a path, in bytes.
const MAX_LENGTH: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKER: &[u8] = b"kube-probe/1.30";

    fn record(checks: &mut HealthChecks, count: u32, path: &str, client: [u8; 4], agent: &[u8]) {
        for _ in 0..count {
            checks.record(path, Some(client.into()), agent);
        }
    }

    #[test]
    fn path_of_own_machines_alone_is_a_check() {
        let mut checks = HealthChecks::default();
        record(&mut checks, 1000, "/healthz", [10, 0, 0, 1], CHECKER);
        record(&mut checks, 20, "/healthz", [203, 0, 113, 9], b"Mozilla/5.0");
        record(&mut checks, 100, "/cron/run.php", [127, 0, 0, 1], b"curl/8");
        record(&mut checks, 100, "/shop", [127, 0, 0, 1], b"curl/8");
        record(&mut checks, 3, "/shop", [203, 0, 113, 9], b"Mozilla/5.0");
        record(&mut checks, 100, "/", [127, 0, 0, 1], b"curl/8");
        record(&mut checks, 19, "/rare", [127, 0, 0, 1], b"curl/8");
        // Anyone sends the user agent of a checker.
        record(&mut checks, 100, "/page", [203, 0, 113, 9], CHECKER);
        record(&mut checks, 100, "/a\"b*", [127, 0, 0, 1], b"curl/8");
        assert_eq!(checks.paths(), [("/healthz", 1000), ("/cron/run.php", 100)]);
    }
}
