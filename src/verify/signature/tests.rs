//! The published vectors, what must not verify, and anything at all.

use super::key_fetch::read;
use super::*;
use crate::http1::RequestHead;
use crate::verify::fetch::Document;
use aws_lc_rs::signature::Ed25519KeyPair;
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use proptest::prelude::*;

/// The test key of RFC 9421, appendix B.1.4: its private and its public half, and its name.
const SECRET: &str = "n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU";
const PUBLIC: &str = "JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs";
const KEY_ID: &str = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";

const AGENT: &str = "https://signature-agent.test";
const CREATED: u64 = 1_735_689_600;
/// A minute later.
const NOW: Timestamp = Timestamp::from_seconds(CREATED + 60);
const A_DAY: Duration = Duration::from_secs(24 * 3600);
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Somebody who knows one agent, of one operator, and its key.
struct Verifier {
    signatures: SignatureVerifier,
    terms: SignaturePolicy,
    now: Timestamp,
}

impl Verifier {
    fn new() -> Self {
        let terms = SignaturePolicy { unlisted: false, max_lifetime: A_DAY };
        let verifier =
            Self { signatures: SignatureVerifier::of([(AGENT, OperatorId(0))].into_iter()), terms, now: NOW };
        verifier.learn(AGENT, PUBLIC);
        verifier
    }

    /// `agent` publishes one key.
    fn learn(&self, agent: &str, x: &str) {
        let jwk = serde_json::json!({ "kty": "OKP", "crv": "Ed25519", "x": x });
        let key = Arc::new(AgentKey::read(&jwk).expect("a key"));
        let agent = AgentUrl::parse(agent).expect("an address");
        let moment = (self.now, Timestamp::default());
        let directories = &mut self.signatures.memory.lock().directories;
        let _ = directories.key(&agent, AgentListing::Listed, &[0; 32], moment);
        directories.record_fetch(&agent, Some((vec![key], None)), 0.0, Timestamp::default());
    }

    fn judge(&self, request: &Asked) -> Signature {
        let message = request.message();
        let moment = VerifyTime { now: self.now, uptime: Timestamp::default() };
        self.signatures.verify(&message, ClientKey::OF_CLASS, self.terms, moment)
    }

    fn finding(&self, request: &Asked) -> SignatureOutcome {
        self.examine(request, 0).0
    }

    fn examine(&self, request: &Asked, client: u64) -> (SignatureOutcome, ClaimedAgent) {
        let message = request.message();
        let moment = VerifyTime { now: self.now, uptime: Timestamp::default() };
        self.signatures.verify_all(&VerifyRequest { message: &message, client, terms: self.terms, moment })
    }
}

/// A request, signed or not.
struct Asked {
    head: RequestHead,
    has_body: bool,
}

impl Asked {
    fn message(&self) -> SignedMessage<'_> {
        let authority = self.head.fields.get(crate::http1::Name::Host).unwrap_or_default();
        SignedMessage { head: &self.head, authority, secure: true, has_body: self.has_body }
    }
}

fn asked(fields: &[(&str, &str)]) -> Asked {
    asked_for("/", fields)
}

fn asked_for(target: &str, fields: &[(&str, &str)]) -> Asked {
    let fields = [("Host", "example.com")].into_iter().chain(fields.iter().copied()).collect();
    let target = target.parse().expect("a target");
    Asked {
        head: RequestHead { method: http::Method::GET, target, version: http::Version::HTTP_11, fields },
        has_body: false,
    }
}

/// Signs `components`, given as identifier and value, as `sig1`; returns the input and the signature field.
fn sign(components: &[(&str, &str)], parameters: &str) -> (String, String) {
    let identifiers: Vec<_> = components.iter().map(|(identifier, _)| *identifier).collect();
    let input = format!("({}){parameters}", identifiers.join(" "));
    let lines: String = components.iter().map(|(identifier, value)| format!("{identifier}: {value}\n")).collect();
    let base = format!("{lines}\"@signature-params\": {input}");
    let seed = BASE64_URL_SAFE_NO_PAD.decode(SECRET).expect("a key");
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("a key");
    let signature = BASE64_STANDARD.encode(pair.sign(base.as_bytes()));
    (format!("sig1={input}"), format!("sig1=:{signature}:"))
}

/// Parameters of an hour, as they should be.
fn hour() -> String {
    parameters(CREATED, CREATED + 3600, "")
}

