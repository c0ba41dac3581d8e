//! What kind of client this is, on what evidence, and which of the operator's classes it falls into.

use super::address_lists::{ListId, ListSet};
use super::bot_detection::{BotScore, Signal};
use super::bucket::Bucket;
use super::crawler_guard::CrawlerGuard;
use super::facts::{BotId, Claim, Facts, OperatorId, Proof, ProofMethod, Signature, claimed_operator};
use super::identity::{CredentialSource, IpPrefix, KeySource};
use super::secret::Secret;

/// The kinds of client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientKind {
    /// Nothing says it is a bot.
    Human,
    /// A bot whose operator is proven.
    VerifiedBot,
    /// A bot that names itself, unproven.
    DeclaredBot,
    /// A bot that hides, by its behaviour.
    SuspectedBot,
    /// Claims an operator whose crawler it is not, by all that the operator says of them.
    Impostor,
}

/// One reason for a classification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// The operator's own user-agent rule, by its place in the settings.
    AgentRule(u16),
    /// No user agent was sent.
    NoUserAgent,
    /// The user agent names no bot.
    UserAgentNoMatch,
    /// The user agent names a bot of the list.
    UserAgentMatch(BotId),
    /// The user agent has the shape of a bot's, though nobody listed it.
    UserAgentHeuristic,
    /// The address is among those that the operator publishes.
    AddressVerified(OperatorId),
    /// The operator publishes all its addresses, and this is none of them.
    AddressMismatch(OperatorId),
    /// The claim is of that operator, and the address is loopback, private, link-local or shared: it disproves nothing.
    AddressPrivate(OperatorId),
    /// It holds a key of its class.
    ApiKey,
    /// The address has a name of that operator, and the name has the address.
    DnsVerified(OperatorId),
    /// All crawlers of the operator have its names, and the address has none of them.
    DnsMismatch(OperatorId),
    /// It has the fields of a signed request, and they name no agent.
    SignatureMalformed,
    /// An agent of the operator has signed the request.
    SignatureValid(OperatorId),
    /// An agent has signed it of whom no operator is known.
    SignatureUnlisted,
    /// Signed in the name of an agent, of this operator where one is known, and not by it.
    SignatureInvalid(Option<OperatorId>),
    /// Signed in the name of an agent, of this operator where one is known; nobody can tell.
    SignatureUnknown(Option<OperatorId>),
    /// It does, or leaves out, what people seldom do.
    Behavior(Signal),
    /// The address stands on a list of the operator's, and its class is for those.
    AddressList(ListId),
}

/// What speaks for a classification, most telling last.
pub type EvidenceList = [Option<Evidence>; 7];

/// The places of what the class itself asks for, behind what says the kind.
const ON_LIST: usize = 5;
const HOLDS_KEY: usize = 6;

/// A client, classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classification {
    /// What kind of client it is.
    pub kind: ClientKind,
    /// Whose crawler it is; only with proof.
    pub operator: Option<OperatorId>,
    /// The class it falls into.
    pub class: ClassId,
    /// Why.
    pub evidence: EvidenceList,
}

/// A class, by its place in the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u16);

/// A class of clients, as the operator of the site defined it.
#[derive(Clone, Debug)]
pub struct Class {
    /// Its name in YAML, metrics, headers and logs.
    pub name: String,
    /// Who belongs to it.
    pub when: ClassMatcher,
    /// Refused everything but robots.txt.
    pub blocked: bool,
    /// The bucket of each of its clients.
    pub bucket: Option<Bucket>,
    /// Who shares one bucket.
    pub key: KeySource,
    /// False: its refusals by bucket, tier or block are counted and logged, not carried out.
    pub enforce: bool,
    /// Who goes first where there is a line; higher goes first.
    pub priority: u8,
    /// What its verified crawlers are let through although a tier refuses them.
    pub guard: Option<CrawlerGuard>,
}

