//! The operators as they are written: in the data that the binary carries, and by the operator of the site.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::Deserialize;

use super::range_source::{RangeSource, network};
use crate::policy::dns_pattern::DnsPattern;

/// One operator, as written in `data/operators.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Operator {
    pub(super) name: String,
    /// The operator's own page about its crawlers, for whoever checks this table.
    #[serde(rename = "documented")]
    _documented: String,
    #[serde(rename = "tokens")]
    pub(super) product_tokens: Vec<String>,
    /// Lists by URL, or networks: an address in one is the crawler's.
    #[serde(rename = "proven_in")]
    pub(super) verified_ranges: Vec<RangeSource>,
    /// The same: an address in one is the operator's or its neighbours', and neither proves nor disproves.
    #[serde(rename = "undecided_in")]
    pub(super) neutral_ranges: Vec<RangeSource>,
    /// The names in DNS that its crawlers' addresses have, and nobody else's.
    #[serde(deserialize_with = "patterns")]
    #[serde(rename = "names")]
    pub(super) dns_names: Vec<DnsPattern>,
    /// By what all of its crawlers are known: whoever fails there is not one of them.
    #[serde(rename = "complete")]
    pub(super) exhaustive: Vec<OperatorProofMethod>,
    /// The `Signature-Agent` of requests that it signs.
    pub(super) signature_agents: Vec<String>,
    /// The operator of the site has something to say about it.
    #[serde(skip)]
    pub(super) declared: bool,
    /// Nobody else knows it.
    #[serde(skip)]
    pub(super) own: bool,
}

impl Operator {
    /// The lists that tell its addresses, or its neighbours'.
    pub(super) fn lists(&self) -> impl Iterator<Item = &RangeSource> {
        self.verified_ranges
            .iter()
            .chain(&self.neutral_ranges)
            .filter(|source| !matches!(source, RangeSource::Network(_)))
    }
}

/// What the operator of the site says of an operator of crawlers; what is left out is as built in.
#[derive(Clone, Debug, Default)]
pub struct OperatorOverride {
    /// Its name.
    pub name: String,
    /// Product tokens by which a user agent claims to be its crawler.
    pub product_tokens: Option<Vec<String>>,
    /// Where its crawlers come from.
    pub ranges: Option<Vec<RangeSource>>,
    /// The names in DNS that its crawlers' addresses have.
    pub dns_names: Option<Vec<DnsPattern>>,
    /// By what all of its crawlers are known.
    pub exhaustive: Option<Vec<OperatorProofMethod>>,
    /// The `Signature-Agent` of requests that it signs.
    pub signature_agents: Option<Vec<String>>,
}

/// How an operator lets its crawlers be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorProofMethod {
    /// It publishes their addresses.
    #[serde(rename = "addresses")]
    Address,
    /// Their addresses have its names in DNS.
    #[serde(rename = "names")]
    Dns,
}

/// The published lists, as collected in `data/ranges.json`.
pub(super) struct Snapshot {
    pub(super) date: String,
    pub(super) lists: BTreeMap<RangeSource, Vec<IpNet>>,
}

/// Why a table of operators cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OperatorTableError {
    /// The JSON does not say what it should.
    #[error("the operators' table cannot be read")]
    Syntax(#[source] serde_json::Error),
    /// A prefix of a list is none.
    #[error("`{0}` is not a network such as 192.0.2.0/24")]
    NotANetwork(String),
}

/// Returns the table with what was declared, and the lists as they were when the snapshot was made.
pub(super) fn parse(
    table: &str,
    snapshot: &str,
    declared: Vec<OperatorOverride>,
) -> Result<(Vec<Operator>, Snapshot), OperatorTableError> {
    let mut table: Vec<Operator> = serde_json::from_str(table).map_err(OperatorTableError::Syntax)?;
    declared.into_iter().for_each(|declared| apply_override(&mut table, declared));
    Ok((table, snapshot_of(snapshot)?))
}

fn apply_override(table: &mut Vec<Operator>, declared: OperatorOverride) {
    let OperatorOverride { name, product_tokens, ranges, dns_names, exhaustive, signature_agents } = declared;
    if let Some(tokens) = &product_tokens {
        let taken = |token: &String| tokens.iter().any(|ours| ours.eq_ignore_ascii_case(token));
        table.iter_mut().for_each(|operator| operator.product_tokens.retain(|token| !taken(token)));
    }
    if let Some(agents) = &signature_agents {
        table.iter_mut().for_each(|operator| operator.signature_agents.retain(|agent| !agents.contains(agent)));
    }
    let place = table.iter().position(|operator| operator.name == name).unwrap_or_else(|| {
        table.push(Operator { name, own: true, ..Operator::default() });
        table.len() - 1
    });
    let operator = &mut table[place];
    operator.declared = true;
    operator.product_tokens = product_tokens.unwrap_or_else(|| std::mem::take(&mut operator.product_tokens));
    operator.verified_ranges = ranges.unwrap_or_else(|| std::mem::take(&mut operator.verified_ranges));
    operator.dns_names = dns_names.unwrap_or_else(|| std::mem::take(&mut operator.dns_names));
    operator.exhaustive = exhaustive.unwrap_or_else(|| std::mem::take(&mut operator.exhaustive));
    operator.signature_agents = signature_agents.unwrap_or_else(|| std::mem::take(&mut operator.signature_agents));
}

fn snapshot_of(text: &str) -> Result<Snapshot, OperatorTableError> {
    #[derive(Deserialize)]
    struct Written {
        date: String,
        lists: BTreeMap<String, List>,
    }
    #[derive(Deserialize)]
    struct List {
        prefixes: Vec<String>,
    }
    let written: Written = serde_json::from_str(text).map_err(OperatorTableError::Syntax)?;
    let networks = |list: List| -> Result<Vec<IpNet>, OperatorTableError> {
        list.prefixes.into_iter().map(|text| network(&text).ok_or(OperatorTableError::NotANetwork(text))).collect()
    };
    let lists = written.lists.into_iter().map(|(url, list)| Ok((RangeSource::Url(url), networks(list)?)));
    Ok(Snapshot { date: written.date, lists: lists.collect::<Result<_, _>>()? })
}

fn patterns<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<DnsPattern>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let pattern = |text: &String| text.parse().map_err(|_| serde::de::Error::custom(format!("no pattern: {text}")));
    texts.iter().map(pattern).collect()
}
