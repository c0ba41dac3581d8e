//! Signed requests of agents: which signatures are accepted, at what times, and which requests key fetches cause.

use crate::support::gateway::{NOON, TestGateway};
use crate::support::https_server::HttpsServer;
use crate::support::origin::Origin;
use crate::support::signer::{SignatureParams, Signer};
use crate::support::wait::wait_until;
use std::time::Duration;
use tidegate_crawlers::verify::fetch::AllowedAddresses;

/// A derived browser, of which no header fields are expected.
const BROWSER: &str = "User-Agent: Mozilla/5.0 (Linux; Android 14; SM-S918B) AppleWebKit/537.36 (KHTML, like Gecko) \
                       SamsungBrowser/28.0 Chrome/138.0.0.0 Mobile Safari/537.36\r\n";

/// A gateway with rules for an agent of one operator, the agent, and the server that publishes its keys.
struct SignatureFixture {
    gateway: TestGateway,
    agent: Signer,
    directory: HttpsServer,
    origin: Origin,
}

impl SignatureFixture {
    fn new(allowed: AllowedAddresses) -> Self {
        Self::with_operator("chatgpt-agent", allowed)
    }

    fn with_operator(operator: &str, allowed: AllowedAddresses) -> Self {
        let (origin, directory) = (Origin::plain(), HttpsServer::without_document());
        let agent = Signer::new(&directory.url());
        let gateway = TestGateway::with_network(
            directory.network(allowed),
            origin.address(),
            &operator_rules(operator, &directory.url()),
        );
        Self { gateway, agent, directory, origin }
    }

    /// Like [`SignatureFixture::with_operator`], with the agent's keys fetched.
    fn with_keys() -> Self {
        Self::new(AllowedAddresses::Any).publish_and_wait_for_keys()
    }

    fn publish_and_wait_for_keys(self) -> Self {
        self.directory.publish_keys(&self.agent.directory());
        self.wait_until_verified();
        self
    }

    /// Returns class and operator of a browser request with `fields`.
    fn observed_class(&self, fields: &str) -> String {
        self.observed_class_as(BROWSER, fields)
    }

    fn observed_class_as(&self, user_agent: &str, fields: &str) -> String {
        let response = self.gateway.connect().get("/", &format!("{user_agent}{PUBLIC}{fields}"));
        assert_eq!(response.status, 200, "{}", response.text());
        let request = self.origin.received_requests().pop().expect("origin received the request");
        format!(
            "{} {}",
            request.fields["x-tidegate-class"],
            request.fields.get("x-tidegate-operator").map_or("-", String::as_str)
        )
    }

    /// Returns class and operator of a request that the agent signed a minute ago, valid for an hour.
    fn observed_class_signed(&self) -> String {
        self.observed_class(&self.agent.signed_fields(&signature_params(None)))
    }

    fn wait_until_verified(&self) {
        wait_until("the agent's keys to be fetched", || self.observed_class_signed().starts_with("agent "));
    }

    fn wait_for_directory_requests(&self, times: usize) {
        wait_until("the key server to get requests", || self.directory.request_count() >= times);
    }
}

/// A client address outside of all crawler networks.
const PUBLIC: &str = "X-Forwarded-For: 192.0.2.1\r\n";

const VERIFIED: &str = "agent chatgpt-agent";
const DECLARED: &str = "bot -";
const PERSON: &str = "person -";

/// Settings with one worker, so that the log has the order of the requests and a test can advance the clock.
const ONE_WORKER: &str = "workers: 1\nlimits: { first_byte_timeout: 1s }\n";

/// Returns rules that identify `operator` by its agent.
fn operator_rules(operator: &str, agent: &str) -> String {
    format!(
        "{ONE_WORKER}operators: {{ {operator}: {{ signature_agents: \"{agent}\" }} }}\n\
         classes: [ {{ name: agent, when: {{ operator: {operator} }} }}, {{ name: impostor, when: {{ kind: impostor }} }},\n\
         {{ name: bot, when: {{ kind: [verified_bot, declared_bot] }} }}, {{ name: person }} ]"
    )
}

fn signature_params(nonce: Option<&str>) -> SignatureParams<'_> {
    SignatureParams { host: "example.com", created: NOON.seconds() - 60, expires: NOON.seconds() + 3540, nonce }
}

