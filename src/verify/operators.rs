//! The operators of crawlers that we know: what they call their crawlers, and what proves that it is they.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;

use super::ranges::{Ranges, Standing};
use crate::policy::{OperatorId, Proof};

/// The table of operators, with all their published address ranges.
#[derive(Debug)]
pub struct Operators {
    operators: Vec<Operator>,
    ranges: Ranges,
    snapshot_date: String,
}

impl Operators {
    /// Returns the built-in table and the snapshot of the ranges that this binary carries.
    ///
    /// # Panics
    ///
    /// If the data in this binary is broken, which a test rules out.
    pub fn builtin() -> Operators {
        Operators::parse(include_str!("../../data/operators.json"), include_str!("../../data/ranges.json"))
            .expect("a test reads the built-in table")
    }

    fn parse(operators: &str, snapshot: &str) -> Result<Operators, Mistake> {
        let operators: Vec<Operator> = serde_json::from_str(operators).map_err(Mistake::Syntax)?;
        let snapshot: Snapshot = serde_json::from_str(snapshot).map_err(Mistake::Syntax)?;
        let mut ranges = Ranges::default();
        for (operator, id) in operators.iter().zip(0..) {
            for (sources, standing) in
                [(&operator.proven_in, Standing::Proven), (&operator.undecided_in, Standing::Undecided)]
            {
                for source in sources {
                    for range in snapshot.networks(source)? {
                        ranges.add(range, OperatorId(id), standing);
                    }
                }
            }
        }
        Ok(Operators { operators, ranges, snapshot_date: snapshot.date })
    }

    /// Returns the names of all operators, in the order of their numbers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.operators.iter().map(|operator| operator.name.as_str())
    }

    /// Returns the operator of this name.
    pub fn id(&self, name: &str) -> Option<OperatorId> {
        self.with_ids().find(|(_, operator)| operator.name == name).map(|(id, _)| id)
    }

    /// Returns the name of an operator of this table.
    pub fn name(&self, operator: OperatorId) -> &str {
        &self.operators[usize::from(operator.0)].name
    }

    /// Returns every product token by which a user agent claims an operator.
    pub fn tokens(&self) -> impl Iterator<Item = (&str, OperatorId)> {
        self.with_ids().flat_map(|(id, operator)| operator.tokens.iter().map(move |token| (token.as_str(), id)))
    }

    /// Returns what this address proves about the claim to be that operator's crawler.
    pub fn proof(&self, claimed: OperatorId, address: IpAddr) -> Proof {
        match self.ranges.standing(claimed, address) {
            Some(Standing::Proven) => Proof::Proven,
            Some(Standing::Undecided) => Proof::Unknown,
            None if self.operators[usize::from(claimed.0)].complete => Proof::Disproven,
            None => Proof::Unknown,
        }
    }

    /// Returns every name by which an agent of an operator signs.
    pub fn signature_agents(&self) -> impl Iterator<Item = (&str, OperatorId)> {
        self.with_ids()
            .flat_map(|(id, operator)| operator.signature_agents.iter().map(move |agent| (agent.as_str(), id)))
    }

    /// Returns the day on which the built-in ranges were collected (`2026-09-02`).
    pub fn snapshot_date(&self) -> &str {
        &self.snapshot_date
    }

    fn with_ids(&self) -> impl Iterator<Item = (OperatorId, &Operator)> {
        (0..).map(OperatorId).zip(&self.operators)
    }
}

/// One operator, as written in `data/operators.json`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Operator {
    name: String,
    /// The operator's own page about its crawlers, for whoever checks this table.
    #[serde(rename = "documented")]
    _documented: String,
    tokens: Vec<String>,
    /// Lists of the snapshot by name, or networks: an address in one is the crawler's.
    proven_in: Vec<String>,
    /// The same: an address in one is the operator's or its neighbours', and neither proves nor disproves.
    undecided_in: Vec<String>,
    /// An address in none of them disproves the claim.
    complete: bool,
    /// The `Signature-Agent` of requests that it signs.
    #[serde(default)]
    signature_agents: Vec<String>,
}

/// The published lists, as collected in `data/ranges.json`.
#[derive(Debug, Deserialize)]
struct Snapshot {
    date: String,
    lists: BTreeMap<String, List>,
}

#[derive(Debug, Deserialize)]
struct List {
    prefixes: Vec<String>,
}

impl Snapshot {
    /// Returns the networks of a list, or the one network that `source` itself is.
    fn networks(&self, source: &str) -> Result<Vec<IpNet>, Mistake> {
        if let Ok(network) = source.parse() {
            return Ok(vec![network]);
        }
        let list = self.lists.get(source).ok_or_else(|| Mistake::NoSuchList(source.to_owned()))?;
        let networks = list.prefixes.iter();
        networks.map(|text| text.parse().map_err(|_| Mistake::NotANetwork(text.to_owned()))).collect()
    }
}

