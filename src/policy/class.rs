//! Classifies clients: kind, evidence and the administrator's class.
//!
//! [`classify`] sets an operator only with proof.

use super::address_lists::{ListId, ListSet};
use super::bot_detection::{BotScore, Signal};
use super::bucket::Bucket;
use super::crawler_guard::CrawlerGuard;
use super::facts::{BotId, Claim, Facts, OperatorId, Proof, ProofMethod, Signature, claimed_operator};
use super::identity::{CredentialSource, IpPrefix, KeySource};
use super::secret::Secret;

/// Kind of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientKind {
    /// No evidence of a bot.
    Human,
    /// A bot with a proven operator.
    VerifiedBot,
    /// A bot that declares itself, unproven.
    DeclaredBot,
    /// An undeclared bot, detected by its behavior.
    SuspectedBot,
    /// A bot that claims an operator whose exhaustive data do not cover it.
    Impostor,
}

/// Evidence for a classification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// Index of the administrator's user-agent rule that matched.
    AgentRule(u16),
    /// No user agent was sent.
    NoUserAgent,
    /// The user agent matches no bot.
    UserAgentNoMatch,
    /// The user agent matches a listed bot.
    UserAgentMatch(BotId),
    /// The user agent matches the bot heuristic, but no listed bot.
    UserAgentHeuristic,
    /// The address is in a range that the operator publishes.
    AddressVerified(OperatorId),
    /// The operator's published ranges are exhaustive and do not contain the address.
    AddressMismatch(OperatorId),
    /// The operator is claimed from a loopback, private, link-local or shared address, which disproves nothing.
    AddressPrivate(OperatorId),
    /// The request carries an API key of its class.
    ApiKey,
    /// Forward-confirmed reverse DNS yields a name of the operator.
    DnsVerified(OperatorId),
    /// The operator's DNS names are exhaustive, and the address resolves to none of them.
    DnsMismatch(OperatorId),
    /// The request has signature fields that identify no agent.
    SignatureMalformed,
    /// Valid signature by an agent of the operator.
    SignatureValid(OperatorId),
    /// Valid signature by an agent without a configured operator.
    SignatureUnlisted,
    /// Invalid signature in the name of an agent, with its operator if configured.
    SignatureInvalid(Option<OperatorId>),
    /// Unverifiable signature in the name of an agent, with its operator if configured.
    SignatureUnknown(Option<OperatorId>),
    /// Behavioral signal that is rare for humans.
    Behavior(Signal),
    /// The address is on an address list that the class matches.
    AddressList(ListId),
}

/// Evidence for a classification, strongest last.
pub type EvidenceList = [Option<Evidence>; 7];

/// Indexes of the evidence for the class, after the evidence for the kind.
const ON_LIST: usize = 5;
const HOLDS_KEY: usize = 6;

/// Classification of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classification {
    /// Kind of the client.
    pub kind: ClientKind,
    /// Operator of the crawler; set only with proof.
    pub operator: Option<OperatorId>,
    /// Class of the client.
    pub class: ClassId,
    /// Evidence for kind and class.
    pub evidence: EvidenceList,
}

/// Index of a class in the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u16);

/// A class of clients, as the administrator configured it.
#[derive(Clone, Debug)]
pub struct Class {
    /// Name in YAML, metrics, headers and logs.
    pub name: String,
    /// Match conditions.
    pub when: ClassMatcher,
    /// True if all requests except robots.txt are refused.
    pub blocked: bool,
    /// Token bucket of each client.
    pub bucket: Option<Bucket>,
    /// Key source that partitions the buckets.
    pub key: KeySource,
    /// False for shadow mode: refusals by bucket, tier or block are counted and logged, not enforced.
    pub enforce: bool,
    /// Queue priority; higher first.
    pub priority: u8,
    /// Crawler guard: admits verified crawlers that a tier refuses.
    pub guard: Option<CrawlerGuard>,
}

