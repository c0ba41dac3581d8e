//! What kind of client this is, on what evidence, and which of the operator's classes it falls into.

use super::behaviour::{Signal, Suspicion};
use super::bucket::Bucket;
use super::facts::{BotId, Claim, Facts, OperatorId, Proof};
use super::guard::Guard;
use super::identity::{KeyFrom, Prefix};
use super::lists::{ListId, Listed};

/// The kinds of client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Nothing says it is a bot.
    Human,
    /// A bot whose operator is proven.
    VerifiedBot,
    /// A bot that names itself, unproven.
    DeclaredBot,
    /// A bot that hides, by its behaviour.
    SuspectedBot,
    /// Claims an operator whose published addresses it does not have.
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
    NamesNoBot,
    /// The user agent names a bot of the list.
    NamesBot(BotId),
    /// The user agent has the shape of a bot's, though nobody listed it.
    ShapedLikeBot,
    /// The address is among those that the operator publishes.
    AddressPublished(OperatorId),
    /// The operator publishes all its addresses, and this is none of them.
    AddressForeign(OperatorId),
    /// It does, or leaves out, what people seldom do.
    Behaves(Signal),
    /// The address stands on a list of the operator's, and its class is for those.
    OnList(ListId),
}

/// What speaks for a classification, most telling last.
pub type Reasons = [Option<Evidence>; 5];

/// A client, classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classified {
    /// What kind of client it is.
    pub kind: Kind,
    /// Whose crawler it is; only with proof.
    pub operator: Option<OperatorId>,
    /// The class it falls into.
    pub class: ClassId,
    /// Why.
    pub evidence: Reasons,
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
    pub when: When,
    /// Refused everything but robots.txt.
    pub blocked: bool,
    /// The bucket of each of its clients.
    pub bucket: Option<Bucket>,
    /// Who shares one bucket.
    pub key: KeyFrom,
    /// False: its refusals by bucket, tier or block are counted and logged, not carried out.
    pub enforce: bool,
    /// Who goes first where there is a line; higher goes first.
    pub priority: u8,
    /// What its verified crawlers are let through although a tier refuses them.
    pub guard: Option<Guard>,
}

/// Conditions that must all hold; within each, one match is enough, and an empty one always holds.
#[derive(Clone, Debug, Default)]
pub struct When {
    /// The kind is one of these.
    pub kinds: Vec<Kind>,
    /// The proven operator is one of these.
    pub operators: Vec<OperatorId>,
    /// The user agent contains one of these, in any case.
    pub user_agents: Vec<String>,
    /// The address is in one of these ranges.
    pub addresses: Vec<Prefix>,
    /// The address stands on one of these lists.
    pub lists: Listed,
}

/// The operator's own word on a user agent; goes before the built-in list.
#[derive(Clone, Debug)]
pub struct AgentRule {
    /// Fits user agents that contain this, in any case.
    pub contains: String,
    /// What such a client is.
    pub kind: Kind,
}

impl Kind {
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
pub fn classify(rules: &[AgentRule], classes: &[Class], facts: &Facts<'_>) -> Classified {
    let (kind, operator, mut evidence) = kind(rules, facts);
    let fits = |class: &Class| class.when.fits(kind, operator, facts);
    let class = classes.iter().position(fits).unwrap_or(classes.len().saturating_sub(1));
    let list = classes.get(class).and_then(|class| class.when.lists.first_in_common(facts.listed));
    evidence[4] = list.map(Evidence::OnList);
    Classified { kind, operator, class: ClassId(class as u16), evidence }
}

/// The place of the operator's rule that fits a user agent, if one does.
pub fn agent_rule(rules: &[AgentRule], user_agent: &[u8]) -> Option<usize> {
    rules.iter().position(|rule| contains_ignoring_case(user_agent, rule.contains.as_bytes()))
}

fn kind(rules: &[AgentRule], facts: &Facts<'_>) -> (Kind, Option<OperatorId>, Reasons) {
    if let Some(place) = agent_rule(rules, facts.user_agent) {
        return (rules[place].kind, None, [Some(Evidence::AgentRule(place as u16)), None, None, None, None]);
    }
    match facts.claim {
        Claim::Nothing => of_nobody(Evidence::NoUserAgent, facts.suspicion),
        Claim::Browser => of_nobody(Evidence::NamesNoBot, facts.suspicion),
        Claim::Bot { bot, operator } => {
            let named = Some(bot.map_or(Evidence::ShapedLikeBot, Evidence::NamesBot));
            match (facts.proof, operator) {
                (Proof::Proven, Some(operator)) => (
                    Kind::VerifiedBot,
                    Some(operator),
                    [named, Some(Evidence::AddressPublished(operator)), None, None, None],
                ),
                (Proof::Disproven, Some(operator)) => {
                    (Kind::Impostor, None, [named, Some(Evidence::AddressForeign(operator)), None, None, None])
                }
                _ => (Kind::DeclaredBot, None, [named, None, None, None, None]),
            }
        }
    }
}

/// Who names no bot is a person, unless it is suspected.
fn of_nobody(claimed: Evidence, suspicion: Option<Suspicion>) -> (Kind, Option<OperatorId>, Reasons) {
    match suspicion {
        None => (Kind::Human, None, [Some(claimed), None, None, None, None]),
        Some(Suspicion { signals: [strongest, second, third], .. }) => {
            let behaves = |signal: Option<Signal>| signal.map(Evidence::Behaves);
            (Kind::SuspectedBot, None, [Some(claimed), behaves(third), behaves(second), behaves(strongest), None])
        }
    }
}

impl When {
    /// True when it sets no condition.
    pub fn is_for_everybody(&self) -> bool {
        let Self { kinds, operators, user_agents, addresses, lists } = self;
        kinds.is_empty() && operators.is_empty() && user_agents.is_empty() && addresses.is_empty() && lists.is_empty()
    }

