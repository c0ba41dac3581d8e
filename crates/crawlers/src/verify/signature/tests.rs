//! Published test vectors, invalid signatures, and arbitrary input.

use super::key_fetch::read;
use super::*;
use crate::verify::fetch::Document;
use aws_lc_rs::signature::Ed25519KeyPair;
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use proptest::prelude::*;
use tidegate_http1::RequestHead;

/// Test key of RFC 9421, appendix B.1.4: private half, public half and key id.
const SECRET: &str = "n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU";
const PUBLIC: &str = "JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs";
const KEY_ID: &str = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";

const AGENT: &str = "https://signature-agent.test";
const CREATED: u64 = 1_735_689_600;
/// One minute after [`CREATED`].
const NOW: Timestamp = Timestamp::from_seconds(CREATED + 60);
const DAY: Duration = Duration::from_secs(24 * 3600);
const UNLIMITED_LIFETIME: Duration = Duration::from_secs(u32::MAX as u64);

/// A verifier with one agent of one operator, and its key.
struct VerifierFixture {
    signatures: SignatureVerifier,
    policy: SignaturePolicy,
    now: Timestamp,
}

impl VerifierFixture {
    fn new() -> Self {
        let policy = SignaturePolicy { fetch_unlisted_keys: false, max_lifetime: DAY };
        let verifier =
            Self { signatures: SignatureVerifier::new([(AGENT, OperatorId(0))].into_iter()), policy, now: NOW };
        verifier.publish_key(AGENT, PUBLIC);
        verifier
    }

    /// Stores one key of `agent`.
    fn publish_key(&self, agent: &str, x: &str) {
        self.publish(agent, &serde_json::json!({ "kty": "OKP", "crv": "Ed25519", "x": x }));
    }

    fn publish(&self, agent: &str, jwk: &serde_json::Value) {
        let key = Arc::new(AgentKey::read(jwk).expect("a key"));
        let agent = AgentUrl::parse(agent).expect("an address");
        let time = (self.now, Timestamp::default());
        let cache = &mut self.signatures.state.lock().key_cache;
        let _ = cache.key(&agent, AgentListing::Listed, &[0; 32], time);
        cache.record_fetch(&agent, Some((vec![key], None)), 0.0, Timestamp::default());
    }

    fn verify_request(&self, request: &TestRequest) -> Signature {
        let message = request.message();
        let time = VerifyTime { now: self.now, uptime: Timestamp::default() };
        self.signatures.verify(&message, ClientKey::SHARED_BY_ALL, self.policy, time)
    }

    fn outcome(&self, request: &TestRequest) -> SignatureOutcome {
        self.verify_all(request, 0).0
    }

    fn verify_all(&self, request: &TestRequest, client: u64) -> (SignatureOutcome, ClaimedAgent) {
        let message = request.message();
        let time = VerifyTime { now: self.now, uptime: Timestamp::default() };
        self.signatures.verify_all(&VerifyRequest { message: &message, client, policy: self.policy, time })
    }
}

/// A request, signed or not.
struct TestRequest {
    head: RequestHead,
    has_body: bool,
}

impl TestRequest {
    fn message(&self) -> SignedMessage<'_> {
        let authority = self.head.fields.get(tidegate_http1::Name::Host).unwrap_or_default();
        SignedMessage { head: &self.head, authority, secure: true, has_body: self.has_body }
    }
}

fn request_with(fields: &[(&str, &str)]) -> TestRequest {
    request_to("/", fields)
}

fn request_to(target: &str, fields: &[(&str, &str)]) -> TestRequest {
    let fields = [("Host", "example.com")].into_iter().chain(fields.iter().copied()).collect();
    let target = target.parse().expect("a target");
    TestRequest {
        head: RequestHead { method: http::Method::GET, target, version: http::Version::HTTP_11, fields },
        has_body: false,
    }
}

/// Signs `components`, given as identifier and value, as `sig1`. Returns the input and the signature field.
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

/// Valid parameters with a lifetime of one hour.
fn hour_parameters() -> String {
    parameters(CREATED, CREATED + 3600, "")
}