/// Match conditions of a class. All must hold; each holds if it is empty or one of its values matches.
#[derive(Clone, Debug, Default)]
pub struct ClassMatcher {
    /// Accepted kinds.
    pub kinds: Vec<ClientKind>,
    /// Accepted proven operators.
    pub operators: Vec<OperatorId>,
    /// Substrings of the user agent, case-insensitive.
    pub user_agents: Vec<String>,
    /// Accepted address ranges.
    pub addresses: Vec<IpPrefix>,
    /// Accepted address lists.
    pub lists: ListSet,
    /// Accepted API keys.
    pub keys: Option<ApiKeys>,
}

/// A condition of [`ClassMatcher`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionKind {
    /// Kind of the client.
    Kind,
    /// Proven operator.
    Operator,
    /// Substring of the user agent.
    UserAgent,
    /// Address range.
    Address,
    /// Address list.
    List,
    /// API key.
    Key,
}

/// API keys of a class, all sent in the same header or cookie.
#[derive(Clone, Debug)]
pub struct ApiKeys {
    /// Header or cookie of the key.
    pub carrier: CredentialSource,
    /// Accepted keys.
    pub values: Vec<Secret>,
}

/// An administrator's rule for a user agent; takes precedence over the built-in list.
#[derive(Clone, Debug)]
pub struct UserAgentRule {
    /// Substring of the user agents that match, case-insensitive.
    pub contains: String,
    /// Kind of the matching clients.
    pub kind: ClientKind,
}

impl Evidence {
    /// Returns the operator whose claim was verified, if this evidence is the result.
    pub const fn claimed_operator(self) -> Option<OperatorId> {
        match self {
            Self::AddressVerified(operator) | Self::AddressMismatch(operator) | Self::SignatureValid(operator) => {
                Some(operator)
            }
            Self::SignatureInvalid(operator) | Self::SignatureUnknown(operator) => operator,
            _ => None,
        }
    }
}

impl ClientKind {
    /// All kinds, in the order of the contract.
    pub const ALL: [Self; 5] = [Self::Human, Self::VerifiedBot, Self::DeclaredBot, Self::SuspectedBot, Self::Impostor];

    /// Returns the name in YAML, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::VerifiedBot => "verified_bot",
            Self::DeclaredBot => "declared_bot",
            Self::SuspectedBot => "suspected_bot",
            Self::Impostor => "impostor",
        }
    }
}

/// Classifies a client by user-agent rules, proof, user agent and behavior, in this order.
pub fn classify(rules: &[UserAgentRule], classes: &[Class], facts: &Facts<'_>) -> Classification {
    let (kind, operator, mut evidence) = kind(rules, facts);
    let id = |place: usize| ClassId(place as u16);
    let fits = |(place, class): (usize, &Class)| class.when.first_unmet(id(place), kind, operator, facts).is_none();
    let place = classes.iter().enumerate().position(fits).unwrap_or(classes.len().saturating_sub(1));
    if let Some(Class { when, .. }) = classes.get(place) {
        evidence[ON_LIST] = when.lists.first_common(facts.address_lists).map(Evidence::AddressList);
        evidence[HOLDS_KEY] = when.keys.is_some().then_some(Evidence::ApiKey);
    }
    Classification { kind, operator, class: id(place), evidence }
}

/// Returns the index of the first rule that matches `user_agent`, if any.
pub fn agent_rule(rules: &[UserAgentRule], user_agent: &[u8]) -> Option<usize> {
    rules.iter().position(|rule| contains_ignoring_case(user_agent, rule.contains.as_bytes()))
}

