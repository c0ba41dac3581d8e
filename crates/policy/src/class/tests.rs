use super::evidence::{ADDRESS_LIST_INDEX, API_KEY_INDEX};
use super::*;
use crate::ListId;
use crate::bot_detection::{BotScore, Signal};
use crate::facts::{Claim, ClientFacts, Proof, ProofMethod, RequestFacts, Signature};
use crate::fixtures::{self, client_facts, request_facts};

const GOOGLE: OperatorId = OperatorId(0);
const BING: OperatorId = OperatorId(1);
const PROVEN: Proof = Proof::Proven(ProofMethod::Address);
const DISPROVEN: Proof = Proof::Disproven(ProofMethod::Address);

fn class(name: &str, matcher: ClassMatcher) -> Class {
    Class { matcher, ..fixtures::class(name) }
}

fn classes() -> Vec<Class> {
    vec![
        class("search", ClassMatcher { operators: vec![GOOGLE], ..ClassMatcher::default() }),
        class("impostor", ClassMatcher { kinds: vec![ClientKind::Impostor], ..ClassMatcher::default() }),
        class(
            "bot",
            ClassMatcher { kinds: vec![ClientKind::VerifiedBot, ClientKind::DeclaredBot], ..ClassMatcher::default() },
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
    bot_score: Option<BotScore>,
) -> (ClientKind, Option<OperatorId>, String) {
    class_summary(&classification(claim, proof, Signature::Absent, bot_score))
}

fn signature_evidence(claim: Claim, proof: Proof, signature: Signature) -> (ClientKind, Option<OperatorId>, String) {
    class_summary(&classification(claim, proof, signature, None))
}

fn class_summary(result: &Classification) -> (ClientKind, Option<OperatorId>, String) {
    (result.kind, result.operator, classes()[result.class.index()].name.clone())
}

fn classification(claim: Claim, proof: Proof, signature: Signature, bot_score: Option<BotScore>) -> Classification {
    classify_client(&classes(), &ClientFacts { proof, signature, bot_score, ..client_facts(claim) })
}

fn classify_client(classes: &[Class], client: &ClientFacts) -> Classification {
    classify(&UserAgentRules::default(), classes, &Facts { request: request_facts("/"), client })
}

fn bot_claim(operator: Option<OperatorId>) -> Claim {
    Claim::Bot { bot: None, operator }
}

#[test]
fn an_operator_is_set_only_with_proof() {
    for method in [ProofMethod::Address, ProofMethod::Dns] {
        let (proven, disproven) = (Proof::Proven(method), Proof::Disproven(method));
        assert_eq!(
            classify_claim(bot_claim(Some(GOOGLE)), proven),
            (ClientKind::VerifiedBot, Some(GOOGLE), "search".into())
        );
        assert_eq!(classify_claim(bot_claim(Some(GOOGLE)), disproven), (ClientKind::Impostor, None, "impostor".into()));
        assert_eq!(classify_claim(bot_claim(Some(BING)), proven), (ClientKind::VerifiedBot, Some(BING), "bot".into()));
    }
    assert_eq!(classify_claim(bot_claim(Some(GOOGLE)), Proof::Unknown), (ClientKind::DeclaredBot, None, "bot".into()));
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
    let evidence = |proof| classification(bot_claim(Some(GOOGLE)), proof, Signature::Absent, None).evidence[1];
    assert_eq!(evidence(Proof::Proven(ProofMethod::Address)), Some(Evidence::AddressVerified(GOOGLE)));
    assert_eq!(evidence(Proof::Disproven(ProofMethod::Address)), Some(Evidence::AddressMismatch(GOOGLE)));
    assert_eq!(evidence(Proof::Proven(ProofMethod::Dns)), Some(Evidence::DnsVerified(GOOGLE)));
    assert_eq!(evidence(Proof::Disproven(ProofMethod::Dns)), Some(Evidence::DnsMismatch(GOOGLE)));
    assert_eq!(evidence(Proof::Unknown), None);
}

#[test]
fn client_without_claim_or_signature_is_human() {
    assert_eq!(classify_claim(Claim::Browser, Proof::Unknown).2, "person");
    assert_eq!(classify_claim(Claim::NoUserAgent, Proof::Unknown).2, "person");
}

#[test]
fn bot_score_applies_only_to_undeclared_clients() {
    let bot_score =
        Some(BotScore { points: 120, signals: [Some(Signal::Honeypot), Some(Signal::NoAssets), None], beyond: None });
    assert_eq!(classify_scored(Claim::Browser, Proof::Unknown, bot_score).0, ClientKind::SuspectedBot);
    assert_eq!(classify_scored(Claim::NoUserAgent, Proof::Unknown, bot_score).0, ClientKind::SuspectedBot);
    assert_eq!(classify_scored(bot_claim(None), Proof::Unknown, bot_score).0, ClientKind::DeclaredBot);
    assert_eq!(
        classify_scored(bot_claim(Some(GOOGLE)), Proof::Proven(ProofMethod::Address), bot_score).0,
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
    let classify_listed = |address_lists| {
        let result = classify_client(&classes, &ClientFacts { address_lists, ..client_facts(Claim::Browser) });
        (result.class.0, result.evidence[ADDRESS_LIST_INDEX])
    };
    assert_eq!(classify_listed(ListSet::from_ids([tor])), (0, Some(Evidence::AddressList(tor))));
    assert_eq!(classify_listed(ListSet::from_ids([ListId(3)])), (1, None));
    assert_eq!(classify_listed(ListSet::default()), (1, None));
}

#[test]
fn valid_signature_identifies_regardless_of_user_agent() {
    let verified = (ClientKind::VerifiedBot, Some(GOOGLE), "search".into());
    for claim in [Claim::NoUserAgent, Claim::Browser, bot_claim(None), bot_claim(Some(BING)), bot_claim(Some(GOOGLE))] {
        assert_eq!(signature_evidence(claim, Proof::Unknown, Signature::Verified(GOOGLE)), verified, "{claim:?}");
    }
    assert_eq!(signature_evidence(bot_claim(Some(GOOGLE)), DISPROVEN, Signature::Verified(GOOGLE)), verified);
}

#[test]
fn signed_request_with_false_claim_is_an_impostor() {
    let result = signature_evidence(bot_claim(Some(BING)), DISPROVEN, Signature::Verified(GOOGLE));
    assert_eq!(result, (ClientKind::Impostor, None, "impostor".into()));
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
        assert_eq!(signature_evidence(bot_claim(Some(GOOGLE)), Proof::Unknown, signature), declared, "{signature:?}");
    }
}

#[test]
fn malformed_signature_is_evidence_without_effect() {
    let high_score =
        Some(BotScore { points: 120, signals: [Some(Signal::Honeypot), Some(Signal::NoAssets), None], beyond: None });
    for claim in [Claim::NoUserAgent, Claim::Browser, bot_claim(None), bot_claim(Some(GOOGLE))] {
        for proof in [Proof::Unknown, PROVEN, DISPROVEN] {
            for bot_score in [None, high_score] {
                let unsigned = classification(claim, proof, Signature::Absent, bot_score);
                let malformed = classification(claim, proof, Signature::Malformed, bot_score);
                assert_eq!(class_summary(&malformed), class_summary(&unsigned), "{claim:?} {proof:?}");
            }
        }
    }
    let suspected = classification(Claim::Browser, Proof::Unknown, Signature::Malformed, high_score);
    let evidence: Vec<_> = suspected.evidence.into_iter().flatten().collect();
    let [no_assets, honeypot] = [Signal::NoAssets, Signal::Honeypot].map(Evidence::Behavior);
    assert_eq!(evidence, [Evidence::UserAgentNoMatch, Evidence::SignatureMalformed, no_assets, honeypot]);
}

#[test]
fn invalid_signature_keeps_proof_and_checks_the_claim() {
    let invalid = Signature::Invalid(Some(GOOGLE));
    assert_eq!(signature_evidence(bot_claim(Some(GOOGLE)), PROVEN, invalid).0, ClientKind::VerifiedBot);
    assert_eq!(signature_evidence(Claim::Browser, DISPROVEN, invalid).0, ClientKind::Impostor);
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
    let rules = UserAgentRules::new(vec![UserAgentRule { contains: "acmemonitor".into(), kind: ClientKind::Human }])
        .expect("few words");
    let request = RequestFacts { user_agent: b"AcmeMonitor/2.0", ..request_facts("/") };
    let result = classify(&rules, &classes(), &Facts { request, client: &client_facts(bot_claim(None)) });
    assert_eq!((result.kind, result.evidence[0]), (ClientKind::Human, Some(Evidence::UserAgentRule(0))));
}

#[test]
fn api_key_class_needs_one_of_its_keys() {
    let source = || CredentialSource::Header(http::HeaderName::from_static("x-api-key"));
    let api_keys =
        |value: &str| Some(KeyCondition::Given(ApiKeys { source: source(), values: vec![Secret::new(value.into())] }));
    let classes = [
        class(
            "partner",
            ClassMatcher { keys: api_keys("sesame"), kinds: vec![ClientKind::Human], ..ClassMatcher::default() },
        ),
        class("other partner", ClassMatcher { keys: api_keys("barley"), ..ClassMatcher::default() }),
        class("rest", ClassMatcher::default()),
    ];
    for (claim, key_classes, index) in [
        (Claim::Browser, &[][..], 2),
        (Claim::Browser, &[ClassId(0)], 0),
        (bot_claim(None), &[ClassId(0)], 2),
        (bot_claim(None), &[ClassId(0), ClassId(1)], 1),
    ] {
        let api_key_classes = key_classes.to_vec();
        let result = classify_client(&classes, &ClientFacts { api_key_classes, ..client_facts(claim) });
        assert_eq!(result.class, ClassId(index), "{claim:?} {key_classes:?}");
        assert_eq!(result.evidence[API_KEY_INDEX], (index < 2).then_some(Evidence::ApiKey));
    }
    assert_eq!(format!("{:?}", classes[0].matcher.own_keys().map(|keys| &keys.values)), "Some([Secret])");
}

#[test]
fn each_condition_excludes_the_clients_that_do_not_meet_it() {
    const CLASS: ClassId = ClassId(3);
    let range = |text: &str| vec![IpPrefix::parse(text).expect("a valid range")];
    let header = |name| CredentialSource::Header(http::HeaderName::from_static(name));
    let source = header("x-api-key");
    let any = ClassMatcher::default;
    let met = ClientFacts {
        address_lists: ListSet::from_ids([ListId(1)]),
        api_key_classes: vec![CLASS],
        certificate_classes: vec![CLASS],
        field_classes: vec![CLASS],
        session: Session::New,
        purpose: Some(Purpose::Search),
        network_origin: NetworkOrigin { asn: Some(64_496), country: "DE".parse().ok() },
        ..client_facts(Claim::Browser)
    };
    let unmet = ClientFacts {
        address: std::net::Ipv4Addr::new(192, 0, 2, 1).into(),
        address_lists: ListSet::from_ids([ListId(2)]),
        api_key_classes: vec![ClassId(0)],
        certificate_classes: vec![ClassId(0)],
        field_classes: vec![ClassId(0)],
        session: Session::None,
        purpose: None,
        network_origin: NetworkOrigin::default(),
        ..met
    };
    let first_unmet = |matcher: &ClassMatcher, is_met: bool| {
        let (kind, operator, client, user_agent): (_, _, _, &[u8]) = match is_met {
            true => (ClientKind::VerifiedBot, Some(GOOGLE), &met, b"AcmeMonitor/2.0"),
            false => (ClientKind::Human, None, &unmet, b"Mozilla"),
        };
        let (path, host) = if is_met { ("/feed/atom", "api.example.com") } else { ("/", "example.com") };
        let method = if is_met { &Method::POST } else { &Method::GET };
        let request = RequestFacts { user_agent, host, method, ..request_facts(path) };
        matcher.first_unmet(CLASS, kind, operator, &Facts { request, client })
    };
    assert!(any().matches_all());
    assert_eq!([true, false].map(|is_met| first_unmet(&any(), is_met)), [None, None]);
    for (matcher, condition) in [
        (ClassMatcher { kinds: vec![ClientKind::VerifiedBot], ..any() }, ConditionKind::Kind),
        (ClassMatcher { operators: vec![GOOGLE], ..any() }, ConditionKind::Operator),
        (
            ClassMatcher {
                user_agents: Words::new(vec!["nosuch".into(), "acmemonitor".into()]).expect("few words"),
                ..any()
            },
            ConditionKind::UserAgent,
        ),
        (ClassMatcher { addresses: range("127.0.0.0/8"), ..any() }, ConditionKind::Address),
        (ClassMatcher { lists: ListSet::from_ids([ListId(1)]), ..any() }, ConditionKind::List),
        (
            ClassMatcher { keys: Some(KeyCondition::Given(ApiKeys { source, values: Vec::new() })), ..any() },
            ConditionKind::Key,
        ),
        (
            ClassMatcher { certificates: vec!["partner".parse().expect("valid pattern")], ..any() },
            ConditionKind::Certificate,
        ),
        (
            ClassMatcher { fields: vec![FieldCondition::new(header("x-partner"), Vec::new())], ..any() },
            ConditionKind::Field,
        ),
        (ClassMatcher { sessions: vec![Session::New, Session::Known], ..any() }, ConditionKind::Session),
        (ClassMatcher { purposes: vec![Purpose::Training, Purpose::Search], ..any() }, ConditionKind::Purpose),
        (ClassMatcher { asns: vec![64_500, 64_496], ..any() }, ConditionKind::Asn),
        (ClassMatcher { countries: "de".parse().into_iter().collect(), ..any() }, ConditionKind::Country),
        (
            ClassMatcher {
                paths: vec![("/feed/**".into(), Pattern::parse("/feed/**").expect("valid pattern"))],
                ..any()
            },
            ConditionKind::Path,
        ),
        (ClassMatcher { hosts: vec!["*.example.com".into()], ..any() }, ConditionKind::Host),
        (ClassMatcher { methods: vec![Method::POST], ..any() }, ConditionKind::Method),
    ] {
        assert!(!matcher.matches_all(), "{condition:?}");
        assert_eq!((first_unmet(&matcher, true), first_unmet(&matcher, false)), (None, Some(condition)));
    }
}

#[test]
fn a_field_matches_by_any_of_its_lines_and_patterns() {
    let source = CredentialSource::Header(http::HeaderName::from_static("x-partner"));
    let patterns = ["acme*", "beta"].iter().flat_map(|pattern| pattern.parse()).collect();
    let (named, of_values) = (FieldCondition::new(source.clone(), Vec::new()), FieldCondition::new(source, patterns));
    for (lines, is_named, is_of_values) in [
        (&[][..], false, false),
        (&[&b""[..]], true, false),
        (&[b"Acme-7"], true, true),
        (&[b"gamma", b"beta"], true, true),
        (&[b"a\xffcme"], true, false),
    ] {
        let matches = |condition: &FieldCondition| condition.matches(lines.iter().copied());
        assert_eq!((matches(&named), matches(&of_values)), (is_named, is_of_values), "{lines:?}");
    }
    assert_eq!(of_values.to_string(), "the header x-partner like acme* or beta");
}

#[test]
fn api_keys_contain_each_of_their_values() {
    let source = CredentialSource::Header(http::HeaderName::from_static("x-api-key"));
    let values = ["sesame", "barley"].map(|value| Secret::new(value.into())).to_vec();
    let keys = ApiKeys { source, values };
    assert_eq!(
        ["sesame", "barley", "barleY", "barle", "barley2", ""].map(|key| keys.contains(key.as_bytes())),
        [true, true, false, false, false, false]
    );
    let twice = ApiKeys { values: vec![Secret::new("sesame".into()), Secret::new("sesame".into())], ..keys };
    assert!(twice.contains(b"sesame"), "a key that is listed twice");
}

#[test]
fn evidence_of_a_verified_claim_names_its_operator() {
    let [google, none] = [Some(GOOGLE), None];
    for (evidence, operator) in [
        (Evidence::AddressVerified(GOOGLE), google),
        (Evidence::AddressMismatch(GOOGLE), google),
        (Evidence::SignatureValid(GOOGLE), google),
        (Evidence::SignatureInvalid(google), google),
        (Evidence::SignatureUnknown(google), google),
        (Evidence::SignatureInvalid(none), none),
        (Evidence::AddressPrivate(GOOGLE), none),
        (Evidence::ApiKey, none),
    ] {
        assert_eq!(evidence.claimed_operator(), operator, "{evidence:?}");
    }
}

#[test]
fn every_kind_has_its_name() {
    for kind in ClientKind::ALL {
        assert_eq!(kind.name().replace('_', ""), format!("{kind:?}").to_lowercase());
    }
}

#[test]
fn path_has_to_match_in_each_reading() {
    let feed = ("/feed/**".to_owned(), Pattern::parse("/feed/**").expect("valid pattern"));
    let matcher = ClassMatcher { paths: vec![feed], ..ClassMatcher::default() };
    let client = client_facts(Claim::Browser);
    let unmet = |other_paths: &[String]| {
        let request = RequestFacts { other_paths, ..request_facts("/feed/atom") };
        matcher.first_unmet(ClassId(0), ClientKind::Human, None, &Facts { request, client: &client })
    };
    assert_eq!(unmet(&[]), None);
    assert_eq!(unmet(&["/feed/x".into()]), None);
    assert_eq!(unmet(&["/item/1".into()]), Some(ConditionKind::Path));
}
