//! Lookup table of crawler operators: their product tokens, and what verifies their crawlers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ipnet::IpNet;
use parking_lot::Mutex;

use super::dns::{DnsResult, DnsVerifier};
use super::operator_config::{Operator, OperatorOverride, OperatorTableError, parse_operators, parse_snapshot};
use super::range_source::RangeSource;
use super::ranges::{OperatorRange, RangeMatch, Ranges};
use tidegate_policy::network::is_private;
use tidegate_policy::purpose::Purpose;
use tidegate_policy::{OperatorId, Proof, ProofMethod, Timestamp};

/// Table of operators with their current address ranges.
#[derive(Debug)]
pub struct OperatorTable {
    table: Vec<Operator>,
    /// Networks of each list, as last loaded.
    lists: Mutex<BTreeMap<RangeSource, Vec<IpNet>>>,
    /// Errors of the lists whose last refresh failed.
    errors: Mutex<BTreeMap<RangeSource, String>>,
    /// Ranges for lookups. Replaced as a whole, so that no request waits while a list is refreshed.
    published: ArcSwap<PublishedRanges>,
    /// DNS verification, if enabled.
    dns: Option<Arc<DnsVerifier>>,
    snapshot_date: String,
}

/// Ranges of all lists at one time.
#[derive(Debug)]
struct PublishedRanges {
    ranges: Ranges,
    /// By operator: true if an address outside all of its ranges disproves the claim.
    exhaustive: Vec<bool>,
}

impl OperatorTable {
    /// Returns the built-in table with the snapshot of ranges in this binary.
    ///
    /// # Panics
    ///
    /// If the built-in data is invalid, which a test rules out.
    pub fn builtin() -> OperatorTable {
        OperatorTable::with_overrides(Vec::new())
    }