    fn fits(&self, kind: Kind, operator: Option<OperatorId>, facts: &Facts<'_>) -> bool {
        let named = |text: &String| contains_ignoring_case(facts.user_agent, text.as_bytes());
        (self.kinds.is_empty() || self.kinds.contains(&kind))
            && (self.operators.is_empty() || operator.is_some_and(|operator| self.operators.contains(&operator)))
            && (self.user_agents.is_empty() || self.user_agents.iter().any(named))
            && (self.addresses.is_empty() || self.addresses.iter().any(|range| range.contains(facts.client)))
            && (self.lists.is_empty() || self.lists.first_in_common(facts.listed).is_some())
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

    fn class(name: &str, when: When) -> Class {
        Class {
            name: name.into(),
            when,
            blocked: false,
            bucket: None,
            key: KeyFrom::Address,
            enforce: true,
            priority: 0,
            guard: None,
        }
    }

    fn classes() -> Vec<Class> {
        vec![
            class("search", When { operators: vec![GOOGLE], ..When::default() }),
            class("impostor", When { kinds: vec![Kind::Impostor], ..When::default() }),
            class("bot", When { kinds: vec![Kind::VerifiedBot, Kind::DeclaredBot], ..When::default() }),
            class("person", When::default()),
        ]
    }

    fn classified(claim: Claim, proof: Proof) -> (Kind, Option<OperatorId>, String) {
        suspected(claim, proof, None)
    }

    fn suspected(claim: Claim, proof: Proof, suspicion: Option<Suspicion>) -> (Kind, Option<OperatorId>, String) {
        let facts = Facts {
            method: &http::Method::GET,
            host: "example.com",
            path: "/",
            query: None,
            client: std::net::Ipv4Addr::LOCALHOST.into(),
            listed: Listed::default(),
            user_agent: b"Mozilla/5.0 AcmeMonitor/1",
            claim,
            proof,
            suspicion,
        };
        let found = classify(&[], &classes(), &facts);
        (found.kind, found.operator, classes()[usize::from(found.class.0)].name.clone())
    }

    fn claims(operator: Option<OperatorId>) -> Claim {
        Claim::Bot { bot: None, operator }
    }

    #[test]
    fn an_operator_is_set_only_with_proof() {
        assert_eq!(classified(claims(Some(GOOGLE)), Proof::Proven), (Kind::VerifiedBot, Some(GOOGLE), "search".into()));
        assert_eq!(classified(claims(Some(GOOGLE)), Proof::Unknown), (Kind::DeclaredBot, None, "bot".into()));
        assert_eq!(classified(claims(Some(GOOGLE)), Proof::Disproven), (Kind::Impostor, None, "impostor".into()));
        assert_eq!(classified(claims(Some(BING)), Proof::Proven), (Kind::VerifiedBot, Some(BING), "bot".into()));
        assert_eq!(classified(claims(None), Proof::Unknown), (Kind::DeclaredBot, None, "bot".into()));
    }

    #[test]
    fn who_names_no_bot_is_a_person() {
        assert_eq!(classified(Claim::Browser, Proof::Unknown).2, "person");
        assert_eq!(classified(Claim::Nothing, Proof::Unknown).2, "person");
    }

    #[test]
    fn suspicion_concerns_only_those_who_name_no_bot() {
        let odd = Some(Suspicion { points: 120, signals: [Some(Signal::Trapped), Some(Signal::NoAssets), None] });
        assert_eq!(suspected(Claim::Browser, Proof::Unknown, odd).0, Kind::SuspectedBot);
        assert_eq!(suspected(Claim::Nothing, Proof::Unknown, odd).0, Kind::SuspectedBot);
        assert_eq!(suspected(claims(None), Proof::Unknown, odd).0, Kind::DeclaredBot);
        assert_eq!(suspected(claims(Some(GOOGLE)), Proof::Proven, odd).0, Kind::VerifiedBot);
    }

    #[test]
    fn a_class_may_be_for_those_on_a_list_which_is_evidence() {
        let (hosting, tor) = (ListId(0), ListId(5));
        let classes = [
            class("hosting", When { lists: Listed::on([hosting, tor]), kinds: vec![Kind::Human], ..When::default() }),
            class("person", When::default()),
        ];
        let found = |listed| {
            let facts = Facts {
                method: &http::Method::GET,
                host: "",
                path: "/",
                query: None,
                client: std::net::Ipv4Addr::LOCALHOST.into(),
                listed,
                user_agent: b"Mozilla/5.0",
                claim: Claim::Browser,
                proof: Proof::Unknown,
                suspicion: None,
            };
            let found = classify(&[], &classes, &facts);
            (found.class.0, found.evidence[4])
        };
        assert_eq!(found(Listed::on([tor])), (0, Some(Evidence::OnList(tor))));
        assert_eq!(found(Listed::on([ListId(3)])), (1, None));
        assert_eq!(found(Listed::default()), (1, None));
    }

    #[test]
    fn the_operators_own_rule_goes_before_everything() {
        let rules = [AgentRule { contains: "acmemonitor".into(), kind: Kind::Human }];
        let facts = Facts {
            method: &http::Method::GET,
            host: "",
            path: "/",
            query: None,
            client: std::net::Ipv4Addr::LOCALHOST.into(),
            listed: Listed::default(),
            user_agent: b"AcmeMonitor/2.0",
            claim: claims(None),
            proof: Proof::Unknown,
            suspicion: None,
        };
        let found = classify(&rules, &classes(), &facts);
        assert_eq!((found.kind, found.evidence[0]), (Kind::Human, Some(Evidence::AgentRule(0))));
    }
}