fn parameters(created: u64, expires: u64, more: &str) -> String {
    format!(r#";created={created};keyid="{KEY_ID}";alg="ed25519";expires={expires}{more};tag="web-bot-auth""#)
}

const MEMBER: (&str, &str) = (r#""signature-agent";key="sig1""#, r#""https://signature-agent.test""#);
const AUTHORITY: (&str, &str) = (r#""@authority""#, "example.com");
const LABELED_AGENT: &str = r#"sig1="https://signature-agent.test""#;

/// Returns a request that is signed over `components`, with further fields.
fn signed_request(components: &[(&str, &str)], parameters: &str, more: &[(&str, &str)]) -> TestRequest {
    let (input, signature) = sign(components, parameters);
    let fields: Vec<_> = [("Signature-Agent", LABELED_AGENT), ("Signature-Input", &input), ("Signature", &signature)]
        .into_iter()
        .chain(more.iter().copied())
        .collect();
    request_with(&fields)
}

#[test]
fn published_vector_with_labeled_agent_verifies() {
    let input = format!(
        "sig2=(\"@authority\" \"signature-agent\";key=\"sig2\");created=1735689600;keyid=\"{KEY_ID}\";alg=\"ed25519\";\
         expires=4889289600;nonce=\"n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA==\";\
         tag=\"web-bot-auth\""
    );
    let request = request_with(&[
        ("Signature-Agent", "sig2=\"https://signature-agent.test\""),
        ("Signature-Input", &input),
        (
            "Signature",
            "sig2=:CGokAoY/FrPpyuzTe1Fb2kLTAH9Idw6qSFd1+D77r1firsMRCxeuLu5e6O+ek3zQgDMAzjiXtLVfqE00xnABCQ==:",
        ),
    ]);
    let mut verifier = VerifierFixture::new();
    assert_eq!(
        verifier.outcome(&request),
        SignatureError::LifetimeTooLong.into(),
        "a lifetime of a hundred years exceeds a day"
    );
    verifier.policy.max_lifetime = UNLIMITED_LIFETIME;
    assert_eq!(verifier.verify_all(&request, 0), (SignatureOutcome::Verified, ClaimedAgent::Listed(OperatorId(0))));
}

#[test]
fn published_vector_with_unlabeled_agent_verifies() {
    let input = format!(
        "sig2=(\"@authority\" \"signature-agent\");created=1735689600;keyid=\"{KEY_ID}\";alg=\"ed25519\";\
         expires=1735693200;nonce=\"e8N7S2MFd/qrd6T2R3tdfAuuANngKI7LFtKYI/vowzk4lAZYadIX6wW25MwG7DCT9RUKAJ0qVkU0mEeLElW1qg==\";\
         tag=\"web-bot-auth\""
    );
    let request = request_with(&[
        ("Signature-Agent", "\"https://signature-agent.test\""),
        ("Signature-Input", &input),
        (
            "Signature",
            "sig2=:jdq0SqOwHdyHr9+r5jw3iYZH6aNGKijYp/EstF4RQTQdi5N5YYKrD+mCT1HA1nZDsi6nJKuHxUi/5Syp3rLWBA==:",
        ),
    ]);
    assert_eq!(VerifierFixture::new().outcome(&request), SignatureOutcome::Verified);
}

/// Vector of cloudflare/web-bot-auth (`web_bot_auth_architecture_v2.json`, Apache-2.0) for RSASSA-PSS.
#[test]
fn published_vector_of_rsa_verifies() {
    const SIGNATURE: &str = "gHzpLNeHaHIO19NaJH9YMW5dcVSi2s0wOMBr6p18vcofS106sfC4KBIS0/szPlBBd1vIcyQ88B6CTEWIhRAiVrb9zfX0mx1aG12CSGWcYkSirHeyTxhbuJvXd27ed6skWoy4PjXItq38936ivUQjfdIwXh1aX6HxkAC3vRnEdSNfntkLWeEuIQ5BLIOBGE39fSwg27Qjq6OVWYas/9/aFUr3HA34MXWYdp+//cvlEKDp3kRoLOw9ro0AOr6srHrTeEtxon2afcws1aZVSlPdd2fZSEIGmw9HAHLDCEkFTERu1gH2k/zIEqgy7CAYXI9E5slog0cLg/Vc6+f8gih33g==";
    let input = "sig2=(\"@authority\" \"signature-agent\";key=\"agent2\");created=1735689600;\
                 keyid=\"oD0HwocPBSfpNy5W3bpJeyFGY_IQ_YpqxSjQ3Yd-CLA\";alg=\"rsa-pss-sha512\";expires=4889289600;\
                 nonce=\"wcfPQPh7SzkvrIVvhD00vNk9PkxJNY2NVbYl2PVBB4zmUoluSwE7W6bPtF60QA3k8g06FU7PPCD+J58YofY1zg==\";\
                 tag=\"web-bot-auth\"";
    let outcome = |input: &str, signature: &str| {
        let mut verifier = VerifierFixture::new();
        verifier.policy.max_lifetime = UNLIMITED_LIFETIME;
        verifier.publish(AGENT, &serde_json::from_str(super::keys::tests::TEST_KEYS[1]).expect("JSON"));
        verifier.outcome(&request_with(&[
            ("Signature-Agent", "agent2=\"https://signature-agent.test\""),
            ("Signature-Input", input),
            ("Signature", &format!("sig2=:{signature}:")),
        ]))
    };
    assert_eq!(outcome(input, SIGNATURE), SignatureOutcome::Verified);
    let invalid = SignatureOutcome::from(SignatureError::InvalidSignature);
    assert_eq!(outcome(&input.replace("rsa-pss-sha512", "rsa-v1_5-sha256"), SIGNATURE), invalid);
    assert_eq!(outcome(&input.replace("rsa-pss-sha512", "ed25519"), SIGNATURE), invalid);
    assert_eq!(outcome(&input.replace("1735689600", "1735689601"), SIGNATURE), invalid);
    assert_eq!(outcome(input, &SIGNATURE.replace("gHzp", "gHzq")), invalid);
}

#[test]
fn signatures_of_elliptic_curves_verify() {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    };
    for (algorithm, curve, signing) in [
        ("ecdsa-p256-sha256", "P-256", &ECDSA_P256_SHA256_FIXED_SIGNING),
        ("ecdsa-p384-sha384", "P-384", &ECDSA_P384_SHA384_FIXED_SIGNING),
    ] {
        let pair = EcdsaKeyPair::generate(signing).expect("a key");
        let (x, y) = pair.public_key().as_ref()[1..].split_at((pair.public_key().as_ref().len() - 1) / 2);
        let (x, y) = (BASE64_URL_SAFE_NO_PAD.encode(x), BASE64_URL_SAFE_NO_PAD.encode(y));
        let jwk = serde_json::json!({ "kty": "EC", "crv": curve, "x": x, "y": y });
        let canonical = format!(r#"{{"crv":"{curve}","kty":"EC","x":"{x}","y":"{y}"}}"#);
        let id = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, canonical.as_bytes());
        let parameters = hour_parameters()
            .replace("ed25519", algorithm)
            .replace(KEY_ID, &BASE64_URL_SAFE_NO_PAD.encode(id.as_ref()));
        let input = format!("({} {}){parameters}", AUTHORITY.0, MEMBER.0);
        let base =
            format!("{}: {}\n{}: {}\n\"@signature-params\": {input}", AUTHORITY.0, AUTHORITY.1, MEMBER.0, MEMBER.1);
        let signature = pair.sign(&SystemRandom::new(), base.as_bytes()).expect("signed");
        let verifier = VerifierFixture::new();
        verifier.publish(AGENT, &jwk);
        let shortened = input.replace(";expires=1735693200", ";expires=1735693199");
        for (input, expected) in [
            (&input, SignatureOutcome::Verified),
            (&shortened, SignatureError::InvalidSignature.into()),
            (&input.replace(algorithm, "ed25519"), SignatureError::InvalidSignature.into()),
        ] {
            let request = request_with(&[
                ("Signature-Agent", LABELED_AGENT),
                ("Signature-Input", &format!("sig1={input}")),
                ("Signature", &format!("sig1=:{}:", BASE64_STANDARD.encode(signature.as_ref()))),
            ]);
            assert_eq!(verifier.outcome(&request), expected, "{input}");
        }
    }
}

/// A query names another document, and the same agent.
#[test]
fn keys_of_another_query_are_those_of_a_stranger_until_fetched() {
    let agent = "https://signature-agent.test/.well-known/http-message-signatures-directory?v=2";
    let (input, signature) = sign(&[AUTHORITY, (MEMBER.0, &format!("\"{agent}\""))], &hour_parameters());
    let labeled = format!("sig1=\"{agent}\"");
    let request =
        request_with(&[("Signature-Agent", &labeled), ("Signature-Input", &input), ("Signature", &signature)]);
    let mut verifier = VerifierFixture::new();
    assert_eq!(verifier.outcome(&request), UnverifiedReason::AgentUnknown.into());
    verifier.policy.fetch_unlisted_keys = true;
    assert_eq!(verifier.outcome(&request), UnverifiedReason::Pending.into());
    let due = |verifier: &VerifierFixture, listing| {
        let due = verifier.signatures.state.lock().key_cache.next_fetch(listing, Timestamp::default());
        due.map(|agent| agent.as_str().to_owned())
    };
    assert_eq!(due(&verifier, AgentListing::Listed), None);
    assert_eq!(due(&verifier, AgentListing::Unlisted).as_deref(), Some(agent));
    verifier.publish_key(agent, PUBLIC);
    assert_eq!(verifier.verify_all(&request, 0), (SignatureOutcome::Verified, ClaimedAgent::Listed(OperatorId(0))));
}

#[test]
fn ignored_member_is_no_agent() {
    let (input, signature) = sign(&[AUTHORITY, MEMBER], &hour_parameters());
    for parameters in [";type=directory", ";type=jwks_uri", ";type=cimd", ";x"] {
        let agent = format!("{LABELED_AGENT}{parameters}");
        let request =
            request_with(&[("Signature-Agent", &agent), ("Signature-Input", &input), ("Signature", &signature)]);
        assert_eq!(VerifierFixture::new().verify_request(&request), Signature::Unknown(None), "{parameters}");
    }
}

/// Each request has one error. The numbers are those of `webbotauth-negative-vectors` (CC0); the requests are built
/// here with the standard's test key.
#[test]
fn requests_with_one_fault_do_not_verify() {
    let components = [AUTHORITY, MEMBER];
    let digest = ("\"content-digest\"", "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:");
    let with_body = |request: TestRequest| TestRequest { has_body: true, ..request };
    let edited = |agent: &str, input: &str, signature: &str| {
        let (good_input, good_signature) = sign(&components, &hour_parameters());
        let edit = |edit: &str, good: String| if edit.is_empty() { good } else { edit.to_owned() };
        let (input, signature) = (edit(input, good_input), edit(signature, good_signature));
        request_with(&[("Signature-Agent", agent), ("Signature-Input", &input), ("Signature", &signature)])
    };
    let broken_input = sign(&components, &hour_parameters()).0.replace(')', "");
    let with_agent = |agent: &str| {
        let (input, signature) = sign(&[AUTHORITY, (MEMBER.0, &format!("\"{agent}\""))], &hour_parameters());
        edited(&format!("sig1=\"{agent}\""), &input, &signature)
    };
    let several = r#"first="https://signature-agent.test", second="https://other-agent.test""#;
    let (input_of_several, signature_of_several) =
        sign(&[AUTHORITY, ("\"signature-agent\"", several)], &hour_parameters());
    let bare = sign(&[AUTHORITY], &hour_parameters());
    let other_signature = sign(&components, &hour_parameters()).1.replace("sig1", "sig9");

    let mut vectors: Vec<(&str, SignatureOutcome, TestRequest)> = vec![
        ("01: no target", SignatureError::TargetNotCovered.into(), signed_request(&[MEMBER], &hour_parameters(), &[])),
        (
            "03: no expiry",
            SignatureError::MissingParams.into(),
            signed_request(&components, &hour_parameters().replace(";expires=1735693200", ""), &[]),
        ),
        (
            "04: over",
            SignatureError::Expired.into(),
            signed_request(&components, &parameters(CREATED, CREATED + 60, ""), &[]),
        ),
        (
            "05: created in the future",
            SignatureError::CreatedInFuture.into(),
            signed_request(&components, &parameters(CREATED + 3660, CREATED + 7260, ""), &[]),
        ),
        (
            "06: another host",
            SignatureError::InvalidSignature.into(),
            signed_request(&[(AUTHORITY.0, "other.example"), MEMBER], &hour_parameters(), &[]),
        ),
        (
            "07: an empty path",
            SignatureError::InvalidSignature.into(),
            signed_request(&[AUTHORITY, ("\"@path\"", ""), MEMBER], &hour_parameters(), &[]),
        ),
        (
            "08: another body",
            SignatureError::DigestMismatch.into(),
            with_body(signed_request(
                &[AUTHORITY, digest, MEMBER],
                &hour_parameters(),
                &[("Content-Digest", digest.1)],
            )),
        ),
        (
            "09: a missing component",
            SignatureError::ComponentAbsent.into(),
            signed_request(&[AUTHORITY, digest, MEMBER], &hour_parameters(), &[]),
        ),
        ("10: a broken input", SignatureError::MalformedFields.into(), edited(LABELED_AGENT, &broken_input, "")),
        ("11: another label", SignatureError::MalformedFields.into(), edited(LABELED_AGENT, "", &other_signature)),
        (
            "12: no agent",
            SignatureOutcome::Absent,
            request_with(&[("Signature-Input", &bare.0), ("Signature", &bare.1)]),
        ),
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
        ("16: not https", SignatureError::NotHttps.into(), with_agent("http://signature-agent.test")),
        ("17: another address", UnverifiedReason::AgentUnknown.into(), with_agent("https://signature-agent.test/keys")),
        (
            "18: a broken agent",
            SignatureError::MalformedFields.into(),
            edited("sig1=\"https://signature-agent.test", "", ""),
        ),
        (
            "19: twice",
            SignatureError::DuplicateComponent.into(),
            signed_request(&[AUTHORITY, AUTHORITY, MEMBER], &hour_parameters(), &[]),
        ),
    ];
    assert_eq!(vectors.len(), 17);
    vectors.extend([
        (
            "no key",
            SignatureError::MissingParams.into(),
            signed_request(&components, &hour_parameters().replace(&format!(";keyid=\"{KEY_ID}\""), ""), &[]),
        ),
        (
            "another algorithm",
            UnverifiedReason::UnsupportedAlgorithm.into(),
            signed_request(&components, &hour_parameters().replace("ed25519", "ml-dsa-65"), &[]),
        ),
        (
            "an algorithm of another key",
            SignatureError::InvalidSignature.into(),
            signed_request(&components, &hour_parameters().replace("ed25519", "rsa-pss-sha512"), &[]),
        ),
        (
            "an algorithm with a shared secret",
            SignatureError::SymmetricAlgorithm.into(),
            signed_request(&components, &hour_parameters().replace("ed25519", "hmac-sha256"), &[]),
        ),
        (
            "an algorithm that is no text",
            SignatureError::MalformedFields.into(),
            signed_request(&components, &hour_parameters().replace("\"ed25519\"", "ed25519"), &[]),
        ),
        (
            "a member with parameters",
            UnverifiedReason::AgentIgnored.into(),
            edited(&format!("{LABELED_AGENT};type=jwks_uri"), "", ""),
        ),
        (
            "no agent covered",
            SignatureError::AgentNotCovered.into(),
            signed_request(&[AUTHORITY], &hour_parameters(), &[]),
        ),
        (
            "another tag",
            SignatureOutcome::Absent,
            signed_request(&components, &hour_parameters().replace("web-bot-auth", "other"), &[]),
        ),
        (
            "an unknown derived component",
            UnverifiedReason::UnsupportedComponent.into(),
            signed_request(&[AUTHORITY, ("\"@new\"", "x"), MEMBER], &hour_parameters(), &[]),
        ),
        (
            "a component of a response",
            UnverifiedReason::UnsupportedComponent.into(),
            signed_request(&[AUTHORITY, ("\"@method\";req", "GET"), MEMBER], &hour_parameters(), &[]),
        ),
        (
            "a lifetime of a day and a second",
            SignatureError::LifetimeTooLong.into(),
            signed_request(&components, &parameters(CREATED, CREATED + 86_401, ""), &[]),
        ),
        (
            "another key",
            UnverifiedReason::KeyUnknown.into(),
            signed_request(&components, &hour_parameters().replace("poqk", "qoqk"), &[]),
        ),
        (
            "a key id that is not a thumbprint",
            UnverifiedReason::KeyUnknown.into(),
            signed_request(&components, &hour_parameters().replace(KEY_ID, "mine"), &[]),
        ),
    ]);
    for (name, expected, request) in &vectors {
        assert_eq!(VerifierFixture::new().outcome(request), *expected, "{name}");
    }
    assert_eq!(
        VerifierFixture::new().outcome(&signed_request(&components, &hour_parameters(), &[])),
        SignatureOutcome::Verified,
        "the unchanged request verifies"
    );
}

#[test]
fn all_covered_components_are_reconstructed_exactly() {
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
    let (input, signature) = sign(&components, &hour_parameters());
    let fields = [
        ("Accept", "text/html"),
        ("Signature-Agent", LABELED_AGENT),
        ("Signature-Input", &input),
        ("X-Empty", ""),
        ("accept", "text/plain"),
        ("Signature", &signature),
    ];
    let target = "/a%20path?q=x+y&b=%c3%a4&empty";
    let mut request = request_to(target, &fields);
    assert_eq!(VerifierFixture::new().outcome(&request), SignatureOutcome::Verified);
    request.head.fields.insert(tidegate_http1::Name::Host, b"EXAMPLE.com:443");
    assert_eq!(VerifierFixture::new().outcome(&request), SignatureOutcome::Verified, "the host is normalized");
    let other_path = request_to("/other?q=x+y&b=%c3%a4&empty", &fields);
    assert_eq!(VerifierFixture::new().outcome(&other_path), SignatureError::InvalidSignature.into());
    let duplicated = request_to("/a%20path?q=x+y&q=x+y&b=%c3%a4&empty", &fields);
    assert_eq!(
        VerifierFixture::new().outcome(&duplicated),
        SignatureError::ComponentAbsent.into(),
        "ambiguous parameter"
    );
}

#[test]
fn empty_body_digest_verifies_without_a_body() {
    let empty_digest = ("\"content-digest\"", "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:");
    let request =
        signed_request(&[AUTHORITY, empty_digest, MEMBER], &hour_parameters(), &[("Content-Digest", empty_digest.1)]);
    assert_eq!(VerifierFixture::new().outcome(&request), SignatureOutcome::Verified);
    let other_digest = ("\"content-digest\"", "sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:");
    let request =
        signed_request(&[AUTHORITY, other_digest, MEMBER], &hour_parameters(), &[("Content-Digest", other_digest.1)]);
    assert_eq!(VerifierFixture::new().outcome(&request), SignatureError::DigestMismatch.into());
    let upload = TestRequest { has_body: true, ..request };
    assert_eq!(
        VerifierFixture::new().outcome(&upload),
        UnverifiedReason::UnsupportedComponent.into(),
        "the body has not been received"
    );
}

#[test]
fn whitespace_changed_in_transit_still_verifies() {
    let (input, signature) = sign(&[AUTHORITY, MEMBER], &hour_parameters());
    let input = input.replace('(', "(  ").replace(")", "  )").replace(";alg", "; alg");
    let request =
        request_with(&[("Signature-Agent", LABELED_AGENT), ("Signature-Input", &input), ("Signature", &signature)]);
    assert_eq!(VerifierFixture::new().outcome(&request), SignatureOutcome::Verified);
}

#[test]
fn agent_signature_is_chosen_among_several() {
    let (input, signature) = sign(&[AUTHORITY, MEMBER], &hour_parameters());
    let request = request_with(&[
        ("Signature-Agent", LABELED_AGENT),
        ("Signature-Input", "proxy=(\"@method\");created=1;keyid=\"theirs\""),
        ("Signature-Input", &input),
        ("Signature", "proxy=:AAAA:"),
        ("Signature", &signature),
    ]);
    assert_eq!(VerifierFixture::new().outcome(&request), SignatureOutcome::Verified);
    let many: String = (0..TOO_MANY_SIGNATURES).map(|number| format!("s{number}=(),")).collect();
    let request = request_with(&[
        ("Signature-Agent", LABELED_AGENT),
        ("Signature-Input", many.trim_end_matches(',')),
        ("Signature", &signature),
    ]);
    assert_eq!(VerifierFixture::new().outcome(&request), UnverifiedReason::TooLarge.into());
}

const TOO_MANY_SIGNATURES: usize = fields::MAX_SIGNATURES + 1;

/// Fields as a proxy, an extension or a scanner may send them.
#[test]
fn signature_without_agent_is_malformed_or_absent() {
    let (input, signature) = sign(&[AUTHORITY, MEMBER], &hour_parameters());
    let long = "x".repeat(5000);
    for (agent, input, signature) in [
        ("garbage", "garbage", "garbage"),
        ("\"", "(((", ":::"),
        (LABELED_AGENT, "sig1=1;tag=\"web-bot-auth\"", &signature),
        (LABELED_AGENT, &input, "sig1=garbage"),
        ("sig1=\"http://bot.example\"", &input, &signature),
        ("sig1=\"not an address\"", &input, &signature),
        ("other=\"https://bot.example\"", &input, &signature),
        (LABELED_AGENT, &long, &signature),
    ] {
        let request = request_with(&[("Signature-Agent", agent), ("Signature-Input", input), ("Signature", signature)]);
        assert_eq!(VerifierFixture::new().verify_request(&request), Signature::Malformed, "{agent} {input}");
    }
    for (agent, input, signature) in [
        (LABELED_AGENT, "", ""),
        (LABELED_AGENT, "sig1=(\"@method\");created=1", "sig1=:AAAA:"),
        ("sig1=1", "other=()", "other=:AA==:"),
    ] {
        let request = request_with(&[("Signature-Agent", agent), ("Signature-Input", input), ("Signature", signature)]);
        assert_eq!(VerifierFixture::new().verify_request(&request), Signature::Absent, "{agent} {input}");
    }
    assert_eq!(
        VerifierFixture::new().verify_request(&request_with(&[("Signature-Agent", LABELED_AGENT)])),
        Signature::Absent
    );
}

#[test]
fn signature_with_agent_takes_precedence() {
    let (input, signature) = sign(&[AUTHORITY, MEMBER], &hour_parameters());
    let request = request_with(&[
        ("Signature-Agent", LABELED_AGENT),
        ("Signature-Input", "odd=();tag=\"web-bot-auth\""),
        ("Signature-Input", &input.replace(KEY_ID, "mine")),
        ("Signature", "odd=:AAAA:"),
        ("Signature", &signature),
    ]);
    assert_eq!(VerifierFixture::new().verify_request(&request), Signature::Unknown(Some(OperatorId(0))));
}

#[test]
fn nonce_is_consumed_once_by_valid_signatures_only() {
    let verifier = VerifierFixture::new();
    let nonce_parameters = parameters(CREATED, CREATED + 3600, ";nonce=\"abc\"");
    let forged = signed_request(&[(AUTHORITY.0, "other.example"), MEMBER], &nonce_parameters, &[]);
    assert_eq!(verifier.outcome(&forged), SignatureError::InvalidSignature.into());
    let request = signed_request(&[AUTHORITY, MEMBER], &nonce_parameters, &[]);
    assert_eq!(verifier.outcome(&request), SignatureOutcome::Verified);
    assert_eq!(verifier.outcome(&request), SignatureError::Replayed.into());
    let without_nonce = signed_request(&[AUTHORITY, MEMBER], &hour_parameters(), &[]);
    assert_eq!(verifier.outcome(&without_nonce), SignatureOutcome::Verified);
    assert_eq!(verifier.outcome(&without_nonce), SignatureOutcome::Verified, "a nonce is optional");
}

#[test]
fn guessing_client_is_limited_others_are_not() {
    let verifier = VerifierFixture::new();
    let invalid = signed_request(&[(AUTHORITY.0, "other.example"), MEMBER], &hour_parameters(), &[]);
    let valid = signed_request(&[AUTHORITY, MEMBER], &hour_parameters(), &[]);
    for _ in 0..8 {
        assert_eq!(verifier.outcome(&invalid), SignatureError::InvalidSignature.into());
    }
    assert_eq!(verifier.outcome(&invalid), UnverifiedReason::FailureLimit.into());
    assert_eq!(verifier.outcome(&valid), UnverifiedReason::FailureLimit.into());
    let other_client = verifier.verify_all(&valid, 1).0;
    assert_eq!(other_client, SignatureOutcome::Verified);
}

#[test]
fn key_is_valid_only_for_its_publisher() {
    let unlisted = "https://stranger.test";
    let (input, signature) = sign(&[AUTHORITY, (MEMBER.0, "\"https://stranger.test\"")], &hour_parameters());
    let agent = format!("sig1=\"{unlisted}\"");
    let request = request_with(&[("Signature-Agent", &agent), ("Signature-Input", &input), ("Signature", &signature)]);
    let mut verifier = VerifierFixture::new();
    assert_eq!(
        verifier.outcome(&request),
        UnverifiedReason::AgentUnknown.into(),
        "keys of unlisted agents are not fetched"
    );
    verifier.policy.fetch_unlisted_keys = true;
    assert_eq!(verifier.outcome(&request), UnverifiedReason::Pending.into());
    verifier.publish_key(unlisted, PUBLIC);
    assert_eq!(verifier.verify_all(&request, 0), (SignatureOutcome::Verified, ClaimedAgent::Unlisted));
}

#[test]
fn oversized_signature_input_is_not_parsed() {
    let long = format!("sig1=(\"@authority\");nonce=\"{}\"", "x".repeat(5000));
    let request =
        request_with(&[("Signature-Agent", LABELED_AGENT), ("Signature-Input", &long), ("Signature", "sig1=:AAAA:")]);
    assert_eq!(VerifierFixture::new().outcome(&request), UnverifiedReason::TooLarge.into());
    let components: Vec<_> = (0..17).map(|number| (format!("\"x-{number}\""), String::new())).collect();
    let mut components: Vec<_> = components.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    components.extend([AUTHORITY, MEMBER]);
    assert_eq!(
        VerifierFixture::new().outcome(&signed_request(&components, &hour_parameters(), &[])),
        UnverifiedReason::TooLarge.into()
    );
}

#[test]
fn every_built_in_agent_is_registered() {
    let operators = crate::verify::OperatorTable::builtin();
    let agents: Vec<_> = operators.signature_agents().collect();
    assert!(agents.len() >= 2, "{agents:?}");
    assert_eq!(SignatureVerifier::new(agents.iter().copied()).operators.len(), agents.len());
}

#[test]
fn directory_needs_a_json_content_type() {
    let document = |content_type: &str, body: &str| Document {
        body: body.to_owned().into(),
        content_type: Some(content_type.into()),
        cache_control: Some("max-age=600".into()),
        ..Document::default()
    };
    let key = r#"{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
    for content_type in ["application/http-message-signatures-directory+json", "Application/JSON; charset=utf-8"] {
        let (keys, lifetime) = read(&document(content_type, key)).expect("a directory");
        assert_eq!((keys.len(), lifetime), (1, Some(Duration::from_secs(600))));
    }
    assert!(read(&document("text/html", key)).is_err());
    assert!(read(&document("application/json", "<html>")).is_err());
    assert!(read(&Document::default()).is_err());
}

proptest! {
    #[test]
    fn arbitrary_signature_fields_never_panic(
        agent in "\\PC{0,60}|[a-z0-9\"=;:/.,()*@ -]{0,60}",
        input in "\\PC{0,80}|[a-z0-9\"=;:/.,()*@ -]{0,80}",
        signature in "\\PC{0,60}|[a-z0-9\"=;:/.,()+ -]{0,60}",
    ) {
        let fields = [("signature-agent", &*agent), ("signature-input", &*input), ("signature", &*signature)];
        read_signed_fields(fields.into_iter().collect());
    }

    /// Close enough to valid input that every step is reached.
    #[test]
    fn near_valid_signatures_never_panic(
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
            LABELED_AGENT, "\"https://signature-agent.test\"", "sig1", "sig1=(\"a\")", "sig1=\"http://x\"", "\"\"", "a=1, b=2",
        ]),
    ) {
        let input = format!("sig1=({}){}", components.join(" "), parameters.concat());
        let request = request_with(&[("Signature-Agent", agent), ("Signature-Input", &input), ("Signature", "sig1=:AAAA:")]);
        prop_assert_ne!(VerifierFixture::new().outcome(&request), SignatureOutcome::Verified);
    }
}