#[test]
fn refused_bots_are_asked_for_signatures_by_choice() {
    const CURL: &str = "User-Agent: curl/8.7.1\r\n";
    let origin = Origin::plain();
    let asked = |rules: &str, user_agent: &str| {
        let classes = "classes: [ { name: bot, when: { kind: [declared_bot, suspected_bot] } }, { name: person } ]";
        let tiers = "quotas: { api: { limit: 1000, window: { fixed: 24h }, tiers: { bot: [ { above: 0%, shed: 100% } ], person: [ { above: 0%, shed: 100% } ] } } }";
        let rules =
            format!("{ONE_WORKER}{classes}\n{tiers}\nroutes: [ {{ match: '/**', cost: {{ api: 1 }} }} ]\n{rules}");
        let response = TestGateway::with_rules(origin.address(), &rules).connect().get("/", user_agent);
        assert_eq!(response.status, 429);
        response.fields.get("accept-signature").cloned()
    };
    let on = "verify: { signatures: { accept_signature: true } }";
    let field = r#"sig1=("@authority" "signature-agent";key="sig1");created;expires;tag="web-bot-auth""#;
    assert_eq!(asked(on, CURL).as_deref(), Some(field));
    assert_eq!(asked(on, BROWSER), None, "people do not sign");
    assert_eq!(asked("", CURL), None);
    assert_eq!(asked("verify: { signatures: { enabled: false, accept_signature: true } }", CURL), None);
}

#[test]
fn agent_is_verified_once_keys_are_fetched() {
    let fixture = SignatureFixture::new(AllowedAddresses::Any);
    fixture.directory.publish_keys(&fixture.agent.directory());
    assert_eq!(fixture.observed_class(""), PERSON, "the user agent is a browser");
    assert_eq!(fixture.observed_class_signed(), DECLARED, "requests do not wait for keys");
    fixture.wait_until_verified();
    assert_eq!(fixture.directory.request_count(), 1, "keys are fetched once for all requests");
    let request = fixture.origin.received_requests().pop().expect("origin received the request");
    assert!(
        request.fields["signature-agent"].contains("localhost") && request.fields.contains_key("signature"),
        "signature fields are forwarded"
    );
    let verified = "tidegate_verifications_total{operator=\"chatgpt-agent\",method=\"signature\",result=\"verified\"}";
    assert!(fixture.gateway.metric(verified) >= 1.0);
    let last = fixture.gateway.read_log().pop().expect("log has a line");
    assert_eq!((&last["kind"], &last["operator"]), (&"verified_bot".into(), &"chatgpt-agent".into()), "{last}");
    assert_eq!(last["evidence"], serde_json::json!(["user_agent_no_match", "signature_valid:chatgpt-agent"]));
    let headers = serde_json::json!(["user-agent", "signature-agent", "signature-input", "signature"]);
    assert_eq!(last["headers_seen"], headers);
}

#[test]
fn expired_future_or_foreign_signatures_are_invalid() {
    let fixture = SignatureFixture::with_keys();
    let now = NOON.seconds();
    for (case, params) in [
        ("over", SignatureParams { expires: now, ..signature_params(None) }),
        ("created in the future", SignatureParams { created: now + 61, ..signature_params(None) }),
        ("valid for longer than a day", SignatureParams { expires: now + 24 * 3600, ..signature_params(None) }),
        ("for another site", SignatureParams { host: "other.example", ..signature_params(None) }),
    ] {
        assert_eq!(fixture.observed_class(&fixture.agent.signed_fields(&params)), DECLARED, "{case}");
    }
    fixture.gateway.advance_and_sweep(Duration::from_secs(3540));
    assert_eq!(fixture.observed_class_signed(), DECLARED, "the signature has expired");
    let line = fixture.gateway.read_log().pop().expect("log has a line");
    assert_eq!(line["evidence"], serde_json::json!(["user_agent_no_match", "signature_invalid:chatgpt-agent"]));
}

#[test]
fn captured_signature_is_of_no_use_elsewhere_or_later() {
    let fixture = SignatureFixture::new(AllowedAddresses::Any);
    let rules =
        format!("{}\nhosts: [example.com, other.example]", operator_rules("chatgpt-agent", &fixture.directory.url()));
    fixture.gateway.reload(fixture.origin.address(), &rules).expect("valid rules");
    let fixture = fixture.publish_and_wait_for_keys();
    fixture.wait_for_directory_requests(1);
    assert_eq!(fixture.directory.requested_targets(), ["/.well-known/http-message-signatures-directory"]);
    let end = NOON.seconds() + 60;
    let captured = fixture.agent.signed_fields(&SignatureParams { expires: end, ..signature_params(None) });
    let class_at = |host: &str, fields: &str| {
        let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n{BROWSER}{PUBLIC}{fields}\r\n");
        assert_eq!(fixture.gateway.connect().send(head).read_response().status, 200);
        fixture.origin.last_request().fields["x-tidegate-class"].clone()
    };
    assert_eq!(class_at("example.com", &captured), "agent");
    assert_eq!(class_at("other.example", &captured), "bot", "the signature covers the host");
    let altered = captured.replace(&format!("expires={end}"), &format!("expires={}", end + 60));
    assert_ne!(altered, captured);
    assert_eq!(class_at("example.com", &altered), "bot", "the signature covers its end");
    fixture.gateway.advance_and_sweep(Duration::from_secs(59));
    assert_eq!(class_at("example.com", &captured), "agent", "a second before its end");
    fixture.gateway.clock.advance(Duration::from_secs(1));
    assert_eq!(class_at("example.com", &captured), "bot", "it has expired");
    let log = fixture.gateway.read_log();
    let logged: Vec<_> = log[log.len() - 5..].iter().map(|line| (&line["kind"], &line["evidence"][1])).collect();
    let (verified, declared) = (serde_json::json!("verified_bot"), serde_json::json!("declared_bot"));
    let (valid, invalid) =
        (serde_json::json!("signature_valid:chatgpt-agent"), serde_json::json!("signature_invalid:chatgpt-agent"));
    let (accepted, refused) = ((&verified, &valid), (&declared, &invalid));
    assert_eq!(logged, [accepted, refused, refused, accepted, refused]);
}

