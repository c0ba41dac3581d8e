//! The operators of crawlers that we know: what they call their crawlers, and what proves that it is they.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ipnet::IpNet;
use parking_lot::Mutex;

use super::dns::{DnsResult, DnsVerifier};
use super::operator_config::{self, Operator, OperatorOverride, OperatorProofMethod};
use super::range_source::RangeSource;
use super::ranges::{Range, RangeMatch, Ranges};
use crate::policy::identity::is_private;
use crate::policy::{OperatorId, Proof, ProofMethod, Timestamp};

pub use super::operator_config::OperatorTableError;

/// The table of operators, with all that is known of their addresses.
#[derive(Debug)]
pub struct OperatorTable {
    table: Vec<Operator>,
    /// What each published list says now.
    lists: Mutex<BTreeMap<RangeSource, Vec<IpNet>>>,
    /// What is wrong with those that could not be taken over when they were looked at last.
    errors: Mutex<BTreeMap<RangeSource, String>>,
    /// The same, as it is asked: replaced whole, so that no request waits while a list is refreshed.
    published: ArcSwap<PublishedRanges>,
    /// What DNS has said of addresses, where it is asked.
    names: Option<Arc<DnsVerifier>>,
    snapshot_date: String,
}

/// All lists at one time.
#[derive(Debug)]
struct PublishedRanges {
    ranges: Ranges,
    /// For each operator: an address in none of its ranges disproves the claim.
    exhaustive: Vec<bool>,
}

impl OperatorTable {
    /// Returns the built-in table and the snapshot of the ranges that this binary carries.
    ///
    /// # Panics
    ///
    /// If the data in this binary is broken, which a test rules out.
    pub fn builtin() -> OperatorTable {
        OperatorTable::with_overrides(Vec::new())
    }

    /// Returns the built-in table with what the operator of the site says of it: `declared` ones go before those of the
    /// same name in what they say, and their tokens are theirs alone.
    ///
    /// # Panics
    ///
    /// If the data in this binary is broken, which a test rules out.
    pub fn with_overrides(declared: Vec<OperatorOverride>) -> OperatorTable {
        let (table, snapshot) = (include_str!("../../data/operators.json"), include_str!("../../data/ranges.json"));
        OperatorTable::parse(table, snapshot, declared).expect("a test reads the built-in table")
    }

    fn parse(
        table: &str,
        snapshot: &str,
        declared: Vec<OperatorOverride>,
    ) -> Result<OperatorTable, OperatorTableError> {
        let (table, snapshot) = operator_config::parse(table, snapshot, declared)?;
        let published = PublishedRanges::of(&table, &snapshot.lists);
        Ok(OperatorTable {
            table,
            lists: Mutex::new(snapshot.lists),
            errors: Mutex::default(),
            published: ArcSwap::from_pointee(published),
            names: None,
            snapshot_date: snapshot.date,
        })
    }

    /// The same, with DNS asked for what addresses do not decide. Somebody must [serve](Names::serve) the questions.
    pub fn with_dns(self) -> OperatorTable {
        let patterns =
            self.with_ids().flat_map(|(id, operator)| operator.dns_names.iter().map(move |name| (name.clone(), id)));
        let names = Some(Arc::new(DnsVerifier::new(patterns.collect())));
        OperatorTable { names, ..self }
    }

    /// Returns what DNS has said of addresses, where it is asked.
    pub fn dns(&self) -> Option<Arc<DnsVerifier>> {
        self.names.clone()
    }