/// Why a table of operators cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Mistake {
    /// The JSON does not say what it should.
    #[error("the operators' table cannot be read")]
    Syntax(#[source] serde_json::Error),
    /// An operator refers to a list that the snapshot does not have.
    #[error("there is no list `{0}`, and it is no network either")]
    NoSuchList(String),
    /// A prefix of a list is none.
    #[error("`{0}` is not a network such as 192.0.2.0/24")]
    NotANetwork(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_can_be_read() {
        let operators =
            Operators::parse(include_str!("../../data/operators.json"), include_str!("../../data/ranges.json"));
        let operators = operators.unwrap_or_else(|mistake| panic!("{mistake}"));
        assert!(operators.names().count() > 20);
        assert_eq!(operators.snapshot_date().len(), "2026-09-02".len());
    }

    #[test]
    fn names_and_tokens_are_told_once() {
        let operators = Operators::builtin();
        let mut tokens: Vec<_> = operators.tokens().map(|(token, _)| token.to_ascii_lowercase()).collect();
        let told = tokens.len();
        tokens.sort();
        tokens.dedup();
        assert_eq!(tokens.len(), told);
        for name in operators.names() {
            let id = operators.id(name).expect("a name from the table");
            assert_eq!(operators.name(id), name);
        }
        assert_eq!(operators.id("nobody"), None);
    }

    #[test]
    fn an_address_that_the_operator_publishes_proves_the_claim() {
        assert_eq!(proof("googlebot", "66.249.66.1"), Proof::Proven);
        assert_eq!(proof("googlebot", "2001:4860:4801:10::1"), Proof::Proven);
        assert_eq!(proof("bingbot", "157.55.39.7"), Proof::Proven);
        assert_eq!(proof("claudebot", "216.73.216.9"), Proof::Proven);
    }

    #[test]
    fn an_address_elsewhere_disproves_it_where_the_list_is_complete() {
        assert_eq!(proof("googlebot", "203.0.113.64"), Proof::Disproven);
        assert_eq!(proof("googlebot", "2001:db8::1"), Proof::Disproven);
        assert_eq!(proof("bingbot", "192.0.2.16"), Proof::Disproven);
        assert_eq!(proof("facebookexternalhit", "192.0.2.16"), Proof::Unknown);
        assert_eq!(proof("yandexbot", "192.0.2.16"), Proof::Unknown);
    }

    #[test]
    fn an_ipv4_client_behind_an_ipv6_listener_is_the_same_client() {
        assert_eq!(proof("googlebot", "::ffff:66.249.66.1"), Proof::Proven);
        assert_eq!(proof("googlebot", "::ffff:203.0.113.64"), Proof::Disproven);
    }

    #[test]
    fn the_proof_is_for_the_operator_that_was_claimed() {
        assert_eq!(proof("bingbot", "66.249.66.1"), Proof::Disproven);
        assert_eq!(proof("gptbot", "66.249.66.1"), Proof::Disproven);
    }

    #[test]
    fn googles_other_crawlers_do_not_prove_googlebot_but_its_customers_disprove_it() {
        // A special-case crawler's address, then one of App Engine, where anybody's program may run.
        assert_eq!(proof("google-special", "108.177.2.1"), Proof::Proven);
        assert_eq!(proof("googlebot", "108.177.2.1"), Proof::Unknown);
        assert_eq!(proof("google-fetchers", "107.178.192.1"), Proof::Proven);
        assert_eq!(proof("googlebot", "107.178.192.1"), Proof::Disproven);
    }

    #[test]
    fn a_wide_network_does_not_hide_a_narrow_one_nor_the_other_way_round() {
        // All of 17/8 is Apple's; only a part of it crawls.
        assert_eq!(proof("applebot", "17.1.2.3"), Proof::Unknown);
        assert_eq!(proof("applebot", "17.241.208.161"), Proof::Proven);
    }

    #[test]
    fn a_broken_table_is_told_and_not_used() {
        let snapshot = r#"{"date": "2026-09-02", "lists": {"ours": {"prefixes": ["192.0.2.0/33"]}}}"#;
        let with = |source: &str| {
            let table = format!(
                r#"[{{"name": "a", "documented": "", "tokens": [], "proven_in": ["{source}"], "undecided_in": [], "complete": true}}]"#
            );
            Operators::parse(&table, snapshot).expect_err("broken on purpose").to_string()
        };
        assert_eq!(with("theirs"), "there is no list `theirs`, and it is no network either");
        assert_eq!(with("ours"), "`192.0.2.0/33` is not a network such as 192.0.2.0/24");
    }

    fn proof(operator: &str, address: &str) -> Proof {
        let operators = Operators::builtin();
        let id = operators.id(operator).expect("a name from the table");
        operators.proof(id, address.parse().expect("an address"))
    }
}