    /// Returns the names of the built-in operators, by id, without the cost of a table.
    ///
    /// # Panics
    ///
    /// If the built-in data is invalid, which a test rules out.
    pub fn builtin_names() -> Vec<&'static str> {
        #[derive(serde::Deserialize)]
        struct Named<'a> {
            name: &'a str,
        }
        let operators: Vec<Named<'_>> =
            serde_json::from_str(BUILTIN_OPERATORS).expect("a test parses the built-in table");
        operators.into_iter().map(|operator| operator.name).collect()
    }

    /// Returns the built-in table with the overrides of the config. The fields of an override replace those of the
    /// operator with the same name, and its product tokens are removed from all other operators.
    ///
    /// # Panics
    ///
    /// If the built-in data is invalid, which a test rules out.
    pub fn with_overrides(overrides: Vec<OperatorOverride>) -> OperatorTable {
        OperatorTable::parse(BUILTIN_OPERATORS, BUILTIN_RANGES, overrides).expect("a test parses the built-in table")
    }

    fn parse(
        operators_json: &str,
        ranges_json: &str,
        overrides: Vec<OperatorOverride>,
    ) -> Result<OperatorTable, OperatorTableError> {
        let table = parse_operators(operators_json, overrides)?;
        let snapshot = parse_snapshot(ranges_json)?;
        let published = PublishedRanges::new(&table, &snapshot.lists);
        Ok(OperatorTable {
            table,
            lists: Mutex::new(snapshot.lists),
            errors: Mutex::default(),
            published: ArcSwap::from_pointee(published),
            dns: None,
            snapshot_date: snapshot.date,
        })
    }

    /// Enables DNS for addresses that ranges do not decide. The caller must run [`DnsVerifier::run`].
    pub fn with_dns(self) -> OperatorTable {
        let patterns =
            self.with_ids().flat_map(|(id, operator)| operator.dns_names.iter().map(move |name| (name.clone(), id)));
        let dns = Some(Arc::new(DnsVerifier::new(patterns.collect())));
        OperatorTable { dns, ..self }
    }

    /// Returns the DNS verifier, if enabled.
    pub fn dns(&self) -> Option<Arc<DnsVerifier>> {
        self.dns.clone()
    }

    /// Returns the names of all operators, by id.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.table.iter().map(|operator| operator.name.as_str())
    }

    /// Returns the id of the operator with this name.
    pub fn id(&self, name: &str) -> Option<OperatorId> {
        self.with_ids().find(|(_, operator)| operator.name == name).map(|(id, _)| id)
    }

    /// Returns what an operator of this table fetches pages for, by its own statement.
    pub fn purpose(&self, operator: OperatorId) -> Option<Purpose> {
        self.table[operator.index()].purpose
    }

    /// Returns the name of an operator of this table.
    pub fn name(&self, operator: OperatorId) -> &str {
        &self.table[operator.index()].name
    }

    /// Returns true if the operator is built in, with or without an override.
    pub fn is_built_in(&self, operator: OperatorId) -> bool {
        self.table.get(operator.index()).is_some_and(|operator| !operator.is_custom)
    }

    /// Returns all product tokens by which user agents claim operators.
    pub fn product_tokens(&self) -> impl Iterator<Item = (&str, OperatorId)> {
        self.with_ids().flat_map(|(id, operator)| operator.product_tokens.iter().map(move |token| (token.as_str(), id)))
    }

    /// Returns the current proof for a client at `address` that claims to be a crawler of `claimed`. `now` is
    /// monotonic. Never waits: unknown addresses are looked up in the background.
    pub fn verify(&self, claimed: OperatorId, address: IpAddr, now: Timestamp) -> Proof {
        // On a dual-stack listener, an IPv4 client has the address ::ffff:a.b.c.d.
        let address = address.to_canonical();
        let operator = &self.table[claimed.index()];
        let published = self.published.load();
        match published.ranges.best_match(claimed, address) {
            Some(RangeMatch::Verified) => return Proof::Proven(ProofMethod::Address),
            // Range lists do not contain addresses of proxies, and DNS has no operator names for them.
            _ if is_private(address) => return Proof::PrivateAddress,
            None if published.exhaustive[claimed.index()] => return Proof::Disproven(ProofMethod::Address),
            Some(RangeMatch::Neutral) | None => {}
        }
        match self.dns.as_ref().filter(|_| !operator.dns_names.is_empty()) {
            Some(dns) => self.interpret_dns(claimed, dns.lookup(claimed, address, now)),
            None => Proof::Unknown,
        }
    }

    /// Returns all names by which agents of operators sign.
    pub fn signature_agents(&self) -> impl Iterator<Item = (&str, OperatorId)> {
        self.with_ids()
            .flat_map(|(id, operator)| operator.signature_agents.iter().map(move |agent| (agent.as_str(), id)))
    }

    /// Returns whether crawlers of the operator can be verified by `method`.
    pub fn supports(&self, operator: OperatorId, method: ProofMethod) -> bool {
        let operator = &self.table[operator.index()];
        match method {
            ProofMethod::Address => !operator.verified_ranges.is_empty(),
            ProofMethod::Dns => self.dns.is_some() && !operator.dns_names.is_empty(),
        }
    }

    /// Interprets a DNS result for the claim: a mismatch disproves it only if DNS names are exhaustive for the
    /// operator.
    pub fn interpret_dns(&self, claimed: OperatorId, result: DnsResult) -> Proof {
        let exhaustive = || self.table[claimed.index()].exhaustive.contains(&ProofMethod::Dns);
        match result {
            DnsResult::Verified => Proof::Proven(ProofMethod::Dns),
            DnsResult::Mismatch if exhaustive() => Proof::Disproven(ProofMethod::Dns),
            DnsResult::Mismatch | DnsResult::Unknown => Proof::Unknown,
        }
    }

    /// Returns all lists by URL or file, sorted, without duplicates.
    pub fn sources(&self) -> Vec<RangeSource> {
        let mut lists: Vec<RangeSource> = self.table.iter().flat_map(Operator::lists).cloned().collect();
        lists.sort();
        lists.dedup();
        lists
    }

    /// Returns the current networks of a list; empty if it was never loaded.
    pub(super) fn list(&self, source: &RangeSource) -> Vec<IpNet> {
        self.lists.lock().get(source).cloned().unwrap_or_default()
    }

    /// Replaces the networks of a list.
    pub(super) fn replace(&self, source: RangeSource, networks: Vec<IpNet>) {
        let mut lists = self.lists.lock();
        lists.insert(source, networks);
        self.published.store(PublishedRanges::new(&self.table, &lists).into());
    }

    /// Sets or clears the error of a list; its networks stay. Returns the previous error.
    pub(super) fn set_error(&self, source: &RangeSource, error: Option<String>) -> Option<String> {
        let mut errors = self.errors.lock();
        match error {
            Some(error) => errors.insert(source.clone(), error),
            None => errors.remove(source),
        }
    }

    /// Returns the lists whose last refresh failed, each with the error.
    pub fn errors(&self) -> Vec<(String, String)> {
        self.errors.lock().iter().map(|(source, error)| (source.to_string(), error.clone())).collect()
    }

    /// Returns the number of lists whose last refresh failed, for each operator that has lists.
    pub fn stale_lists(&self) -> Vec<(&str, usize)> {
        let errors = self.errors.lock();
        let with_lists = self.table.iter().filter(|operator| operator.lists().next().is_some());
        let stale = |operator: &Operator| operator.lists().filter(|source| errors.contains_key(source)).count();
        with_lists.map(|operator| (operator.name.as_str(), stale(operator))).collect()
    }

    /// Returns true if the config names the list.
    pub(super) fn is_overridden(&self, source: &RangeSource) -> bool {
        self.table.iter().any(|operator| operator.is_overridden && operator.verified_ranges.contains(source))
    }

    /// Returns the time of the built-in snapshot.
    pub(super) fn snapshot_time(&self) -> Timestamp {
        let day: Option<jiff::civil::Date> = self.snapshot_date.parse().ok();
        let midnight = day.and_then(|day| day.to_zoned_datetime(jiff::tz::TimeZone::UTC).ok());
        let seconds = midnight.map_or(0, |midnight| midnight.timestamp().as_second());
        Timestamp::from_seconds(seconds.try_into().unwrap_or_default())
    }

    /// Returns the date of the built-in snapshot (`2026-09-02`).
    pub fn snapshot_date(&self) -> &str {
        &self.snapshot_date
    }

    fn with_ids(&self) -> impl Iterator<Item = (OperatorId, &Operator)> {
        (0..).map(OperatorId).zip(&self.table)
    }
}

