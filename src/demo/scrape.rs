//! Scrapes and parses `/metrics` of a running gateway.

use crate::admin::Client;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Samples of one scrape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scrape {
    samples: Vec<Sample>,
}

#[derive(Clone, Debug, PartialEq)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Scrape {
    /// Scrapes the admin listener at `admin`.
    pub async fn fetch(admin: SocketAddr) -> Result<Self, anyhow::Error> {
        let response = Client::new(admin.to_string()).get("/metrics").await?;
        anyhow::ensure!(response.status.is_success(), "/metrics returned {}", response.status);
        Ok(Self::parse(&response.body))
    }

    /// Parses the Prometheus text format; skips invalid lines.
    pub fn parse(text: &str) -> Self {
        Self { samples: text.lines().filter_map(parse_sample).collect() }
    }

    /// Returns the sum of all samples of the metric `name` with these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let matches = |sample: &&Sample| {
            sample.name == name
                && labels.iter().all(|(label, value)| sample.labels.get(*label).is_some_and(|actual| actual == value))
        };
        self.samples.iter().filter(matches).map(|sample| sample.value).sum()
    }

    /// Like [`Self::sum`], but as an integer.
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.sum(name, labels) as u64
    }

    /// Returns the distinct values of `label` in samples of the metric `name`, sorted.
    pub fn values(&self, name: &str, label: &str) -> Vec<String> {
        let named = self.samples.iter().filter(|sample| sample.name == name);
        let mut values: Vec<String> = named.filter_map(|sample| sample.labels.get(label).cloned()).collect();
        values.sort();
        values.dedup();
        values
    }
}

fn parse_sample(line: &str) -> Option<Sample> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let name_ends = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(name_ends);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, value) = rest.split_once("=\"")?;
            let (value, after) = parse_quoted(value)?;
            labels.insert(label.trim_start_matches(',').trim().to_owned(), value);
            rest = after;
        }
        rest = &rest[1..];
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// Splits at the closing quotation mark: returns the unescaped text before it and the rest after it.
fn parse_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_over_unfiltered_labels() {
        let scrape = Scrape::parse(
            "# HELP tidegate_requests_total Requests.\n\
             tidegate_requests_total{class=\"person\",verdict=\"admitted\",reason=\"\"} 12\n\
             tidegate_requests_total{class=\"bot\",verdict=\"refused\",reason=\"tier\"} 3\n\
             tidegate_requests_total{class=\"bot\",verdict=\"refused\",reason=\"a \\\"b\\\" }\"} 4\n\
             tidegate_clients_tracked 7\n\
             half a line",
        );
        assert_eq!(scrape.count("tidegate_requests_total", &[]), 19);
        assert_eq!(scrape.count("tidegate_requests_total", &[("class", "bot")]), 7);
        assert_eq!(scrape.count("tidegate_requests_total", &[("reason", "a \"b\" }")]), 4);
        assert_eq!(scrape.count("tidegate_clients_tracked", &[]), 7);
        assert_eq!(scrape.values("tidegate_requests_total", "class"), ["bot", "person"]);
    }
}