    /// Returns the names of all operators, in the order of their numbers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.table.iter().map(|operator| operator.name.as_str())
    }

    /// Returns the operator of this name.
    pub fn id(&self, name: &str) -> Option<OperatorId> {
        self.with_ids().find(|(_, operator)| operator.name == name).map(|(id, _)| id)
    }

    /// Returns the name of an operator of this table.
    pub fn name(&self, operator: OperatorId) -> &str {
        &self.table[usize::from(operator.0)].name
    }

    /// True for an operator that this version knows, whatever the operator of the site has added to it.
    pub fn is_built_in(&self, operator: OperatorId) -> bool {
        self.table.get(usize::from(operator.0)).is_some_and(|operator| !operator.own)
    }

    /// Returns every product token by which a user agent claims an operator.
    pub fn tokens(&self) -> impl Iterator<Item = (&str, OperatorId)> {
        self.with_ids().flat_map(|(id, operator)| operator.product_tokens.iter().map(move |token| (token.as_str(), id)))
    }

    /// Returns what is known about the claim of a client at this address to be that operator's crawler. `now` is on a
    /// scale that nobody can set. Never waits: what is not known yet is asked for in the background.
    pub fn verify(&self, claimed: OperatorId, address: IpAddr, now: Timestamp) -> Proof {
        // An IPv4 client on a dual-stack listener comes as ::ffff:a.b.c.d.
        let address = address.to_canonical();
        let operator = &self.table[usize::from(claimed.0)];
        let published = self.published.load();
        match published.ranges.best_match(claimed, address) {
            Some(RangeMatch::Verified) => return Proof::Proven(ProofMethod::Address),
            // No list names the addresses of proxies, and DNS knows them by no operator's names.
            _ if is_private(address) => return Proof::PrivateAddress,
            None if published.exhaustive[usize::from(claimed.0)] => return Proof::Disproven(ProofMethod::Address),
            Some(RangeMatch::Undecided) | None => {}
        }
        match self.names.as_ref().filter(|_| !operator.dns_names.is_empty()) {
            Some(names) => self.interpret_dns(claimed, names.lookup(claimed, address, now)),
            None => Proof::Unknown,
        }
    }

    /// Returns every name by which an agent of an operator signs.
    pub fn signature_agents(&self) -> impl Iterator<Item = (&str, OperatorId)> {
        self.with_ids()
            .flat_map(|(id, operator)| operator.signature_agents.iter().map(move |agent| (agent.as_str(), id)))
    }

    /// Returns whether crawlers of the operator can be proven by `method` here.
    pub fn supports(&self, operator: OperatorId, method: OperatorProofMethod) -> bool {
        let operator = &self.table[usize::from(operator.0)];
        match method {
            OperatorProofMethod::Address => !operator.verified_ranges.is_empty(),
            OperatorProofMethod::Dns => self.names.is_some() && !operator.dns_names.is_empty(),
        }
    }

    /// Returns what the names of an address mean for the claim.
    pub fn interpret_dns(&self, claimed: OperatorId, said: DnsResult) -> Proof {
        let exhaustive = || self.table[usize::from(claimed.0)].exhaustive.contains(&OperatorProofMethod::Dns);
        match said {
            DnsResult::Verified => Proof::Proven(ProofMethod::Dns),
            DnsResult::Mismatch if exhaustive() => Proof::Disproven(ProofMethod::Dns),
            DnsResult::Mismatch | DnsResult::Unknown => Proof::Unknown,
        }
    }

    /// Returns every list that somebody publishes or keeps, networks in the table apart.
    pub fn sources(&self) -> Vec<RangeSource> {
        let mut lists: Vec<RangeSource> = self.table.iter().flat_map(Operator::lists).cloned().collect();
        lists.sort();
        lists.dedup();
        lists
    }

    /// Returns what the list says now; empty where nothing is known of it.
    pub(super) fn list(&self, source: &RangeSource) -> Vec<IpNet> {
        self.lists.lock().get(source).cloned().unwrap_or_default()
    }

    /// Puts what a list says now in the place of what it said.
    pub(super) fn replace(&self, source: RangeSource, networks: Vec<IpNet>) {
        let mut lists = self.lists.lock();
        lists.insert(source, networks);
        self.published.store(PublishedRanges::of(&self.table, &lists).into());
    }

    /// Notes what is wrong with a list, if anything is; what was known of it stays. Returns what was wrong before.
    pub(super) fn set_error(&self, source: &RangeSource, trouble: Option<String>) -> Option<String> {
        let mut errors = self.errors.lock();
        match trouble {
            Some(trouble) => errors.insert(source.clone(), trouble),
            None => errors.remove(source),
        }
    }

    /// Returns the lists that cannot be taken over as they are, each with why.
    pub fn errors(&self) -> Vec<(String, String)> {
        self.errors.lock().iter().map(|(source, trouble)| (source.to_string(), trouble.clone())).collect()
    }

    /// Returns how many lists of each operator cannot be taken over as they are, of those who have lists.
    pub fn stale_lists(&self) -> Vec<(&str, usize)> {
        let errors = self.errors.lock();
        let with_lists = self.table.iter().filter(|operator| operator.lists().next().is_some());
        let stale = |operator: &Operator| operator.lists().filter(|source| errors.contains_key(source)).count();
        with_lists.map(|operator| (operator.name.as_str(), stale(operator))).collect()
    }

    /// True for a list that the operator of the site has named.
    pub(super) fn is_overridden(&self, source: &RangeSource) -> bool {
        self.table.iter().any(|operator| operator.declared && operator.verified_ranges.contains(source))
    }

    /// Returns when the built-in ranges were collected.
    pub(super) fn snapshot_time(&self) -> Timestamp {
        let day: Option<jiff::civil::Date> = self.snapshot_date.parse().ok();
        let midnight = day.and_then(|day| day.to_zoned(jiff::tz::TimeZone::UTC).ok());
        let seconds = midnight.map_or(0, |midnight| midnight.timestamp().as_second());
        Timestamp::from_seconds(seconds.try_into().unwrap_or_default())
    }

    /// Returns the day on which the built-in ranges were collected (`2026-09-02`).
    pub fn snapshot_date(&self) -> &str {
        &self.snapshot_date
    }

    fn with_ids(&self) -> impl Iterator<Item = (OperatorId, &Operator)> {
        (0..).map(OperatorId).zip(&self.table)
    }
}

