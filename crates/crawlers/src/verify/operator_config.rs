//! Definitions of operators: the built-in data and the overrides of the config.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::Deserialize;

use super::range_source::{RangeSource, parse_cidr};
use tidegate_policy::ProofMethod;
use tidegate_policy::dns_pattern::DnsPattern;
use tidegate_policy::purpose::Purpose;

/// An operator, as in `data/operators.json`. `data/README.md` describes the keys of that file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Operator {
    pub(super) name: String,
    /// The operator's own documentation of its crawlers, for review of this table.
    #[serde(rename = "documentation")]
    _documentation: String,
    /// What the operator fetches pages for, by its own statement.
    #[serde(deserialize_with = "purpose")]
    pub(super) purpose: Option<Purpose>,
    pub(super) product_tokens: Vec<String>,
    /// Networks, or URLs of lists, whose addresses belong to the crawler.
    pub(super) verified_ranges: Vec<RangeSource>,
    /// Networks, or URLs of lists, whose addresses may belong to the operator or to other users of its network. They
    /// neither prove nor disprove a claim.
    pub(super) neutral_ranges: Vec<RangeSource>,
    /// Patterns of DNS names that only the addresses of its crawlers have.
    #[serde(deserialize_with = "patterns")]
    pub(super) dns_names: Vec<DnsPattern>,
    /// Proofs that apply to all of its crawlers: an address that fails one is an impostor.
    #[serde(deserialize_with = "proof_methods")]
    pub(super) exhaustive: Vec<ProofMethod>,
    /// `Signature-Agent` of requests that the operator signs.
    pub(super) signature_agents: Vec<String>,
    /// True if the config overrides the operator.
    #[serde(skip)]
    pub(super) is_overridden: bool,
    /// True if the operator is defined only in the config.
    #[serde(skip)]
    pub(super) is_custom: bool,
}

impl Operator {
    /// Returns the sources of its verified and neutral ranges that are lists rather than single networks.
    pub(super) fn lists(&self) -> impl Iterator<Item = &RangeSource> {
        self.verified_ranges
            .iter()
            .chain(&self.neutral_ranges)
            .filter(|source| !matches!(source, RangeSource::Network(_)))
    }
}

/// Override of an operator by the config; omitted fields keep the built-in values.
#[derive(Clone, Debug, Default)]
pub struct OperatorOverride {
    /// Name of the operator.
    pub name: String,
    /// What the operator fetches pages for.
    pub purpose: Option<Purpose>,
    /// Product tokens by which a user agent claims the operator.
    pub product_tokens: Option<Vec<String>>,
    /// Address ranges of its crawlers.
    pub ranges: Option<Vec<RangeSource>>,
    /// Patterns of the DNS names of its crawlers' addresses.
    pub dns_names: Option<Vec<DnsPattern>>,
    /// Proofs that apply to all of its crawlers.
    pub exhaustive: Option<Vec<ProofMethod>>,
    /// `Signature-Agent` of requests that the operator signs.
    pub signature_agents: Option<Vec<String>>,
}

/// Snapshot of the published lists, from `data/ranges.json`.
pub(super) struct RangeSnapshot {
    /// Date of the snapshot, such as `2026-09-02`.
    pub(super) date: String,
    /// Networks of each list.
    pub(super) lists: BTreeMap<RangeSource, Vec<IpNet>>,
}

/// Reason why an operator table is invalid.
#[derive(Debug, thiserror::Error)]
pub enum OperatorTableError {
    /// The JSON has another structure.
    #[error("invalid operator table")]
    Syntax(#[source] serde_json::Error),
    /// A prefix of a list is not a network.
    #[error("`{0}` is not a network such as 192.0.2.0/24")]
    InvalidNetwork(String),
}

/// Parses the built-in operators and applies the overrides, in their order.
pub(super) fn parse_operators(
    json: &str,
    overrides: Vec<OperatorOverride>,
) -> Result<Vec<Operator>, OperatorTableError> {
    let mut table: Vec<Operator> = serde_json::from_str(json).map_err(OperatorTableError::Syntax)?;
    for config in overrides {
        apply_override(&mut table, config);
    }
    Ok(table)
}

/// Changes the operator that `config` names, or adds it to the table.
fn apply_override(table: &mut Vec<Operator>, config: OperatorOverride) {
    let OperatorOverride { name, purpose, product_tokens, ranges, dns_names, exhaustive, signature_agents } = config;
    // A product token or signature agent stands for one operator, so the others lose it.
    if let Some(tokens) = &product_tokens {
        let is_claimed = |token: &String| tokens.iter().any(|claimed| claimed.eq_ignore_ascii_case(token));
        table.iter_mut().for_each(|operator| operator.product_tokens.retain(|token| !is_claimed(token)));
    }
    if let Some(agents) = &signature_agents {
        table.iter_mut().for_each(|operator| operator.signature_agents.retain(|agent| !agents.contains(agent)));
    }
    let index = table.iter().position(|operator| operator.name == name).unwrap_or_else(|| {
        table.push(Operator { name, is_custom: true, ..Operator::default() });
        table.len() - 1
    });
    let operator = &mut table[index];
    operator.is_overridden = true;
    operator.purpose = purpose.or(operator.purpose);
    replace_if_given(&mut operator.product_tokens, product_tokens);
    replace_if_given(&mut operator.verified_ranges, ranges);
    replace_if_given(&mut operator.dns_names, dns_names);
    replace_if_given(&mut operator.exhaustive, exhaustive);
    replace_if_given(&mut operator.signature_agents, signature_agents);
}

fn replace_if_given<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

/// Parses the snapshot of the published lists.
pub(super) fn parse_snapshot(json: &str) -> Result<RangeSnapshot, OperatorTableError> {
    #[derive(Deserialize)]
    struct SnapshotFile {
        date: String,
        lists: BTreeMap<String, SnapshotList>,
    }
    #[derive(Deserialize)]
    struct SnapshotList {
        prefixes: Vec<String>,
    }
    let parsed: SnapshotFile = serde_json::from_str(json).map_err(OperatorTableError::Syntax)?;
    let networks = |list: SnapshotList| -> Result<Vec<IpNet>, OperatorTableError> {
        list.prefixes
            .into_iter()
            .map(|text| parse_cidr(&text).ok_or(OperatorTableError::InvalidNetwork(text)))
            .collect()
    };
    let lists = parsed.lists.into_iter().map(|(url, list)| Ok((RangeSource::Url(url), networks(list)?)));
    Ok(RangeSnapshot { date: parsed.date, lists: lists.collect::<Result<_, _>>()? })
}

fn proof_methods<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<ProofMethod>, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum StoredProofMethod {
        Ranges,
        DnsNames,
    }
    let method = |name| match name {
        StoredProofMethod::Ranges => ProofMethod::Address,
        StoredProofMethod::DnsNames => ProofMethod::Dns,
    };
    Ok(Vec::<StoredProofMethod>::deserialize(deserializer)?.into_iter().map(method).collect())
}

fn purpose<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Purpose>, D::Error> {
    let name = String::deserialize(deserializer)?;
    let invalid = || serde::de::Error::custom(format!("invalid purpose: {name}"));
    Purpose::from_name(&name).map(Some).ok_or_else(invalid)
}

fn patterns<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<DnsPattern>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let pattern =
        |text: &String| text.parse().map_err(|_| serde::de::Error::custom(format!("invalid DNS pattern: {text}")));
    texts.iter().map(pattern).collect()
}