/// Conditions that must all hold; within each, one match is enough, and an empty one always holds.
#[derive(Clone, Debug, Default)]
pub struct ClassMatcher {
    /// The kind is one of these.
    pub kinds: Vec<ClientKind>,
    /// The proven operator is one of these.
    pub operators: Vec<OperatorId>,
    /// The user agent contains one of these, in any case.
    pub user_agents: Vec<String>,
    /// The address is in one of these ranges.
    pub addresses: Vec<IpPrefix>,
    /// The address stands on one of these lists.
    pub lists: ListSet,
    /// One of these keys is sent.
    pub keys: Option<ApiKeys>,
}

/// One of the conditions of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionKind {
    /// Its kinds.
    Kind,
    /// Its operators.
    Operator,
    /// Its words in the user agent.
    UserAgent,
    /// Its address ranges.
    Address,
    /// Its address lists.
    List,
    /// Its keys.
    Key,
}

/// Keys that are known beforehand, all sent in the same place.
#[derive(Clone, Debug)]
pub struct ApiKeys {
    /// Where they are sent.
    pub carrier: CredentialSource,
    /// Every key that counts.
    pub values: Vec<Secret>,
}

/// The operator's own word on a user agent; goes before the built-in list.
#[derive(Clone, Debug)]
pub struct UserAgentRule {
    /// Fits user agents that contain this, in any case.
    pub contains: String,
    /// What such a client is.
    pub kind: ClientKind,
}

impl Evidence {
    /// Returns the operator whose claim was put to the test, where this is what came of it.
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

    /// Its name in YAML, logs and metrics.
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

/// Classifies a client: the operator's rules, then proof, then what the user agent says, then behaviour.
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

/// The place of the operator's rule that fits a user agent, if one does.
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
        // Whoever says by its user agent that it is somebody else lies, whatever it signs.
        (Signature::Verified(signer), proof, _) if !matches!(proof, Proof::Disproven(_)) || claimed == Some(signer) => {
            (ClientKind::VerifiedBot, Some(signer), evidence_list([said, Some(Evidence::SignatureValid(signer))]))
        }
        (_, Proof::Proven(means), Some(operator)) => {
            (ClientKind::VerifiedBot, Some(operator), evidence_list([said, Some(proof_evidence(operator, means))]))
        }
        // The signature may prove what the address does not, once the keys are there.
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
        // Who signs as an agent says that it is one.
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

/// Who names no bot is a person, unless it is suspected.
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
    /// True for whoever comes, with or without a proof of anything.
    pub fn matches_all(&self) -> bool {
        let Self { kinds, operators, user_agents, addresses, lists, keys } = self;
        kinds.is_empty()
            && operators.is_empty()
            && user_agents.is_empty()
            && addresses.is_empty()
            && lists.is_empty()
            && keys.is_none()
    }

    /// The first condition that a client does not meet; `None` where it belongs to `class`, whose conditions these are.
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
    /// Returns whether `sent` is one of them. A guess is not faster the nearer it comes.
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

    fn classified(claim: Claim, proof: Proof) -> (ClientKind, Option<OperatorId>, String) {
        suspected(claim, proof, None)
    }

    fn suspected(claim: Claim, proof: Proof, suspicion: Option<BotScore>) -> (ClientKind, Option<OperatorId>, String) {
        told(&found(claim, proof, Signature::Absent, suspicion))
    }

    fn signature_evidence(
        claim: Claim,
        proof: Proof,
        signature: Signature,
    ) -> (ClientKind, Option<OperatorId>, String) {
        told(&found(claim, proof, signature, None))
    }

    fn told(found: &Classification) -> (ClientKind, Option<OperatorId>, String) {
        (found.kind, found.operator, classes()[usize::from(found.class.0)].name.clone())
    }

