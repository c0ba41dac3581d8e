//! Agents that sign their requests: who is believed, when, and what is asked of whom for it.

use crate::support::directory::Directory;
use crate::support::gate::{Gate, NOON};
use crate::support::origin::Origin;
use crate::support::signer::{Signer, Terms};
use crate::support::wait::wait_until;
use std::time::Duration;
use tidegate::verify::fetch::AllowedAddresses;

const BROWSER: &str = "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 \
                       Safari/537.36\r\n";

/// A gate that knows an agent of one operator, the agent, and where it publishes its keys.
struct Scene {
    gate: Gate,
    agent: Signer,
    directory: Directory,
    origin: Origin,
}

impl Scene {
    fn new(reach: AllowedAddresses) -> Self {
        Self::with("chatgpt-agent", reach)
    }

    fn with(operator: &str, reach: AllowedAddresses) -> Self {
        let (origin, directory) = (Origin::plain(), Directory::empty());
        let agent = Signer::new(&directory.url());
        let gate = Gate::in_world(directory.world(reach), origin.address(), &knowing(operator, &directory.url()));
        Self { gate, agent, directory, origin }
    }

    /// The same once the gate has the agent's keys.
    fn acquainted() -> Self {
        Self::new(AllowedAddresses::Any).after_the_keys_came()
    }

    fn after_the_keys_came(self) -> Self {
        self.directory.publishes(&self.agent.directory());
        self.is_verified_at_last();
        self
    }

    /// The class of a browser that sends `fields`, and its operator.
    fn ask(&self, fields: &str) -> String {
        self.ask_as(BROWSER, fields)
    }