fn parameters(created: u64, expires: u64, more: &str) -> String {
    format!(r#";created={created};keyid="{KEY_ID}";alg="ed25519";expires={expires}{more};tag="web-bot-auth""#)
}

const MEMBER: (&str, &str) = (r#""signature-agent";key="sig1""#, r#""https://signature-agent.test""#);
const AUTHORITY: (&str, &str) = (r#""@authority""#, "example.com");
const LABELLED: &str = r#"sig1="https://signature-agent.test""#;

/// A request that is signed over `components`, with `more` fields.
fn signed(components: &[(&str, &str)], parameters: &str, more: &[(&str, &str)]) -> Asked {
    let (input, signature) = sign(components, parameters);
    let fields: Vec<_> = [("Signature-Agent", LABELLED), ("Signature-Input", &input), ("Signature", &signature)]
        .into_iter()
        .chain(more.iter().copied())
        .collect();
    asked(&fields)
}

#[test]
fn the_published_vector_with_a_labelled_agent_verifies() {
    let input = format!(
        "sig2=(\"@authority\" \"signature-agent\";key=\"sig2\");created=1735689600;keyid=\"{KEY_ID}\";alg=\"ed25519\";\
         expires=4889289600;nonce=\"n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA==\";\
         tag=\"web-bot-auth\""
    );
    let request = asked(&[
        ("Signature-Agent", "sig2=\"https://signature-agent.test\""),
        ("Signature-Input", &input),
        (
            "Signature",
            "sig2=:CGokAoY/FrPpyuzTe1Fb2kLTAH9Idw6qSFd1+D77r1firsMRCxeuLu5e6O+ek3zQgDMAzjiXtLVfqE00xnABCQ==:",
        ),
    ]);
    let mut verifier = Verifier::new();
    assert_eq!(verifier.finding(&request), SignatureError::LifetimeTooLong.into(), "a hundred years are no day");
    verifier.terms.max_lifetime = FOR_EVER;
    assert_eq!(verifier.examine(&request, 0), (SignatureOutcome::Verified, ClaimedAgent::Listed(OperatorId(0))));
}

#[test]
fn the_published_vector_with_one_agent_for_all_verifies() {
    let input = format!(
        "sig2=(\"@authority\" \"signature-agent\");created=1735689600;keyid=\"{KEY_ID}\";alg=\"ed25519\";\
         expires=1735693200;nonce=\"e8N7S2MFd/qrd6T2R3tdfAuuANngKI7LFtKYI/vowzk4lAZYadIX6wW25MwG7DCT9RUKAJ0qVkU0mEeLElW1qg==\";\
         tag=\"web-bot-auth\""
    );
    let request = asked(&[
        ("Signature-Agent", "\"https://signature-agent.test\""),
        ("Signature-Input", &input),
        (
            "Signature",
            "sig2=:jdq0SqOwHdyHr9+r5jw3iYZH6aNGKijYp/EstF4RQTQdi5N5YYKrD+mCT1HA1nZDsi6nJKuHxUi/5Syp3rLWBA==:",
        ),
    ]);
    assert_eq!(Verifier::new().finding(&request), SignatureOutcome::Verified);
}

/// Each request has one fault, as the negative vectors of `webbotauth-negative-vectors` (CC0) describe them, by their
/// numbers; made anew here from the standard's test key.
#[test]
fn requests_with_one_fault_do_not_verify() {
    let whole = [AUTHORITY, MEMBER];
    let digest = ("\"content-digest\"", "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:");
    let with_body = |request: Asked| Asked { has_body: true, ..request };
    let edited = |agent: &str, input: &str, signature: &str| {
        let (good_input, good_signature) = sign(&whole, &hour());
        let edit = |edit: &str, good: String| if edit.is_empty() { good } else { edit.to_owned() };
        let (input, signature) = (edit(input, good_input), edit(signature, good_signature));
        asked(&[("Signature-Agent", agent), ("Signature-Input", &input), ("Signature", &signature)])
    };
    let broken_input = sign(&whole, &hour()).0.replace(')', "");
    let of_another = |agent: &str| {
        let (input, signature) = sign(&[AUTHORITY, (MEMBER.0, &format!("\"{agent}\""))], &hour());
        edited(&format!("sig1=\"{agent}\""), &input, &signature)
    };
    let several = r#"first="https://signature-agent.test", second="https://other-agent.test""#;
    let (input_of_several, signature_of_several) = sign(&[AUTHORITY, ("\"signature-agent\"", several)], &hour());
    let bare = sign(&[AUTHORITY], &hour());
    let other_signature = sign(&whole, &hour()).1.replace("sig1", "sig9");

    let mut vectors: Vec<(&str, SignatureOutcome, Asked)> = vec![
        ("01: no target", SignatureError::TargetNotCovered.into(), signed(&[MEMBER], &hour(), &[])),
        (
            "03: no end",
            SignatureError::MissingParams.into(),
            signed(&whole, &hour().replace(";expires=1735693200", ""), &[]),
        ),
        ("04: over", SignatureError::Expired.into(), signed(&whole, &parameters(CREATED, CREATED + 60, ""), &[])),
        (
            "05: to come",
            SignatureError::NotYet.into(),
            signed(&whole, &parameters(CREATED + 3660, CREATED + 7260, ""), &[]),
        ),
        (
            "06: of elsewhere",
            SignatureError::InvalidSignature.into(),
            signed(&[(AUTHORITY.0, "other.example"), MEMBER], &hour(), &[]),
        ),
        (
            "07: an empty path",
            SignatureError::InvalidSignature.into(),
            signed(&[AUTHORITY, ("\"@path\"", ""), MEMBER], &hour(), &[]),
        ),
        (
            "08: another body",
            SignatureError::DigestMismatch.into(),
            with_body(signed(&[AUTHORITY, digest, MEMBER], &hour(), &[("Content-Digest", digest.1)])),
        ),
        (
            "09: what is not there",
            SignatureError::ComponentAbsent.into(),
            signed(&[AUTHORITY, digest, MEMBER], &hour(), &[]),
        ),
        ("10: a broken input", SignatureError::MalformedFields.into(), edited(LABELLED, &broken_input, "")),
        ("11: another label", SignatureError::MalformedFields.into(), edited(LABELLED, "", &other_signature)),
        ("12: no agent", SignatureOutcome::Absent, asked(&[("Signature-Input", &bare.0), ("Signature", &bare.1)])),
        (
            "13: several agents",
            SignatureError::AgentNotCovered.into(),
            edited(several, &input_of_several, &signature_of_several),
        ),
        (
            "14: another member",
            SignatureError::ComponentAbsent.into(),
            edited("other=\"https://signature-agent.test\"", "", ""),
        ),
        ("16: no https", SignatureError::NotHttps.into(), of_another("http://signature-agent.test")),
        ("17: another address", UnverifiedReason::AgentUnknown.into(), of_another("https://signature-agent.test/keys")),
        (
            "18: a broken agent",
            SignatureError::MalformedFields.into(),
            edited("sig1=\"https://signature-agent.test", "", ""),
        ),
        ("19: twice", SignatureError::DuplicateComponent.into(), signed(&[AUTHORITY, AUTHORITY, MEMBER], &hour(), &[])),
    ];
    assert_eq!(vectors.len(), 17);
    vectors.extend([
        (
            "no key",
            SignatureError::MissingParams.into(),
            signed(&whole, &hour().replace(&format!(";keyid=\"{KEY_ID}\""), ""), &[]),
        ),
        (
            "another algorithm",
            SignatureError::Algorithm.into(),
            signed(&whole, &hour().replace("ed25519", "hmac-sha256"), &[]),
        ),
        ("no agent covered", SignatureError::AgentNotCovered.into(), signed(&[AUTHORITY], &hour(), &[])),
        ("another tag", SignatureOutcome::Absent, signed(&whole, &hour().replace("web-bot-auth", "other"), &[])),
        (
            "a derived part unheard of",
            UnverifiedReason::Uncheckable.into(),
            signed(&[AUTHORITY, ("\"@new\"", "x"), MEMBER], &hour(), &[]),
        ),
        (
            "an answer's part",
            UnverifiedReason::Uncheckable.into(),
            signed(&[AUTHORITY, ("\"@method\";req", "GET"), MEMBER], &hour(), &[]),
        ),
        (
            "a day and a second",
            SignatureError::LifetimeTooLong.into(),
            signed(&whole, &parameters(CREATED, CREATED + 86_401, ""), &[]),
        ),
        ("another key", UnverifiedReason::KeyUnknown.into(), signed(&whole, &hour().replace("poqk", "qoqk"), &[])),
        ("a key's pet name", UnverifiedReason::KeyUnknown.into(), signed(&whole, &hour().replace(KEY_ID, "mine"), &[])),
    ]);
    for (name, expected, request) in &vectors {
        assert_eq!(Verifier::new().finding(request), *expected, "{name}");
    }
    assert_eq!(
        Verifier::new().finding(&signed(&whole, &hour(), &[])),
        SignatureOutcome::Verified,
        "with no fault it does"
    );
}

#[test]
fn everything_that_can_be_covered_is_rebuilt_as_the_signer_wrote_it() {
    let components = [
        ("\"@method\"", "GET"),
        ("\"@authority\"", "example.com"),
        ("\"@target-uri\"", "https://example.com/a%20path?q=x+y&b=%c3%a4&empty"),
        ("\"@path\"", "/a%20path"),
        ("\"@query\"", "?q=x+y&b=%c3%a4&empty"),
        ("\"@query-param\";name=\"q\"", "x%20y"),
        ("\"@query-param\";name=\"b\"", "%C3%A4"),
        ("\"@query-param\";name=\"empty\"", ""),
        ("\"accept\"", "text/html, text/plain"),
        ("\"x-empty\"", ""),
        MEMBER,
    ];
    let (input, signature) = sign(&components, &hour());
    let fields = [
        ("Accept", "text/html"),
        ("Signature-Agent", LABELLED),
        ("Signature-Input", &input),
        ("X-Empty", ""),
        ("accept", "text/plain"),
        ("Signature", &signature),
    ];
    let target = "/a%20path?q=x+y&b=%c3%a4&empty";
    let mut request = asked_for(target, &fields);
    assert_eq!(Verifier::new().finding(&request), SignatureOutcome::Verified);
    request.head.fields.insert(crate::http1::Name::Host, b"EXAMPLE.com:443");
    assert_eq!(Verifier::new().finding(&request), SignatureOutcome::Verified, "a host has one spelling");
    let elsewhere = asked_for("/other?q=x+y&b=%c3%a4&empty", &fields);
    assert_eq!(Verifier::new().finding(&elsewhere), SignatureError::InvalidSignature.into());
    let twice = asked_for("/a%20path?q=x+y&q=x+y&b=%c3%a4&empty", &fields);
    assert_eq!(Verifier::new().finding(&twice), SignatureError::ComponentAbsent.into(), "which of the two?");
}

#[test]
fn a_signed_digest_of_nothing_goes_with_a_request_without_a_body() {
    let nothing = ("\"content-digest\"", "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:");
    let request = signed(&[AUTHORITY, nothing, MEMBER], &hour(), &[("Content-Digest", nothing.1)]);
    assert_eq!(Verifier::new().finding(&request), SignatureOutcome::Verified);
    let something = ("\"content-digest\"", "sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:");
    let request = signed(&[AUTHORITY, something, MEMBER], &hour(), &[("Content-Digest", something.1)]);
    assert_eq!(Verifier::new().finding(&request), SignatureError::DigestMismatch.into());
    let upload = Asked { has_body: true, ..request };
    assert_eq!(Verifier::new().finding(&upload), UnverifiedReason::Uncheckable.into(), "nobody has read it yet");
}

#[test]
fn white_space_that_somebody_on_the_way_changed_does_not_matter() {
    let (input, signature) = sign(&[AUTHORITY, MEMBER], &hour());
    let input = input.replace('(', "(  ").replace(")", "  )").replace(";alg", "; alg");
    let request = asked(&[("Signature-Agent", LABELLED), ("Signature-Input", &input), ("Signature", &signature)]);
    assert_eq!(Verifier::new().finding(&request), SignatureOutcome::Verified);
}

#[test]
fn of_several_signatures_the_agents_counts() {
    let (input, signature) = sign(&[AUTHORITY, MEMBER], &hour());
    let request = asked(&[
        ("Signature-Agent", LABELLED),
        ("Signature-Input", "proxy=(\"@method\");created=1;keyid=\"theirs\""),
        ("Signature-Input", &input),
        ("Signature", "proxy=:AAAA:"),
        ("Signature", &signature),
    ]);
    assert_eq!(Verifier::new().finding(&request), SignatureOutcome::Verified);
    let many: String = (0..MOST_SIGNATURES_AND_ONE).map(|number| format!("s{number}=(),")).collect();
    let request = asked(&[
        ("Signature-Agent", LABELLED),
        ("Signature-Input", many.trim_end_matches(',')),
        ("Signature", &signature),
    ]);
    assert_eq!(Verifier::new().finding(&request), UnverifiedReason::TooLarge.into());
}

const MOST_SIGNATURES_AND_ONE: usize = fields::MAX_SIGNATURES + 1;

/// What a proxy or an extension may put in, and what a scanner tries.
#[test]
fn what_names_no_agent_says_as_little_as_no_signature() {
    let (input, signature) = sign(&[AUTHORITY, MEMBER], &hour());
    let long = "x".repeat(5000);
    for (agent, input, signature) in [
        ("garbage", "garbage", "garbage"),
        ("\"", "(((", ":::"),
        (LABELLED, "sig1=1;tag=\"web-bot-auth\"", &signature),
        (LABELLED, &input, "sig1=garbage"),
        ("sig1=\"http://bot.example\"", &input, &signature),
        ("sig1=\"not an address\"", &input, &signature),
        ("other=\"https://bot.example\"", &input, &signature),
        (LABELLED, &long, &signature),
    ] {
        let request = asked(&[("Signature-Agent", agent), ("Signature-Input", input), ("Signature", signature)]);
        assert_eq!(Verifier::new().judge(&request), Signature::Unreadable, "{agent} {input}");
    }
    for (agent, input, signature) in [
        (LABELLED, "", ""),
        (LABELLED, "sig1=(\"@method\");created=1", "sig1=:AAAA:"),
        ("sig1=1", "other=()", "other=:AA==:"),
    ] {
        let request = asked(&[("Signature-Agent", agent), ("Signature-Input", input), ("Signature", signature)]);
        assert_eq!(Verifier::new().judge(&request), Signature::Absent, "{agent} {input}");
    }
    assert_eq!(Verifier::new().judge(&asked(&[("Signature-Agent", LABELLED)])), Signature::Absent);
}

#[test]
fn a_signature_that_names_an_agent_counts_before_one_that_names_none() {
    let (input, signature) = sign(&[AUTHORITY, MEMBER], &hour());
    let request = asked(&[
        ("Signature-Agent", LABELLED),
        ("Signature-Input", "odd=();tag=\"web-bot-auth\""),
        ("Signature-Input", &input.replace(KEY_ID, "mine")),
        ("Signature", "odd=:AAAA:"),
        ("Signature", &signature),
    ]);
    assert_eq!(Verifier::new().judge(&request), Signature::Unknown(Some(OperatorId(0))));
}

#[test]
fn a_nonce_is_good_once_and_only_the_signer_can_use_it_up() {
    let verifier = Verifier::new();
    let once = parameters(CREATED, CREATED + 3600, ";nonce=\"abc\"");
    let forged = signed(&[(AUTHORITY.0, "other.example"), MEMBER], &once, &[]);
    assert_eq!(verifier.finding(&forged), SignatureError::InvalidSignature.into());
    let request = signed(&[AUTHORITY, MEMBER], &once, &[]);
    assert_eq!(verifier.finding(&request), SignatureOutcome::Verified);
    assert_eq!(verifier.finding(&request), SignatureError::Replayed.into());
    let without = signed(&[AUTHORITY, MEMBER], &hour(), &[]);
    assert_eq!(verifier.finding(&without), SignatureOutcome::Verified);
    assert_eq!(verifier.finding(&without), SignatureOutcome::Verified, "it says who, not how often");
}

#[test]
fn a_client_that_guesses_is_not_checked_any_more_and_others_are() {
    let verifier = Verifier::new();
    let wrong = signed(&[(AUTHORITY.0, "other.example"), MEMBER], &hour(), &[]);
    let right = signed(&[AUTHORITY, MEMBER], &hour(), &[]);
    for _ in 0..8 {
        assert_eq!(verifier.finding(&wrong), SignatureError::InvalidSignature.into());
    }
    assert_eq!(verifier.finding(&wrong), UnverifiedReason::FailureLimit.into());
    assert_eq!(verifier.finding(&right), UnverifiedReason::FailureLimit.into());
    let somebody_else = verifier.examine(&right, 1).0;
    assert_eq!(somebody_else, SignatureOutcome::Verified);
}

#[test]
fn a_key_counts_for_the_agent_that_publishes_it_alone() {
    let stranger = "https://stranger.test";
    let (input, signature) = sign(&[AUTHORITY, (MEMBER.0, "\"https://stranger.test\"")], &hour());
    let agent = format!("sig1=\"{stranger}\"");
    let request = asked(&[("Signature-Agent", &agent), ("Signature-Input", &input), ("Signature", &signature)]);
    let mut verifier = Verifier::new();
    assert_eq!(verifier.finding(&request), UnverifiedReason::AgentUnknown.into(), "nobody fetches what strangers name");
    verifier.terms.unlisted = true;
    assert_eq!(verifier.finding(&request), UnverifiedReason::Pending.into());
    verifier.learn(stranger, PUBLIC);
    assert_eq!(verifier.examine(&request, 0), (SignatureOutcome::Verified, ClaimedAgent::Unlisted));
}

#[test]
fn what_is_larger_than_anybody_needs_is_not_read() {
    let long = format!("sig1=(\"@authority\");nonce=\"{}\"", "x".repeat(5000));
    let request = asked(&[("Signature-Agent", LABELLED), ("Signature-Input", &long), ("Signature", "sig1=:AAAA:")]);
    assert_eq!(Verifier::new().finding(&request), UnverifiedReason::TooLarge.into());
    let components: Vec<_> = (0..17).map(|number| (format!("\"x-{number}\""), String::new())).collect();
    let mut components: Vec<_> = components.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    components.extend([AUTHORITY, MEMBER]);
    assert_eq!(Verifier::new().finding(&signed(&components, &hour(), &[])), UnverifiedReason::TooLarge.into());
}

#[test]
fn every_agent_of_the_built_in_table_can_be_named() {
    let operators = crate::verify::OperatorTable::builtin();
    let agents: Vec<_> = operators.signature_agents().collect();
    assert!(agents.len() >= 2, "{agents:?}");
    assert_eq!(SignatureVerifier::of(agents.iter().copied()).operators.len(), agents.len());
}

#[test]
fn a_directory_is_believed_when_it_comes_as_one() {
    let document = |content_type: &str, body: &str| Document {
        body: body.to_owned().into(),
        content_type: Some(content_type.into()),
        cache_control: Some("max-age=600".into()),
        ..Document::default()
    };
    let key = r#"{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
    for known in ["application/http-message-signatures-directory+json", "Application/JSON; charset=utf-8"] {
        let (keys, fresh) = read(&document(known, key)).expect("a directory");
        assert_eq!((keys.len(), fresh), (1, Some(Duration::from_secs(600))));
    }
    assert!(read(&document("text/html", key)).is_err());
    assert!(read(&document("application/json", "<html>")).is_err());
    assert!(read(&Document::default()).is_err());
}

proptest! {
    #[test]
    fn nothing_that_a_client_sends_makes_it_panic(
        agent in "\\PC{0,60}|[a-z0-9\"=;:/.,()*@ -]{0,60}",
        input in "\\PC{0,80}|[a-z0-9\"=;:/.,()*@ -]{0,80}",
        signature in "\\PC{0,60}|[a-z0-9\"=;:/.,()+ -]{0,60}",
    ) {
        let fields = [("signature-agent", &*agent), ("signature-input", &*input), ("signature", &*signature)];
        read_signed_fields(fields.into_iter().collect());
    }

    /// Near enough to the right thing that every step is reached.
    #[test]
    fn nothing_near_a_signature_makes_it_panic(
        components in prop::collection::vec(
            prop::sample::select(vec![
                "\"@authority\"", "\"@path\"", "\"@query\"", "\"@query-param\";name=\"with\"", "\"@query-param\";name=7",
                "\"signature-agent\"", "\"signature-agent\";key=\"sig1\"", "\"signature-agent\";key", "\"content-digest\"",
                "\"host\";sf", "token", "7", "\"@signature-params\"", "\"\"",
            ]),
            0..20,
        ),
        parameters in prop::collection::vec(
            prop::sample::select(vec![
                ";created=1", ";created=-999999999999999", ";expires=999999999999999", ";expires=\"1\"", ";keyid=\"\"",
                ";keyid=\"poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U\"", ";tag=\"web-bot-auth\"", ";alg=\"ed25519\"", ";alg",
            ]),
            0..8,
        ),
        agent in prop::sample::select(vec![
            LABELLED, "\"https://signature-agent.test\"", "sig1", "sig1=(\"a\")", "sig1=\"http://x\"", "\"\"", "a=1, b=2",
        ]),
    ) {
        let input = format!("sig1=({}){}", components.join(" "), parameters.concat());
        let request = asked(&[("Signature-Agent", agent), ("Signature-Input", &input), ("Signature", "sig1=:AAAA:")]);
        prop_assert_ne!(Verifier::new().finding(&request), SignatureOutcome::Verified);
    }
}