fn kind(rules: &[UserAgentRule], facts: &Facts<'_>) -> (ClientKind, Option<OperatorId>, EvidenceList) {
    if let Some(place) = agent_rule(rules, facts.user_agent) {
        return (rules[place].kind, None, evidence_list([Some(Evidence::AgentRule(place as u16))]));
    }
    let said = claim_evidence(facts.claim);
    let claimed = claimed_operator(facts.claim, facts.signature);
    match (facts.signature, facts.proof, claimed) {
        // A client that claims a disproven operator is an impostor, even with a valid signature of another.
        (Signature::Verified(signer), proof, _) if !matches!(proof, Proof::Disproven(_)) || claimed == Some(signer) => {
            (ClientKind::VerifiedBot, Some(signer), evidence_list([said, Some(Evidence::SignatureValid(signer))]))
        }
        (_, Proof::Proven(means), Some(operator)) => {
            (ClientKind::VerifiedBot, Some(operator), evidence_list([said, Some(proof_evidence(operator, means))]))
        }
        // The keys are not loaded yet; the signature may prove what the address does not.
        (Signature::Pending(signer), _, _) if claimed.is_none_or(|operator| operator == signer) => {
            (ClientKind::DeclaredBot, None, evidence_list([said, Some(Evidence::SignatureUnknown(Some(signer)))]))
        }
        (_, Proof::Disproven(means), Some(operator)) => {
            (ClientKind::Impostor, None, evidence_list([said, Some(mismatch_evidence(operator, means))]))
        }
        (signature, Proof::PrivateAddress, Some(operator)) => {
            let evidence =
                evidence_list([said, signature_evidence(signature), Some(Evidence::AddressPrivate(operator))]);
            (ClientKind::DeclaredBot, None, evidence)
        }
        // A signature that identifies an agent declares a bot.
        (signature, ..) => match facts.claim {
            Claim::NoUserAgent | Claim::Browser if !signature.names_an_agent() => {
                classify_undeclared([said, signature_evidence(signature)], facts.bot_score)
            }
            _ => (ClientKind::DeclaredBot, None, evidence_list([said, signature_evidence(signature)])),
        },
    }
}

fn claim_evidence(claim: Claim) -> Option<Evidence> {
    Some(match claim {
        Claim::NoUserAgent => Evidence::NoUserAgent,
        Claim::Browser => Evidence::UserAgentNoMatch,
        Claim::Bot { bot, .. } => bot.map_or(Evidence::UserAgentHeuristic, Evidence::UserAgentMatch),
    })
}

fn proof_evidence(operator: OperatorId, means: ProofMethod) -> Evidence {
    match means {
        ProofMethod::Address => Evidence::AddressVerified(operator),
        ProofMethod::Dns => Evidence::DnsVerified(operator),
    }
}

fn mismatch_evidence(operator: OperatorId, means: ProofMethod) -> Evidence {
    match means {
        ProofMethod::Address => Evidence::AddressMismatch(operator),
        ProofMethod::Dns => Evidence::DnsMismatch(operator),
    }
}

fn signature_evidence(signature: Signature) -> Option<Evidence> {
    match signature {
        Signature::Absent => None,
        Signature::Unreadable => Some(Evidence::SignatureMalformed),
        Signature::Verified(operator) => Some(Evidence::SignatureValid(operator)),
        Signature::Unlisted => Some(Evidence::SignatureUnlisted),
        Signature::Invalid(operator) => Some(Evidence::SignatureInvalid(operator)),
        Signature::Pending(operator) => Some(Evidence::SignatureUnknown(Some(operator))),
        Signature::Unknown(operator) => Some(Evidence::SignatureUnknown(operator)),
    }
}

fn evidence_list<const FEW: usize>(found: [Option<Evidence>; FEW]) -> EvidenceList {
    let mut reasons = EvidenceList::default();
    reasons[..FEW].copy_from_slice(&found);
    reasons
}

/// Classifies a client that declares no bot: human, unless it is suspected.
fn classify_undeclared(
    [said, signed]: [Option<Evidence>; 2],
    suspicion: Option<BotScore>,
) -> (ClientKind, Option<OperatorId>, EvidenceList) {
    match suspicion {
        None => (ClientKind::Human, None, evidence_list([said, signed])),
        Some(BotScore { signals: [strongest, second, third], .. }) => {
            let behaves = |signal: Option<Signal>| signal.map(Evidence::Behavior);
            (
                ClientKind::SuspectedBot,
                None,
                evidence_list([said, signed, behaves(third), behaves(second), behaves(strongest)]),
            )
        }
    }
}