    fn ask_as(&self, user_agent: &str, fields: &str) -> String {
        let answer = self.gate.connect().get("/", &format!("{user_agent}{PUBLIC}{fields}"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let seen = self.origin.seen().pop().expect("a request");
        format!(
            "{} {}",
            seen.fields["x-tidegate-class"],
            seen.fields.get("x-tidegate-operator").map_or("-", String::as_str)
        )
    }

    /// What becomes of a request that the agent has signed a minute ago, for an hour.
    fn ask_signed(&self) -> String {
        self.ask(&self.agent.fields(&terms(None)))
    }

    fn is_verified_at_last(&self) {
        wait_until("its keys", || self.ask_signed().starts_with("agent "));
    }

    fn directory_is_asked(&self, times: usize) {
        wait_until("the directory to be asked", || self.directory.asked() >= times);
    }
}

/// A client whose address is none of any crawler's.
const PUBLIC: &str = "X-Forwarded-For: 192.0.2.1\r\n";

const VERIFIED: &str = "agent chatgpt-agent";
const DECLARED: &str = "bot -";
const PERSON: &str = "person -";

/// So that the last line of the log is of the last request, and that a test can let time pass.
const ONE_WORKER: &str = "workers: 1\nlimits: { first_byte_timeout: 1s }\n";

/// Rules that know `operator` by its agent.
fn knowing(operator: &str, agent: &str) -> String {
    format!(
        "{ONE_WORKER}operators: {{ {operator}: {{ signature_agents: \"{agent}\" }} }}\n\
         classes: [ {{ name: agent, when: {{ operator: {operator} }} }}, {{ name: impostor, when: {{ kind: impostor }} }},\n\
         {{ name: bot, when: {{ kind: [verified_bot, declared_bot] }} }}, {{ name: person }} ]"
    )
}

fn terms(nonce: Option<&str>) -> Terms<'_> {
    Terms { host: "example.com", created: NOON.seconds() - 60, expires: NOON.seconds() + 3540, nonce }
}

#[test]
fn an_agent_is_not_known_at_first_and_verified_once_its_keys_have_come() {
    let scene = Scene::new(AllowedAddresses::Any);
    scene.directory.publishes(&scene.agent.directory());
    assert_eq!(scene.ask(""), PERSON, "it has a browser's user agent");
    assert_eq!(scene.ask_signed(), DECLARED, "no request waits for keys");
    scene.is_verified_at_last();
    assert_eq!(scene.directory.asked(), 1, "keys are fetched once, however many ask");
    let seen = scene.origin.seen().pop().expect("a request");
    assert!(seen.fields["signature-agent"].contains("localhost") && seen.fields.contains_key("signature"), "passed on");
    let verified = "tidegate_verifications_total{operator=\"chatgpt-agent\",method=\"signature\",result=\"verified\"}";
    assert!(scene.gate.metric(verified) >= 1.0);
    let last = scene.gate.into_log().pop().expect("a line");
    assert_eq!((&last["kind"], &last["operator"]), (&"verified_bot".into(), &"chatgpt-agent".into()), "{last}");
    assert_eq!(last["evidence"], serde_json::json!(["names_no_bot", "signed:chatgpt-agent"]));
    let seen = serde_json::json!(["user-agent", "signature-agent", "signature-input", "signature"]);
    assert_eq!(last["headers_seen"], seen);
}

#[test]
fn a_signature_that_is_over_to_come_or_of_another_site_proves_nothing() {
    let scene = Scene::acquainted();
    let now = NOON.seconds();
    for (what, terms) in [
        ("over", Terms { expires: now, ..terms(None) }),
        ("to come", Terms { created: now + 61, ..terms(None) }),
        ("longer than a day", Terms { expires: now + 24 * 3600, ..terms(None) }),
        ("of another site", Terms { host: "other.example", ..terms(None) }),
    ] {
        assert_eq!(scene.ask(&scene.agent.fields(&terms)), DECLARED, "{what}");
    }
    scene.gate.pass(Duration::from_secs(3540));
    assert_eq!(scene.ask_signed(), DECLARED, "it has ended meanwhile");
    let line = scene.gate.into_log().pop().expect("a line");
    assert_eq!(line["evidence"], serde_json::json!(["names_no_bot", "signature_invalid:chatgpt-agent"]));
}

#[test]
fn a_signature_for_one_use_is_good_once() {
    let scene = Scene::acquainted();
    let once = scene.agent.fields(&terms(Some("a-number")));
    assert_eq!(scene.ask(&once), VERIFIED);
    assert_eq!(scene.ask(&once), DECLARED);
    assert_eq!(scene.ask(&scene.agent.fields(&terms(Some("another")))), VERIFIED);
}

#[test]
fn a_stolen_name_is_not_worth_anything_without_the_key() {
    let scene = Scene::acquainted();
    let thief = Signer::new(&scene.directory.url());
    let stolen = thief.fields(&terms(None));
    assert_eq!(scene.ask(&stolen), DECLARED);
    let garbled = scene.agent.fields(&terms(None)).replace("Signature: sig1=:", "Signature: sig1=:AAAA");
    assert_eq!(scene.ask(&garbled), DECLARED);
}

#[test]
fn who_signs_wrongly_for_an_operator_that_publishes_all_its_addresses_is_an_impostor() {
    let scene = Scene::with("google-agent", AllowedAddresses::Any).after_the_keys_came();
    let garbled = scene.agent.fields(&terms(None)).replace("Signature: sig1=:", "Signature: sig1=:AAAA");
    assert_eq!(scene.ask(&garbled), "impostor -");
}

#[test]
fn while_a_directory_is_down_nobody_is_verified_and_nobody_an_impostor() {
    let scene = Scene::with("google-agent", AllowedAddresses::Any);
    assert_eq!(scene.ask_signed(), DECLARED);
    scene.directory_is_asked(1);
    let named = "User-Agent: Google-Agent\r\n";
    assert_eq!(scene.ask_as(named, ""), "impostor -", "by its address");
    let signed = scene.agent.fields(&terms(None));
    assert_eq!(scene.ask_as(named, &signed), DECLARED, "which proves nothing while the signature may");
    // It is tried again within a quarter of a minute.
    scene.directory.publishes(&scene.agent.directory());
    scene.gate.pass(Duration::from_secs(15));
    scene.is_verified_at_last();
    // And keys that are there stay when it is down again.
    scene.directory.answers("503 Service Unavailable", "", "");
    scene.gate.pass(Duration::from_secs(600));
    scene.directory_is_asked(3);
    assert_eq!(scene.ask_signed(), "agent google-agent");
}

#[test]
fn a_key_that_is_no_longer_published_is_no_longer_good() {
    let scene = Scene::acquainted();
    scene.directory.publishes(&Signer::new("https://x.example").directory());
    scene.gate.pass(Duration::from_secs(600));
    wait_until("the key to be no longer good", || scene.ask_signed() == DECLARED);
}

#[test]
fn a_directory_that_sends_elsewhere_is_not_followed() {
    let scene = Scene::new(AllowedAddresses::Any);
    let elsewhere = Directory::empty();
    elsewhere.publishes(&scene.agent.directory());
    scene.directory.answers("302 Found", &format!("Location: {}\r\n", elsewhere.url()), "");
    assert_eq!(scene.ask_signed(), DECLARED);
    scene.directory_is_asked(1);
    assert_eq!(scene.ask_signed(), DECLARED);
    assert_eq!(elsewhere.asked(), 0);
}

#[test]
fn what_is_no_directory_gives_no_keys() {
    let scene = Scene::new(AllowedAddresses::Any);
    scene.directory.answers("200 OK", "Content-Type: text/html\r\n", &scene.agent.directory());
    assert_eq!(scene.ask_signed(), DECLARED);
    scene.directory_is_asked(1);
    assert_eq!(scene.ask_signed(), DECLARED);
}

#[test]
fn a_name_that_leads_into_our_own_network_is_not_asked() {
    let scene = Scene::new(AllowedAddresses::Public);
    scene.directory.publishes(&scene.agent.directory());
    for _ in 0..100 {
        assert_eq!(scene.ask_signed(), DECLARED);
    }
    assert_eq!(scene.directory.asked(), 0);
}

#[test]
fn strangers_keys_are_not_fetched() {
    let (origin, directory) = (Origin::plain(), Directory::empty());
    let agent = Signer::new(&directory.url());
    directory.publishes(&agent.directory());
    let scene = Scene {
        gate: Gate::in_world(directory.world(AllowedAddresses::Any), origin.address(), ""),
        agent,
        directory,
        origin,
    };
    for _ in 0..100 {
        assert_eq!(scene.ask_signed(), "other -");
    }
    assert_eq!(scene.directory.asked(), 0);
    let line = scene.gate.into_log().pop().expect("a line");
    assert_eq!((&line["kind"], &line["evidence"][1]), (&"declared_bot".into(), &"signature_unknown".into()), "{line}");
}

#[test]
fn fields_that_name_no_agent_make_no_bot_of_a_person() {
    let scene = Scene::new(AllowedAddresses::Any);
    for fields in [
        "Signature-Agent: garbage\r\nSignature-Input: garbage\r\nSignature: garbage\r\n",
        "Signature-Agent: \"\r\nSignature-Input: (\r\nSignature: :\r\n",
        "Signature-Agent: \"https://bot.example\"\r\n",
    ] {
        assert_eq!(scene.ask(fields), PERSON, "{fields}");
    }
    assert_eq!(
        scene.ask(
            "Signature-Agent: sig1=1\r\nSignature-Input: sig1=();tag=\"web-bot-auth\"\r\nSignature: sig1=:AA==:\r\n"
        ),
        PERSON
    );
    let line = scene.gate.into_log().pop().expect("a line");
    assert_eq!(line["evidence"], serde_json::json!(["names_no_bot", "signature_unreadable"]));
}

#[test]
fn where_signatures_are_not_looked_at_they_say_nothing() {
    let (origin, directory) = (Origin::plain(), Directory::empty());
    let agent = Signer::new(&directory.url());
    let off = "verify: { dns: off, refresh: off, signatures: { enabled: false } }";
    let scene = Scene {
        gate: Gate::in_world(directory.world(AllowedAddresses::Any), origin.address(), off),
        agent,
        directory,
        origin,
    };
    assert_eq!(scene.ask_signed(), "other -");
    let line = scene.gate.into_log().pop().expect("a line");
    assert_eq!((&line["kind"], &line["headers_seen"]), (&"human".into(), &serde_json::json!(["user-agent"])), "{line}");
}

#[test]
fn an_operator_of_the_sites_own_may_be_known_by_its_signature_alone() {
    let scene = Scene::with("acme", AllowedAddresses::Any).after_the_keys_came();
    assert_eq!(scene.ask_signed(), "agent acme");
}