    fn found(claim: Claim, proof: Proof, signature: Signature, suspicion: Option<BotScore>) -> Classification {
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

    fn claims(operator: Option<OperatorId>) -> Claim {
        Claim::Bot { bot: None, operator }
    }

    #[test]
    fn an_operator_is_set_only_with_proof() {
        for means in [ProofMethod::Address, ProofMethod::Dns] {
            let (proven, disproven) = (Proof::Proven(means), Proof::Disproven(means));
            assert_eq!(
                classified(claims(Some(GOOGLE)), proven),
                (ClientKind::VerifiedBot, Some(GOOGLE), "search".into())
            );
            assert_eq!(classified(claims(Some(GOOGLE)), disproven), (ClientKind::Impostor, None, "impostor".into()));
            assert_eq!(classified(claims(Some(BING)), proven), (ClientKind::VerifiedBot, Some(BING), "bot".into()));
        }
        assert_eq!(classified(claims(Some(GOOGLE)), Proof::Unknown), (ClientKind::DeclaredBot, None, "bot".into()));
        assert_eq!(classified(claims(None), Proof::Unknown), (ClientKind::DeclaredBot, None, "bot".into()));
    }

    #[test]
    fn private_addresses_disprove_no_claim() {
        let claim = claims(Some(GOOGLE));
        assert_eq!(classified(claim, Proof::PrivateAddress), (ClientKind::DeclaredBot, None, "bot".into()));
        let evidence = found(claim, Proof::PrivateAddress, Signature::Absent, None).evidence;
        assert_eq!(evidence[2], Some(Evidence::AddressPrivate(GOOGLE)));
        let verified = (ClientKind::VerifiedBot, Some(GOOGLE), "search".into());
        assert_eq!(signature_evidence(claim, Proof::PrivateAddress, Signature::Verified(GOOGLE)), verified);
        assert_eq!(
            signature_evidence(claim, Proof::PrivateAddress, Signature::Invalid(Some(GOOGLE))).0,
            ClientKind::DeclaredBot
        );
    }

    #[test]
    fn the_evidence_says_by_what_it_was_proven() {
        let last = |proof| found(claims(Some(GOOGLE)), proof, Signature::Absent, None).evidence[1];
        assert_eq!(last(Proof::Proven(ProofMethod::Address)), Some(Evidence::AddressVerified(GOOGLE)));
        assert_eq!(last(Proof::Disproven(ProofMethod::Address)), Some(Evidence::AddressMismatch(GOOGLE)));
        assert_eq!(last(Proof::Proven(ProofMethod::Dns)), Some(Evidence::DnsVerified(GOOGLE)));
        assert_eq!(last(Proof::Disproven(ProofMethod::Dns)), Some(Evidence::DnsMismatch(GOOGLE)));
        assert_eq!(last(Proof::Unknown), None);
    }

    #[test]
    fn who_names_no_bot_and_signs_nothing_is_a_person() {
        assert_eq!(classified(Claim::Browser, Proof::Unknown).2, "person");
        assert_eq!(classified(Claim::NoUserAgent, Proof::Unknown).2, "person");
    }

    #[test]
    fn suspicion_concerns_only_those_who_name_no_bot() {
        let odd = Some(BotScore { points: 120, signals: [Some(Signal::Honeypot), Some(Signal::NoAssets), None] });
        assert_eq!(suspected(Claim::Browser, Proof::Unknown, odd).0, ClientKind::SuspectedBot);
        assert_eq!(suspected(Claim::NoUserAgent, Proof::Unknown, odd).0, ClientKind::SuspectedBot);
        assert_eq!(suspected(claims(None), Proof::Unknown, odd).0, ClientKind::DeclaredBot);
        assert_eq!(
            suspected(claims(Some(GOOGLE)), Proof::Proven(ProofMethod::Address), odd).0,
            ClientKind::VerifiedBot
        );
    }

    #[test]
    fn a_class_may_be_for_those_on_a_list_which_is_evidence() {
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
    fn who_signs_is_known_whatever_its_user_agent_says() {
        let verified = (ClientKind::VerifiedBot, Some(GOOGLE), "search".into());
        for claim in [Claim::NoUserAgent, Claim::Browser, claims(None), claims(Some(BING)), claims(Some(GOOGLE))] {
            assert_eq!(signature_evidence(claim, Proof::Unknown, Signature::Verified(GOOGLE)), verified, "{claim:?}");
        }
        assert_eq!(signature_evidence(claims(Some(GOOGLE)), DISPROVEN, Signature::Verified(GOOGLE)), verified);
    }

    #[test]
    fn who_claims_somebody_elses_name_is_an_impostor_though_it_signs() {
        let found = signature_evidence(claims(Some(BING)), DISPROVEN, Signature::Verified(GOOGLE));
        assert_eq!(found, (ClientKind::Impostor, None, "impostor".into()));
    }

    #[test]
    fn who_signs_without_proof_is_a_bot_by_its_own_word() {
        let declared = (ClientKind::DeclaredBot, None, "bot".into());
        for signature in [
            Signature::Unlisted,
            Signature::Invalid(None),
            Signature::Invalid(Some(GOOGLE)),
            Signature::Pending(GOOGLE),
            Signature::Unknown(None),
        ] {
            assert_eq!(signature_evidence(Claim::Browser, Proof::Unknown, signature), declared, "{signature:?}");
            assert_eq!(signature_evidence(claims(Some(GOOGLE)), Proof::Unknown, signature), declared, "{signature:?}");
        }
    }

    #[test]
    fn fields_that_name_no_agent_are_evidence_and_change_nothing() {
        let odd = Some(BotScore { points: 120, signals: [Some(Signal::Honeypot), Some(Signal::NoAssets), None] });
        for claim in [Claim::NoUserAgent, Claim::Browser, claims(None), claims(Some(GOOGLE))] {
            for proof in [Proof::Unknown, PROVEN, DISPROVEN] {
                for suspicion in [None, odd] {
                    let unsigned = found(claim, proof, Signature::Absent, suspicion);
                    let garbage = found(claim, proof, Signature::Unreadable, suspicion);
                    assert_eq!(told(&garbage), told(&unsigned), "{claim:?} {proof:?}");
                }
            }
        }
        let suspected = found(Claim::Browser, Proof::Unknown, Signature::Unreadable, odd);
        let evidence: Vec<_> = suspected.evidence.into_iter().flatten().collect();
        let [behaves_oddly, strangest] = [Signal::NoAssets, Signal::Honeypot].map(Evidence::Behavior);
        assert_eq!(evidence, [Evidence::UserAgentNoMatch, Evidence::SignatureMalformed, behaves_oddly, strangest]);
    }

    #[test]
    fn a_wrong_signature_takes_no_proof_away_and_a_claim_by_it_is_put_to_the_test() {
        let wrong = Signature::Invalid(Some(GOOGLE));
        assert_eq!(signature_evidence(claims(Some(GOOGLE)), PROVEN, wrong).0, ClientKind::VerifiedBot);
        assert_eq!(signature_evidence(Claim::Browser, DISPROVEN, wrong).0, ClientKind::Impostor);
    }

    #[test]
    fn nobody_is_an_impostor_before_the_keys_that_may_prove_it_are_there() {
        let claim = claims(Some(GOOGLE));
        assert_eq!(signature_evidence(claim, DISPROVEN, Signature::Pending(GOOGLE)).0, ClientKind::DeclaredBot);
        assert_eq!(signature_evidence(claim, DISPROVEN, Signature::Pending(BING)).0, ClientKind::Impostor);
        assert_eq!(signature_evidence(claim, DISPROVEN, Signature::Unknown(Some(GOOGLE))).0, ClientKind::Impostor);
    }

    #[test]
    fn the_operators_own_rule_goes_before_everything() {
        let rules = [UserAgentRule { contains: "acmemonitor".into(), kind: ClientKind::Human }];
        let facts = Facts {
            method: &http::Method::GET,
            host: "",
            path: "/",
            query: None,
            client: std::net::Ipv4Addr::LOCALHOST.into(),
            address_lists: ListSet::default(),
            user_agent: b"AcmeMonitor/2.0",
            claim: claims(None),
            proof: Proof::Unknown,
            signature: Signature::Absent,
            api_key_classes: &[],
            bot_score: None,
        };
        let found = classify(&rules, &classes(), &facts);
        assert_eq!((found.kind, found.evidence[0]), (ClientKind::Human, Some(Evidence::AgentRule(0))));
    }

    #[test]
    fn a_class_by_key_is_of_those_who_hold_one_of_its_own() {
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
            (claims(None), &[ClassId(0)], 2),
            (claims(None), &[ClassId(0), ClassId(1)], 1),
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