#[test]
fn nonce_is_accepted_once() {
    let fixture = SignatureFixture::with_keys();
    let fields = fixture.agent.signed_fields(&signature_params(Some("a-number")));
    assert_eq!(fixture.observed_class(&fields), VERIFIED);
    assert_eq!(fixture.observed_class(&fields), DECLARED);
    assert_eq!(fixture.observed_class(&fixture.agent.signed_fields(&signature_params(Some("another")))), VERIFIED);
}

#[test]
fn signature_by_another_key_is_rejected() {
    let fixture = SignatureFixture::with_keys();
    let other_signer = Signer::new(&fixture.directory.url());
    let fields = other_signer.signed_fields(&signature_params(None));
    assert_eq!(fixture.observed_class(&fields), DECLARED);
    let invalid =
        fixture.agent.signed_fields(&signature_params(None)).replace("Signature: sig1=:", "Signature: sig1=:AAAA");
    assert_eq!(fixture.observed_class(&invalid), DECLARED);
}

#[test]
fn invalid_signature_of_exhaustive_operator_is_impostor() {
    let fixture = SignatureFixture::with_operator("google-agent", AllowedAddresses::Any).publish_and_wait_for_keys();
    let invalid =
        fixture.agent.signed_fields(&signature_params(None)).replace("Signature: sig1=:", "Signature: sig1=:AAAA");
    assert_eq!(fixture.observed_class(&invalid), "impostor -");
}

#[test]
fn directory_outage_leaves_agents_declared() {
    let fixture = SignatureFixture::with_operator("google-agent", AllowedAddresses::Any);
    assert_eq!(fixture.observed_class_signed(), DECLARED);
    fixture.wait_for_directory_requests(1);
    let user_agent = "User-Agent: Google-Agent\r\n";
    assert_eq!(fixture.observed_class_as(user_agent, ""), "impostor -", "the address disproves the claim");
    let signed = fixture.agent.signed_fields(&signature_params(None));
    assert_eq!(
        fixture.observed_class_as(user_agent, &signed),
        DECLARED,
        "the address is not evidence while the signature is pending"
    );
    // The fetch is retried within 15 seconds.
    fixture.directory.publish_keys(&fixture.agent.directory());
    fixture.gateway.advance_and_sweep(Duration::from_secs(15));
    fixture.wait_until_verified();
    // Keys stay valid when the key server fails again.
    fixture.directory.set_response("503 Service Unavailable", "", "");
    fixture.gateway.advance_and_sweep(Duration::from_secs(600));
    fixture.wait_for_directory_requests(3);
    assert_eq!(fixture.observed_class_signed(), "agent google-agent");
}

#[test]
fn withdrawn_keys_become_invalid() {
    let fixture = SignatureFixture::with_keys();
    fixture.directory.publish_keys(&Signer::new("https://x.example").directory());
    fixture.gateway.advance_and_sweep(Duration::from_secs(600));
    wait_until("the key to expire", || fixture.observed_class_signed() == DECLARED);
}

#[test]
fn directory_redirects_are_not_followed() {
    let fixture = SignatureFixture::new(AllowedAddresses::Any);
    let other_server = HttpsServer::without_document();
    other_server.publish_keys(&fixture.agent.directory());
    fixture.directory.set_response("302 Found", &format!("Location: {}\r\n", other_server.url()), "");
    assert_eq!(fixture.observed_class_signed(), DECLARED);
    fixture.wait_for_directory_requests(1);
    assert_eq!(fixture.observed_class_signed(), DECLARED);
    assert_eq!(other_server.request_count(), 0);
}