impl ClassMatcher {
    /// Returns true if every client matches.
    pub fn matches_all(&self) -> bool {
        let Self { kinds, operators, user_agents, addresses, lists, keys } = self;
        kinds.is_empty()
            && operators.is_empty()
            && user_agents.is_empty()
            && addresses.is_empty()
            && lists.is_empty()
            && keys.is_none()
    }

    /// Returns the first condition that the client does not meet; `None` if it belongs to `class`, the class of this
    /// matcher.
    pub fn first_unmet(
        &self,
        class: ClassId,
        kind: ClientKind,
        operator: Option<OperatorId>,
        facts: &Facts<'_>,
    ) -> Option<ConditionKind> {
        let named = |text: &String| contains_ignoring_case(facts.user_agent, text.as_bytes());
        if !self.kinds.is_empty() && !self.kinds.contains(&kind) {
            return Some(ConditionKind::Kind);
        }
        if !self.operators.is_empty() && !operator.is_some_and(|operator| self.operators.contains(&operator)) {
            return Some(ConditionKind::Operator);
        }
        if !self.user_agents.is_empty() && !self.user_agents.iter().any(named) {
            return Some(ConditionKind::UserAgent);
        }
        if !self.addresses.is_empty() && !self.addresses.iter().any(|range| range.contains(facts.client)) {
            return Some(ConditionKind::Address);
        }
        if !self.lists.is_empty() && self.lists.first_common(facts.address_lists).is_none() {
            return Some(ConditionKind::List);
        }
        (self.keys.is_some() && !facts.api_key_classes.contains(&class)).then_some(ConditionKind::Key)
    }
}

impl ApiKeys {
    /// Returns true if `sent` is an accepted key. Takes the same time for every guess of the same length.
    pub fn contain(&self, sent: &[u8]) -> bool {
        self.values.iter().fold(false, |found, known| found | known.matches(sent))
    }
}