impl PublishedRanges {
    fn new(table: &[Operator], lists: &BTreeMap<RangeSource, Vec<IpNet>>) -> Self {
        let mut ranges: Vec<OperatorRange> = Vec::new();
        let mut exhaustive = Vec::with_capacity(table.len());
        for (operator, id) in table.iter().zip((0..).map(OperatorId)) {
            let both =
                [(&operator.verified_ranges, RangeMatch::Verified), (&operator.neutral_ranges, RangeMatch::Neutral)];
            for (sources, range_match) in both {
                for source in sources {
                    ranges.extend(source.networks(lists).iter().map(|network| (*network, id, range_match)));
                }
            }
            // Until a list is loaded, its addresses are missing from the ranges.
            let all_loaded = operator.verified_ranges.iter().all(|source| !source.networks(lists).is_empty());
            let is_exhaustive =
                operator.exhaustive.contains(&ProofMethod::Address) && !operator.verified_ranges.is_empty();
            exhaustive.push(is_exhaustive && all_loaded);
        }
        Self { ranges: Ranges::new(ranges), exhaustive }
    }
}

const BUILTIN_OPERATORS: &str = include_str!("../../data/operators.json");
const BUILTIN_RANGES: &str = include_str!("../../data/ranges.json");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_operator_table_parses() {
        let operators = OperatorTable::parse(BUILTIN_OPERATORS, BUILTIN_RANGES, Vec::new());
        let operators = operators.unwrap_or_else(|error| panic!("{error}"));
        assert!(operators.names().count() > 20);
        assert_eq!(operators.names().collect::<Vec<_>>(), OperatorTable::builtin_names());
        assert_eq!(operators.snapshot_date().len(), "2026-09-02".len());
    }

    #[test]
    fn operator_names_and_tokens_are_unique() {
        let operators = OperatorTable::builtin();
        let mut tokens: Vec<_> = operators.product_tokens().map(|(token, _)| token.to_ascii_lowercase()).collect();
        let count = tokens.len();
        tokens.sort();
        tokens.dedup();
        assert_eq!(tokens.len(), count);
        for name in operators.names() {
            let id = operators.id(name).expect("a name from the table");
            assert_eq!(operators.name(id), name);
        }
        assert_eq!(operators.id("nobody"), None);
    }

    #[test]
    fn published_address_proves_the_claim() {
        assert_eq!(verify("googlebot", "66.249.66.1"), Proof::Proven(ProofMethod::Address));
        assert_eq!(verify("googlebot", "2001:4860:4801:10::1"), Proof::Proven(ProofMethod::Address));
        assert_eq!(verify("bingbot", "157.55.39.7"), Proof::Proven(ProofMethod::Address));
        assert_eq!(verify("claudebot", "216.73.216.9"), Proof::Proven(ProofMethod::Address));
    }

    #[test]
    fn unpublished_address_disproves_the_claim_when_exhaustive() {
        assert_eq!(verify("googlebot", "203.0.113.64"), Proof::Disproven(ProofMethod::Address));
        assert_eq!(verify("googlebot", "2001:db8::1"), Proof::Disproven(ProofMethod::Address));
        assert_eq!(verify("bingbot", "192.0.2.16"), Proof::Disproven(ProofMethod::Address));
        assert_eq!(verify("facebookexternalhit", "192.0.2.16"), Proof::Unknown);
        assert_eq!(verify("yandexbot", "192.0.2.16"), Proof::Unknown);
    }

    #[test]
    fn private_addresses_disprove_nothing_without_dns_lookup() {
        let operators = OperatorTable::builtin().with_dns();
        for address in
            ["127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.0.9", "100.64.0.1", "::1", "fd00::1", "fe80::1"]
        {
            for name in ["googlebot", "bingbot", "yandexbot"] {
                let claimed = operators.id(name).expect("a name from the table");
                let address = address.parse().expect("an address");
                assert_eq!(
                    operators.verify(claimed, address, Timestamp::default()),
                    Proof::PrivateAddress,
                    "{address}"
                );
            }
        }
        assert_eq!(operators.dns().expect("DNS is on").pending_count(), 0);
    }

    #[test]
    fn mapped_ipv4_address_is_treated_as_ipv4() {
        assert_eq!(verify("googlebot", "::ffff:66.249.66.1"), Proof::Proven(ProofMethod::Address));
        assert_eq!(verify("googlebot", "::ffff:203.0.113.64"), Proof::Disproven(ProofMethod::Address));
    }

    #[test]
    fn proof_applies_only_to_the_claimed_operator() {
        assert_eq!(verify("bingbot", "66.249.66.1"), Proof::Disproven(ProofMethod::Address));
        assert_eq!(verify("gptbot", "66.249.66.1"), Proof::Disproven(ProofMethod::Address));
    }

    #[test]
    fn other_google_ranges_do_not_prove_googlebot() {
        // An address of a special-case crawler, then one of App Engine, where any client's program may run.
        assert_eq!(verify("google-special", "108.177.2.1"), Proof::Proven(ProofMethod::Address));
        assert_eq!(verify("googlebot", "108.177.2.1"), Proof::Unknown);
        assert_eq!(verify("google-fetchers", "107.178.192.1"), Proof::Proven(ProofMethod::Address));
        assert_eq!(verify("googlebot", "107.178.192.1"), Proof::Disproven(ProofMethod::Address));
    }

    #[test]
    fn nested_networks_do_not_hide_each_other() {
        // All of 17.0.0.0/8 belongs to Apple; only a part of it crawls.
        assert_eq!(verify("applebot", "17.1.2.3"), Proof::Unknown);
        assert_eq!(verify("applebot", "17.241.208.161"), Proof::Proven(ProofMethod::Address));
    }

    #[test]
    fn every_built_in_operator_is_provable_or_listed() {
        let operators = OperatorTable::builtin();
        let provable = operators.table.iter().filter(|operator| {
            !operator.verified_ranges.is_empty()
                || !operator.dns_names.is_empty()
                || !operator.signature_agents.is_empty()
        });
        let unprovable: Vec<&str> =
            operators.names().filter(|name| !provable.clone().any(|operator| operator.name == *name)).collect();
        assert_eq!(unprovable, ["pingdom", "uptimerobot"], "their lists have no license for redistribution");
    }

    #[test]
    fn invalid_operator_table_is_an_error() {
        let snapshot = r#"{"date": "2026-09-02", "lists": {"https://example.com/": {"prefixes": ["192.0.2.0/33"]}}}"#;
        let table = |source: &str| {
            format!(r#"[{{"name": "a", "documentation": "", "product_tokens": [], "verified_ranges": ["{source}"]}}]"#)
        };
        let error_text = |source, snapshot| {
            OperatorTable::parse(&table(source), snapshot, Vec::new()).expect_err("the table is invalid").to_string()
        };
        assert_eq!(
            error_text("https://example.com/", snapshot),
            "`192.0.2.0/33` is not a network such as 192.0.2.0/24"
        );
        assert_eq!(error_text("https://example.com/", "{}"), "invalid operator table");
    }

    #[test]
    fn configured_operator_is_added_with_its_tokens() {
        let config = OperatorOverride {
            name: "acme".into(),
            product_tokens: Some(vec!["AcmeBot".into(), "gptbot".into()]),
            ranges: Some(vec!["192.0.2.0/24".parse().expect("a network")]),
            exhaustive: Some(vec![ProofMethod::Address]),
            ..OperatorOverride::default()
        };
        let operators = OperatorTable::with_overrides(vec![config]);
        let acme = operators.id("acme").expect("declared");
        let proof = |address: &str| operators.verify(acme, address.parse().expect("an address"), Timestamp::default());
        assert_eq!(proof("192.0.2.7"), Proof::Proven(ProofMethod::Address));
        assert_eq!(proof("192.0.3.7"), Proof::Disproven(ProofMethod::Address));
        let claims = operators.product_tokens().filter(|(token, _)| token.eq_ignore_ascii_case("GPTBot"));
        assert_eq!(claims.map(|(_, operator)| operator).collect::<Vec<_>>(), [acme], "a token is claimed once");
    }

    #[test]
    fn signature_agent_moves_to_the_configured_operator() {
        let agents = Some(vec!["https://chatgpt.com".into(), "https://bot.example".into()]);
        let config = OperatorOverride { name: "acme".into(), signature_agents: agents, ..OperatorOverride::default() };
        let operators = OperatorTable::with_overrides(vec![config]);
        let acme = operators.id("acme").expect("declared");
        let of_acme = operators.signature_agents().filter(|(_, operator)| *operator == acme).map(|(agent, _)| agent);
        assert_eq!(of_acme.collect::<Vec<_>>(), ["https://chatgpt.com", "https://bot.example"]);
        let chatgpt = operators.signature_agents().filter(|(agent, _)| *agent == "https://chatgpt.com");
        assert_eq!(chatgpt.count(), 1);
    }

    #[test]
    fn override_changes_only_the_configured_fields() {
        let config =
            OperatorOverride { name: "googlebot".into(), exhaustive: Some(Vec::new()), ..OperatorOverride::default() };
        let operators = OperatorTable::with_overrides(vec![config]);
        let googlebot = operators.id("googlebot").expect("built in");
        let proof =
            |address: &str| operators.verify(googlebot, address.parse().expect("an address"), Timestamp::default());
        assert_eq!(proof("66.249.66.1"), Proof::Proven(ProofMethod::Address));
        assert_eq!(proof("203.0.113.64"), Proof::Unknown);
        assert_eq!(operators.names().count(), OperatorTable::builtin().names().count());
    }

    #[test]
    fn unfetched_list_disproves_no_claim() {
        let list = RangeSource::Url("https://example.com/bots.json".into());
        let config = OperatorOverride {
            name: "acme".into(),
            ranges: Some(vec![list.clone()]),
            exhaustive: Some(vec![ProofMethod::Address]),
            ..OperatorOverride::default()
        };
        let operators = OperatorTable::with_overrides(vec![config]);
        let acme = operators.id("acme").expect("declared");
        let proof = || operators.verify(acme, "192.0.2.7".parse().expect("an address"), Timestamp::default());
        assert_eq!(proof(), Proof::Unknown);
        operators.replace(list.clone(), vec!["198.51.100.0/24".parse().expect("a network")]);
        assert_eq!(proof(), Proof::Disproven(ProofMethod::Address));
        operators.replace(list, vec!["192.0.2.0/24".parse().expect("a network")]);
        assert_eq!(proof(), Proof::Proven(ProofMethod::Address));
    }

    fn verify(operator: &str, address: &str) -> Proof {
        let operators = OperatorTable::builtin();
        let id = operators.id(operator).expect("a name from the table");
        operators.verify(id, address.parse().expect("an address"), Timestamp::default())
    }
}
