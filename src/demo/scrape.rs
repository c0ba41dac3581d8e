//! Scrapes `/metrics` of the running gateway.

use crate::admin::AdminClient;
use std::net::SocketAddr;

/// Text of one scrape.
#[derive(Clone, Debug, Default)]
pub(super) struct Scrape(String);

impl Scrape {
    /// Scrapes the admin listener at `admin`.
    pub(super) async fn fetch(admin: SocketAddr) -> anyhow::Result<Self> {
        let response = AdminClient::new(admin.to_string()).get("/metrics").await?;
        anyhow::ensure!(response.status.is_success(), "/metrics returned {}", response.status);
        Ok(Self(response.body))
    }

    /// Returns the sum of the samples of `metric` with a `label`, such as `class="bot"`.
    pub(super) fn sum(&self, metric: &str, label: &str) -> f64 {
        let samples = self.0.lines().filter_map(|line| line.strip_prefix(metric)?.strip_prefix('{')?.rsplit_once("} "));
        samples.filter(|(labels, _)| labels.contains(label)).filter_map(|(_, value)| value.parse::<f64>().ok()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_over_unfiltered_labels() {
        let scrape = Scrape(
            "# HELP tidegate_requests_total Requests.\n\
             tidegate_requests_total{class=\"person\",verdict=\"admitted\"} 12\n\
             tidegate_requests_total{class=\"bot\",verdict=\"refused\"} 3\n\
             tidegate_requests_total{class=\"bot\",verdict=\"admitted\"} 4\n\
             tidegate_requests{class=\"bot\"} 9\n\
             half a line"
                .into(),
        );
        assert_eq!(scrape.sum("tidegate_requests_total", "class=\"bot\""), 7.0);
    }
}