fn contains_ignoring_case(text: &[u8], wanted: &[u8]) -> bool {
    wanted.is_empty() || text.windows(wanted.len()).any(|part| part.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOGLE: OperatorId = OperatorId(0);
    const BING: OperatorId = OperatorId(1);
    const PROVEN: Proof = Proof::Proven(ProofMethod::Address);
    const DISPROVEN: Proof = Proof::Disproven(ProofMethod::Address);

    fn class(name: &str, when: ClassMatcher) -> Class {
        Class {
            name: name.into(),
            when,
            blocked: false,
            bucket: None,
            key: KeySource::Address,
            enforce: true,
            priority: 0,
            guard: None,
        }
    }

    fn classes() -> Vec<Class> {
        vec![
            class("search", ClassMatcher { operators: vec![GOOGLE], ..ClassMatcher::default() }),
            class("impostor", ClassMatcher { kinds: vec![ClientKind::Impostor], ..ClassMatcher::default() }),
            class(
                "bot",
                ClassMatcher {
                    kinds: vec![ClientKind::VerifiedBot, ClientKind::DeclaredBot],
                    ..ClassMatcher::default()
                },
            ),
            class("person", ClassMatcher::default()),
        ]
    }

    fn classify_claim(claim: Claim, proof: Proof) -> (ClientKind, Option<OperatorId>, String) {
        classify_scored(claim, proof, None)
    }

    fn classify_scored(
        claim: Claim,
        proof: Proof,
        suspicion: Option<BotScore>,
    ) -> (ClientKind, Option<OperatorId>, String) {
        class_summary(&classification(claim, proof, Signature::Absent, suspicion))
    }

    fn signature_evidence(
        claim: Claim,
        proof: Proof,
        signature: Signature,
    ) -> (ClientKind, Option<OperatorId>, String) {
        class_summary(&classification(claim, proof, signature, None))
    }

    fn class_summary(found: &Classification) -> (ClientKind, Option<OperatorId>, String) {
        (found.kind, found.operator, classes()[usize::from(found.class.0)].name.clone())
    }

    fn classification(claim: Claim, proof: Proof, signature: Signature, suspicion: Option<BotScore>) -> Classification {
        let facts = Facts {
            method: &http::Method::GET,
            host: "example.com",
            path: "/",
            query: None,
            client: std::net::Ipv4Addr::LOCALHOST.into(),
            address_lists: ListSet::default(),
            user_agent: b"Mozilla/5.0 AcmeMonitor/1",
            claim,
            proof,
            signature,
            api_key_classes: &[],
            bot_score: suspicion,
        };
        classify(&[], &classes(), &facts)
    }

    fn bot_claim(operator: Option<OperatorId>) -> Claim {
        Claim::Bot { bot: None, operator }
    }

    #[test]
    fn an_operator_is_set_only_with_proof() {
        for means in [ProofMethod::Address, ProofMethod::Dns] {
            let (proven, disproven) = (Proof::Proven(means), Proof::Disproven(means));
            assert_eq!(
                classify_claim(bot_claim(Some(GOOGLE)), proven),
                (ClientKind::VerifiedBot, Some(GOOGLE), "search".into())
            );
            assert_eq!(
                classify_claim(bot_claim(Some(GOOGLE)), disproven),
                (ClientKind::Impostor, None, "impostor".into())
            );
            assert_eq!(
                classify_claim(bot_claim(Some(BING)), proven),
                (ClientKind::VerifiedBot, Some(BING), "bot".into())
            );
        }
        assert_eq!(
            classify_claim(bot_claim(Some(GOOGLE)), Proof::Unknown),
            (ClientKind::DeclaredBot, None, "bot".into())
        );
        assert_eq!(classify_claim(bot_claim(None), Proof::Unknown), (ClientKind::DeclaredBot, None, "bot".into()));
    }

    #[test]
    fn private_addresses_disprove_no_claim() {
        let claim = bot_claim(Some(GOOGLE));
        assert_eq!(classify_claim(claim, Proof::PrivateAddress), (ClientKind::DeclaredBot, None, "bot".into()));
        let evidence = classification(claim, Proof::PrivateAddress, Signature::Absent, None).evidence;
        assert_eq!(evidence[2], Some(Evidence::AddressPrivate(GOOGLE)));
        let verified = (ClientKind::VerifiedBot, Some(GOOGLE), "search".into());
        assert_eq!(signature_evidence(claim, Proof::PrivateAddress, Signature::Verified(GOOGLE)), verified);
        assert_eq!(
            signature_evidence(claim, Proof::PrivateAddress, Signature::Invalid(Some(GOOGLE))).0,
            ClientKind::DeclaredBot
        );
    }

    #[test]
    fn evidence_names_the_proof_method() {
        let last = |proof| classification(bot_claim(Some(GOOGLE)), proof, Signature::Absent, None).evidence[1];
        assert_eq!(last(Proof::Proven(ProofMethod::Address)), Some(Evidence::AddressVerified(GOOGLE)));
        assert_eq!(last(Proof::Disproven(ProofMethod::Address)), Some(Evidence::AddressMismatch(GOOGLE)));
        assert_eq!(last(Proof::Proven(ProofMethod::Dns)), Some(Evidence::DnsVerified(GOOGLE)));
        assert_eq!(last(Proof::Disproven(ProofMethod::Dns)), Some(Evidence::DnsMismatch(GOOGLE)));
        assert_eq!(last(Proof::Unknown), None);
    }

    #[test]
    fn client_without_claim_or_signature_is_human() {
        assert_eq!(classify_claim(Claim::Browser, Proof::Unknown).2, "person");
        assert_eq!(classify_claim(Claim::NoUserAgent, Proof::Unknown).2, "person");
    }

    #[test]
    fn bot_score_applies_only_to_undeclared_clients() {
        let odd = Some(BotScore { points: 120, signals: [Some(Signal::Honeypot), Some(Signal::NoAssets), None] });
        assert_eq!(classify_scored(Claim::Browser, Proof::Unknown, odd).0, ClientKind::SuspectedBot);
        assert_eq!(classify_scored(Claim::NoUserAgent, Proof::Unknown, odd).0, ClientKind::SuspectedBot);
        assert_eq!(classify_scored(bot_claim(None), Proof::Unknown, odd).0, ClientKind::DeclaredBot);
        assert_eq!(
            classify_scored(bot_claim(Some(GOOGLE)), Proof::Proven(ProofMethod::Address), odd).0,
            ClientKind::VerifiedBot
        );
    }

    #[test]
    fn address_list_match_selects_class_and_is_evidence() {
        let (hosting, tor) = (ListId(0), ListId(5));
        let classes = [
            class(
                "hosting",
                ClassMatcher {
                    lists: ListSet::from_ids([hosting, tor]),
                    kinds: vec![ClientKind::Human],
                    ..ClassMatcher::default()
                },
            ),
            class("person", ClassMatcher::default()),
        ];
        let found = |listed| {
            let facts = Facts {
                method: &http::Method::GET,
                host: "",
                path: "/",
                query: None,
                client: std::net::Ipv4Addr::LOCALHOST.into(),
                address_lists: listed,
                user_agent: b"Mozilla/5.0",
                claim: Claim::Browser,
                proof: Proof::Unknown,
                signature: Signature::Absent,
                api_key_classes: &[],
                bot_score: None,
            };
            let found = classify(&[], &classes, &facts);
            (found.class.0, found.evidence[ON_LIST])
        };
        assert_eq!(found(ListSet::from_ids([tor])), (0, Some(Evidence::AddressList(tor))));
        assert_eq!(found(ListSet::from_ids([ListId(3)])), (1, None));
        assert_eq!(found(ListSet::default()), (1, None));
    }

    #[test]
    fn valid_signature_identifies_regardless_of_user_agent() {
        let verified = (ClientKind::VerifiedBot, Some(GOOGLE), "search".into());
        for claim in
            [Claim::NoUserAgent, Claim::Browser, bot_claim(None), bot_claim(Some(BING)), bot_claim(Some(GOOGLE))]
        {
            assert_eq!(signature_evidence(claim, Proof::Unknown, Signature::Verified(GOOGLE)), verified, "{claim:?}");
        }
        assert_eq!(signature_evidence(bot_claim(Some(GOOGLE)), DISPROVEN, Signature::Verified(GOOGLE)), verified);
    }

    #[test]
    fn signed_request_with_false_claim_is_an_impostor() {
        let found = signature_evidence(bot_claim(Some(BING)), DISPROVEN, Signature::Verified(GOOGLE));
        assert_eq!(found, (ClientKind::Impostor, None, "impostor".into()));
    }

    #[test]
    fn unverified_signature_makes_a_declared_bot() {
        let declared = (ClientKind::DeclaredBot, None, "bot".into());
        for signature in [
            Signature::Unlisted,
            Signature::Invalid(None),
            Signature::Invalid(Some(GOOGLE)),
            Signature::Pending(GOOGLE),
            Signature::Unknown(None),
        ] {
            assert_eq!(signature_evidence(Claim::Browser, Proof::Unknown, signature), declared, "{signature:?}");
            assert_eq!(
                signature_evidence(bot_claim(Some(GOOGLE)), Proof::Unknown, signature),
                declared,
                "{signature:?}"
            );
        }
    }

    #[test]
    fn malformed_signature_is_evidence_without_effect() {
        let odd = Some(BotScore { points: 120, signals: [Some(Signal::Honeypot), Some(Signal::NoAssets), None] });
        for claim in [Claim::NoUserAgent, Claim::Browser, bot_claim(None), bot_claim(Some(GOOGLE))] {
            for proof in [Proof::Unknown, PROVEN, DISPROVEN] {
                for suspicion in [None, odd] {
                    let unsigned = classification(claim, proof, Signature::Absent, suspicion);
                    let garbage = classification(claim, proof, Signature::Unreadable, suspicion);
                    assert_eq!(class_summary(&garbage), class_summary(&unsigned), "{claim:?} {proof:?}");
                }
            }
        }
        let suspected = classification(Claim::Browser, Proof::Unknown, Signature::Unreadable, odd);
        let evidence: Vec<_> = suspected.evidence.into_iter().flatten().collect();
        let [behaves_oddly, strangest] = [Signal::NoAssets, Signal::Honeypot].map(Evidence::Behavior);
        assert_eq!(evidence, [Evidence::UserAgentNoMatch, Evidence::SignatureMalformed, behaves_oddly, strangest]);
    }

    #[test]
    fn invalid_signature_keeps_proof_and_checks_the_claim() {
        let wrong = Signature::Invalid(Some(GOOGLE));
        assert_eq!(signature_evidence(bot_claim(Some(GOOGLE)), PROVEN, wrong).0, ClientKind::VerifiedBot);
        assert_eq!(signature_evidence(Claim::Browser, DISPROVEN, wrong).0, ClientKind::Impostor);
    }

    #[test]
    fn pending_keys_prevent_impostor_classification() {
        let claim = bot_claim(Some(GOOGLE));
        assert_eq!(signature_evidence(claim, DISPROVEN, Signature::Pending(GOOGLE)).0, ClientKind::DeclaredBot);
        assert_eq!(signature_evidence(claim, DISPROVEN, Signature::Pending(BING)).0, ClientKind::Impostor);
        assert_eq!(signature_evidence(claim, DISPROVEN, Signature::Unknown(Some(GOOGLE))).0, ClientKind::Impostor);
    }

    #[test]
    fn user_agent_rule_overrides_all_evidence() {
        let rules = [UserAgentRule { contains: "acmemonitor".into(), kind: ClientKind::Human }];
        let facts = Facts {
            method: &http::Method::GET,
            host: "",
            path: "/",
            query: None,
            client: std::net::Ipv4Addr::LOCALHOST.into(),
            address_lists: ListSet::default(),
            user_agent: b"AcmeMonitor/2.0",
            claim: bot_claim(None),
            proof: Proof::Unknown,
            signature: Signature::Absent,
            api_key_classes: &[],
            bot_score: None,
        };
        let found = classify(&rules, &classes(), &facts);
        assert_eq!((found.kind, found.evidence[0]), (ClientKind::Human, Some(Evidence::AgentRule(0))));
    }

    #[test]
    fn api_key_class_needs_one_of_its_keys() {
        let carrier = || CredentialSource::Header(http::HeaderName::from_static("x-api-key"));
        let known = |value: &str| Some(ApiKeys { carrier: carrier(), values: vec![Secret::new(value.into())] });
        let classes = [
            class(
                "partner",
                ClassMatcher { keys: known("sesame"), kinds: vec![ClientKind::Human], ..ClassMatcher::default() },
            ),
            class("other partner", ClassMatcher { keys: known("barley"), ..ClassMatcher::default() }),
            class("rest", ClassMatcher::default()),
        ];
        for (claim, held, place) in [
            (Claim::Browser, &[][..], 2),
            (Claim::Browser, &[ClassId(0)], 0),
            (bot_claim(None), &[ClassId(0)], 2),
            (bot_claim(None), &[ClassId(0), ClassId(1)], 1),
        ] {
            let facts = Facts {
                method: &http::Method::GET,
                host: "",
                path: "/",
                query: None,
                client: std::net::Ipv4Addr::LOCALHOST.into(),
                user_agent: b"",
                claim,
                proof: Proof::Unknown,
                address_lists: ListSet::default(),
                signature: Signature::Absent,
                api_key_classes: held,
                bot_score: None,
            };
            let found = classify(&[], &classes, &facts);
            assert_eq!(found.class, ClassId(place), "{claim:?} {held:?}");
            assert_eq!(found.evidence[HOLDS_KEY], (place < 2).then_some(Evidence::ApiKey));
        }
        assert_eq!(format!("{:?}", classes[0].when.keys.as_ref().map(|keys| &keys.values)), "Some([Secret])");
    }
}