impl PublishedRanges {
    fn of(table: &[Operator], lists: &BTreeMap<RangeSource, Vec<IpNet>>) -> Self {
        let mut ranges: Vec<Range> = Vec::new();
        let mut exhaustive = Vec::with_capacity(table.len());
        for (operator, id) in table.iter().zip((0..).map(OperatorId)) {
            let both =
                [(&operator.verified_ranges, RangeMatch::Verified), (&operator.neutral_ranges, RangeMatch::Undecided)];
            for (sources, standing) in both {
                for source in sources {
                    ranges.extend(source.networks(lists).iter().map(|network| (*network, id, standing)));
                }
            }
            // A list that has not come yet leaves out whom it names.
            let known = operator.verified_ranges.iter().all(|source| !source.networks(lists).is_empty());
            let says_all =
                operator.exhaustive.contains(&OperatorProofMethod::Address) && !operator.verified_ranges.is_empty();
            exhaustive.push(says_all && known);
        }
        Self { ranges: Ranges::new(ranges), exhaustive }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_can_be_read() {
        let operators = OperatorTable::parse(
            include_str!("../../data/operators.json"),
            include_str!("../../data/ranges.json"),
            Vec::new(),
        );
        let operators = operators.unwrap_or_else(|mistake| panic!("{mistake}"));
        assert!(operators.names().count() > 20);
        assert_eq!(operators.snapshot_date().len(), "2026-09-02".len());
    }

    #[test]
    fn names_and_tokens_are_told_once() {
        let operators = OperatorTable::builtin();
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
        assert_eq!(verify("googlebot", "66.249.66.1"), Proof::Proven(ProofMethod::Address));
        assert_eq!(verify("googlebot", "2001:4860:4801:10::1"), Proof::Proven(ProofMethod::Address));
        assert_eq!(verify("bingbot", "157.55.39.7"), Proof::Proven(ProofMethod::Address));
        assert_eq!(verify("claudebot", "216.73.216.9"), Proof::Proven(ProofMethod::Address));
    }

    #[test]
    fn an_address_elsewhere_disproves_it_where_the_list_is_complete() {
        assert_eq!(verify("googlebot", "203.0.113.64"), Proof::Disproven(ProofMethod::Address));
        assert_eq!(verify("googlebot", "2001:db8::1"), Proof::Disproven(ProofMethod::Address));
        assert_eq!(verify("bingbot", "192.0.2.16"), Proof::Disproven(ProofMethod::Address));
        assert_eq!(verify("facebookexternalhit", "192.0.2.16"), Proof::Unknown);
        assert_eq!(verify("yandexbot", "192.0.2.16"), Proof::Unknown);
    }

    #[test]
    fn private_addresses_disprove_nothing_and_are_not_looked_up() {
        let operators = OperatorTable::builtin().with_dns();
        for address in
            ["127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.0.9", "100.64.0.1", "::1", "fd00::1", "fe80::1"]
        {
            for name in ["googlebot", "bingbot", "yandexbot"] {
                let claimed = operators.id(name).expect("it is known");
                let address = address.parse().expect("an address");
                assert_eq!(
                    operators.verify(claimed, address, Timestamp::default()),
                    Proof::PrivateAddress,
                    "{address}"
                );
            }
        }
        assert_eq!(operators.dns().expect("DNS is on").waiting(), 0);
    }

    #[test]
    fn an_ipv4_client_behind_an_ipv6_listener_is_the_same_client() {
        assert_eq!(verify("googlebot", "::ffff:66.249.66.1"), Proof::Proven(ProofMethod::Address));
        assert_eq!(verify("googlebot", "::ffff:203.0.113.64"), Proof::Disproven(ProofMethod::Address));
    }

    #[test]
    fn the_proof_is_for_the_operator_that_was_claimed() {
        assert_eq!(verify("bingbot", "66.249.66.1"), Proof::Disproven(ProofMethod::Address));
        assert_eq!(verify("gptbot", "66.249.66.1"), Proof::Disproven(ProofMethod::Address));
    }

    #[test]
    fn googles_other_crawlers_do_not_prove_googlebot_but_its_customers_disprove_it() {
        // A special-case crawler's address, then one of App Engine, where anybody's program may run.
        assert_eq!(verify("google-special", "108.177.2.1"), Proof::Proven(ProofMethod::Address));
        assert_eq!(verify("googlebot", "108.177.2.1"), Proof::Unknown);
        assert_eq!(verify("google-fetchers", "107.178.192.1"), Proof::Proven(ProofMethod::Address));
        assert_eq!(verify("googlebot", "107.178.192.1"), Proof::Disproven(ProofMethod::Address));
    }

    #[test]
    fn a_wide_network_does_not_hide_a_narrow_one_nor_the_other_way_round() {
        // All of 17/8 is Apple's; only a part of it crawls.
        assert_eq!(verify("applebot", "17.1.2.3"), Proof::Unknown);
        assert_eq!(verify("applebot", "17.241.208.161"), Proof::Proven(ProofMethod::Address));
    }

    #[test]
    fn every_operator_of_the_standards_can_be_told_or_says_why_not() {
        let operators = OperatorTable::builtin();
        let provable = operators.table.iter().filter(|operator| {
            !operator.verified_ranges.is_empty()
                || !operator.dns_names.is_empty()
                || !operator.signature_agents.is_empty()
        });
        let without: Vec<&str> =
            operators.names().filter(|name| !provable.clone().any(|operator| operator.name == *name)).collect();
        assert_eq!(without, ["pingdom", "uptimerobot"], "they publish what no licence lets us carry");
    }

    #[test]
    fn a_broken_table_is_told_and_not_used() {
        let snapshot = r#"{"date": "2026-09-02", "lists": {"https://example.com/": {"prefixes": ["192.0.2.0/33"]}}}"#;
        let table =
            |source: &str| format!(r#"[{{"name": "a", "documented": "", "tokens": [], "proven_in": ["{source}"]}}]"#);
        let told = |source, snapshot| {
            OperatorTable::parse(&table(source), snapshot, Vec::new()).expect_err("broken on purpose").to_string()
        };
        assert_eq!(told("https://example.com/", snapshot), "`192.0.2.0/33` is not a network such as 192.0.2.0/24");
        assert_eq!(told("https://example.com/", "{}"), "the operators' table cannot be read");
    }

    #[test]
    fn a_declared_operator_is_added_with_its_tokens() {
        let declared = OperatorOverride {
            name: "acme".into(),
            product_tokens: Some(vec!["AcmeBot".into(), "gptbot".into()]),
            ranges: Some(vec!["192.0.2.0/24".parse().expect("a network")]),
            exhaustive: Some(vec![OperatorProofMethod::Address]),
            ..OperatorOverride::default()
        };
        let operators = OperatorTable::with_overrides(vec![declared]);
        let acme = operators.id("acme").expect("declared");
        let proof = |address: &str| operators.verify(acme, address.parse().expect("an address"), Timestamp::default());
        assert_eq!(proof("192.0.2.7"), Proof::Proven(ProofMethod::Address));
        assert_eq!(proof("192.0.3.7"), Proof::Disproven(ProofMethod::Address));
        let claims = operators.tokens().filter(|(token, _)| token.eq_ignore_ascii_case("GPTBot"));
        assert_eq!(claims.map(|(_, whose)| whose).collect::<Vec<_>>(), [acme], "a token is claimed once");
    }

    #[test]
    fn an_agent_that_signs_is_of_the_operator_that_was_declared_with_it() {
        let agents = Some(vec!["https://chatgpt.com".into(), "https://bot.example".into()]);
        let declared =
            OperatorOverride { name: "acme".into(), signature_agents: agents, ..OperatorOverride::default() };
        let operators = OperatorTable::with_overrides(vec![declared]);
        let acme = operators.id("acme").expect("declared");
        let of_acme = operators.signature_agents().filter(|(_, whose)| *whose == acme).map(|(agent, _)| agent);
        assert_eq!(of_acme.collect::<Vec<_>>(), ["https://chatgpt.com", "https://bot.example"]);
        let chatgpt = operators.signature_agents().filter(|(agent, _)| *agent == "https://chatgpt.com");
        assert_eq!(chatgpt.count(), 1);
    }

    #[test]
    fn a_declared_operator_of_a_known_name_changes_what_it_says_and_nothing_else() {
        let declared =
            OperatorOverride { name: "googlebot".into(), exhaustive: Some(Vec::new()), ..OperatorOverride::default() };
        let operators = OperatorTable::with_overrides(vec![declared]);
        let googlebot = operators.id("googlebot").expect("built in");
        let proof =
            |address: &str| operators.verify(googlebot, address.parse().expect("an address"), Timestamp::default());
        assert_eq!(proof("66.249.66.1"), Proof::Proven(ProofMethod::Address));
        assert_eq!(proof("203.0.113.64"), Proof::Unknown);
        assert_eq!(operators.names().count(), OperatorTable::builtin().names().count());
    }

    #[test]
    fn a_list_that_has_not_come_yet_disproves_nobody() {
        let list = RangeSource::Url("https://example.com/bots.json".into());
        let declared = OperatorOverride {
            name: "acme".into(),
            ranges: Some(vec![list.clone()]),
            exhaustive: Some(vec![OperatorProofMethod::Address]),
            ..OperatorOverride::default()
        };
        let operators = OperatorTable::with_overrides(vec![declared]);
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