#[test]
fn wrong_media_type_provides_no_keys() {
    let fixture = SignatureFixture::new(AllowedAddresses::Any);
    fixture.directory.set_response("200 OK", "Content-Type: text/html\r\n", &fixture.agent.directory());
    assert_eq!(fixture.observed_class_signed(), DECLARED);
    fixture.wait_for_directory_requests(1);
    assert_eq!(fixture.observed_class_signed(), DECLARED);
}

#[test]
fn private_network_directories_are_not_fetched() {
    let fixture = SignatureFixture::new(AllowedAddresses::Public);
    fixture.directory.publish_keys(&fixture.agent.directory());
    for _ in 0..100 {
        assert_eq!(fixture.observed_class_signed(), DECLARED);
    }
    assert_eq!(fixture.directory.request_count(), 0);
}

#[test]
fn keys_of_unlisted_agents_are_not_fetched() {
    let (origin, directory) = (Origin::plain(), HttpsServer::without_document());
    let agent = Signer::new(&directory.url());
    directory.publish_keys(&agent.directory());
    let fixture = SignatureFixture {
        gateway: TestGateway::with_network(directory.network(AllowedAddresses::Any), origin.address(), ""),
        agent,
        directory,
        origin,
    };
    for _ in 0..100 {
        assert_eq!(fixture.observed_class_signed(), "other -");
    }
    assert_eq!(fixture.directory.request_count(), 0);
    let line = fixture.gateway.read_log().pop().expect("log has a line");
    assert_eq!((&line["kind"], &line["evidence"][1]), (&"declared_bot".into(), &"signature_unknown".into()), "{line}");
}

#[test]
fn malformed_signature_fields_leave_kind_human() {
    let fixture = SignatureFixture::new(AllowedAddresses::Any);
    for fields in [
        "Signature-Agent: garbage\r\nSignature-Input: garbage\r\nSignature: garbage\r\n",
        "Signature-Agent: \"\r\nSignature-Input: (\r\nSignature: :\r\n",
        "Signature-Agent: \"https://bot.example\"\r\n",
    ] {
        assert_eq!(fixture.observed_class(fields), PERSON, "{fields}");
    }
    assert_eq!(
        fixture.observed_class(
            "Signature-Agent: sig1=1\r\nSignature-Input: sig1=();tag=\"web-bot-auth\"\r\nSignature: sig1=:AA==:\r\n"
        ),
        PERSON
    );
    let line = fixture.gateway.read_log().pop().expect("log has a line");
    assert_eq!(line["evidence"], serde_json::json!(["user_agent_no_match", "signature_malformed"]));
}

#[test]
fn disabled_verification_ignores_signatures() {
    let (origin, directory) = (Origin::plain(), HttpsServer::without_document());
    let agent = Signer::new(&directory.url());
    let rules = "verify: { dns: off, refresh_interval: off, signatures: { enabled: false } }";
    let fixture = SignatureFixture {
        gateway: TestGateway::with_network(directory.network(AllowedAddresses::Any), origin.address(), rules),
        agent,
        directory,
        origin,
    };
    assert_eq!(fixture.observed_class_signed(), "other -");
    let line = fixture.gateway.read_log().pop().expect("log has a line");
    assert_eq!((&line["kind"], &line["headers_seen"]), (&"human".into(), &serde_json::json!(["user-agent"])), "{line}");
}

#[test]
fn custom_operator_is_verified_by_signature_alone() {
    let fixture = SignatureFixture::with_operator("acme", AllowedAddresses::Any).publish_and_wait_for_keys();
    assert_eq!(fixture.observed_class_signed(), "agent acme");
}

#[test]
fn signature_for_another_site_needs_own_hosts() {
    let fixture = SignatureFixture::with_keys();
    let for_another_site =
        fixture.agent.signed_fields(&SignatureParams { host: "other.example", ..signature_params(None) });
    let replayed = |gateway: &TestGateway| {
        let head = format!("GET / HTTP/1.1\r\nHost: other.example\r\n{BROWSER}{PUBLIC}{for_another_site}\r\n");
        gateway.connect().send(head).read_response().status
    };
    assert_eq!(replayed(&fixture.gateway), 200);
    assert_eq!(
        fixture.origin.last_request().fields["x-tidegate-class"],
        "agent",
        "without hosts, any host is accepted"
    );
    let rules = format!("{}\nhosts: example.com", operator_rules("chatgpt-agent", &fixture.directory.url()));
    fixture.gateway.reload(fixture.origin.address(), &rules).expect("valid rules");
    let received = fixture.origin.received_requests().len();
    assert_eq!(replayed(&fixture.gateway), 421);
    assert_eq!(fixture.origin.received_requests().len(), received);
    assert_eq!(fixture.observed_class_signed(), VERIFIED, "a signature for an own host counts");
}
