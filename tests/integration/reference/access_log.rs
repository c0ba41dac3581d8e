//! ACCESS_LOG.md, from the tables beside the writer of access log lines.

use super::markdown::table;
use super::{assert_current, matches_form};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;
use tidegate_access_log::fields::{
    EVIDENCE, KINDS, LOG_FIELDS, LogValue, OPTIONAL_LOG_FIELDS, REASONS, REJECTED_LOG_FIELDS, VERDICTS,
};
use tidegate_access_log::sample::{sample_record, sample_with};
use tidegate_access_log::{
    LineWriter, QuotaCharge, Record, RecordedMore, RecordedOutcome, RecordedRequest, RejectedRecord, ResponseCut,
    UnexpectedCost,
};
use tidegate_policy::ListId;
use tidegate_policy::Units;
use tidegate_policy::bot_detection::{FetchMode, FetchSite, HeadersSeen, HintsBrand, PagesBeyond, Signal};
use tidegate_policy::cache::CacheFill;
use tidegate_policy::class::Evidence;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::network_origin::NetworkOrigin;
use tidegate_policy::purpose::Purpose;
use tidegate_policy::request_body::JsonMatch;
use tidegate_policy::request_fields::FieldMatch;
use tidegate_policy::session::Session;
use tidegate_policy::switches::SwitchEffect;
use tidegate_policy::{BotId, ClientKind, OperatorId, Reason};

#[test]
fn access_log_document_is_current() {
    let code = |text: &str| format!("`{text}`");
    let fields =
        LOG_FIELDS.iter().map(|field| [code(field.name), field.json_type.to_owned(), field.meaning.to_owned()]);
    let values = |heading: &str, values: &[LogValue]| {
        let rows = values.iter().map(|value| [code(value.value), value.meaning.to_owned()]);
        format!("### {heading}\n\n{}", table(["Value", "Meaning"], rows))
    };
    let example = LOG_FIELDS.iter().fold(line(&sample_record()), |line, field| {
        line.replace(&format!(",\"{}\":", field.name), &format!(",\n \"{}\":", field.name))
    });
    let text = format!("{INTRODUCTION}```json\n{example}```\n\n## Fields\n\n")
        + &table(["Field", "Type", "Meaning"], fields)
        + REJECTED
        + &format!("```json\n{}```\n\n", rejected_line())
        + "## Values\n\n"
        + &values("verdict", &VERDICTS)
        + &values("reason", &REASONS)
        + &values("kind", &KINDS)
        + &values("evidence", EVIDENCE)
        + SIGNALS;
    assert_current("ACCESS_LOG.md", "Access log", &text);
}

#[test]
fn lines_have_the_documented_fields_in_order() {
    let charges = [QuotaCharge { retry_sequence: Some(7), ..sample_record().units.charges[0] }];
    let unexpected = [UnexpectedCost { quota_name: "other", charged: Units::from_whole(4), settle_sequence: 9 }];
    let more = RecordedMore {
        session: Some(Session::Known),
        session_id: 7,
        is_asked_back: false,
        purpose: Some(Purpose::Search),
        network_origin: NetworkOrigin { asn: Some(64_496), country: "DE".parse().ok() },
        field_classes: &["partner", "login"],
        customer: Some(ClientKey::from_credential(0xab)),
        trace_id: Some(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736),
    };
    let json = JsonMatch::from_words(["method=tools/call", "params.name=search"].into_iter());
    let fields = FieldMatch::from_words(["x-api-version=2", "?cookie:beta=1"].into_iter());
    let full = sample_with(|it| {
        it.units.charges = &charges;
        it.units.unexpected_costs = &unexpected;
        it.client.operator = Some(OperatorId(0));
        it.client.evidence = &[Some(Evidence::ApiKey)];
        it.client.bot_score = Some(83);
        let headers = it.client.headers_seen.with_fetch(Some(FetchMode::Navigate), Some(FetchSite::None));
        it.client.headers_seen =
            headers.with_hints_major(142).with_hints_brand(Some(HintsBrand::Chrome)).with(HeadersSeen::NO_ZSTD, true);
        it.client.more = Some(&more);
        it.request.json = Some(&json);
        it.request.fields = Some(&fields);
        it.decision.bucket_sequence = Some(5);
        it.decision.outcome = RecordedOutcome::Refused(Reason::Tier);
        it.decision.retry_after_s = Some(60);
        it.decision.tier = Some(2);
        it.decision.guard_admitted = true;
        it.decision.switch = Some(SwitchEffect::Allow);
        it.request.fill = Some(CacheFill::Warm);
        it.decision.scope = Some("default");
        it.decision.origin = Some("api");
        it.response.cut = Some(ResponseCut::ResponseTimeout);
    });
    let mut shadow = full;
    shadow.decision.outcome = RecordedOutcome::Admitted { shadow_reason: Some(Reason::Tier) };
    let minimal = sample_with(|it| {
        it.request.host = b"";
        it.request.path = "";
        it.request.query = None;
        it.request.user_agent = b"";
        it.request.referer = None;
        it.client.headers_seen = HeadersSeen::USER_AGENT;
        it.client.evidence = &[];
        it.units.charges = &[];
        it.response.origin = None;
        it.response.total = Duration::ZERO;
    });
    let all_names: Vec<&str> = LOG_FIELDS.iter().map(|field| field.name).collect();
    let required: Vec<&str> = all_names.iter().copied().filter(|name| !OPTIONAL_LOG_FIELDS.contains(name)).collect();
    for (record, expected) in
        [(full, &all_names), (shadow, &all_names), (sample_record(), &required), (minimal, &required)]
    {
        let Entries(entries) = serde_json::from_str(&line(&record)).expect("a JSON object");
        let names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(&names, expected);
        for (name, value) in &entries {
            let form = LOG_FIELDS.iter().find(|field| field.name == name).expect("field is documented").json_type;
            assert!(matches_form(form, value), "{name} is not {form}: {value}");
        }
    }
}

#[test]
fn line_of_a_rejected_request_has_the_documented_fields_in_order() {
    let Entries(entries) = serde_json::from_str(&rejected_line()).expect("a JSON object");
    let names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, REJECTED_LOG_FIELDS);
    for (name, value) in &entries {
        let form = LOG_FIELDS.iter().find(|field| field.name == name).map_or("string", |field| field.json_type);
        assert!(matches_form(form, value), "{name} is not {form}: {value}");
    }
    let verdict = entries.iter().find(|(name, _)| name == "verdict").map(|(_, value)| value);
    assert_eq!(verdict, Some(&Value::from("rejected")));
}

#[test]
fn written_values_are_documented() {
    let names = |values: &[LogValue]| values.iter().map(|value| value.value).collect::<Vec<_>>();
    assert_eq!(names(&REASONS), Reason::ALL.map(Reason::name));
    assert_eq!(names(&KINDS), ClientKind::ALL.map(ClientKind::name));
    let outcomes = [RecordedOutcome::Admitted { shadow_reason: None }, RecordedOutcome::Refused(Reason::Tier)];
    let verdicts = outcomes.iter().map(|outcome| outcome.verdict());
    assert_eq!(names(&VERDICTS), verdicts.chain(["rejected"]).collect::<Vec<_>>());
    // Of an entry with a name, the part up to the colon.
    let entry_kind = |entry: &str| entry.split_inclusive(':').next().unwrap_or_default().to_owned();
    let mut kinds = BTreeSet::new();
    let mut next = Some(Evidence::UserAgentRule(0));
    while let Some(evidence) = next {
        let entries = [Some(evidence)];
        let line = line(&sample_with(|it| it.client.evidence = &entries));
        let line: Value = serde_json::from_str(&line).expect("JSON");
        kinds.insert(entry_kind(line["evidence"][0].as_str().expect("an entry")));
        next = successor(evidence);
    }
    assert_eq!(kinds, names(EVIDENCE).into_iter().map(entry_kind).collect());
}

/// Returns the evidence after `evidence`, so that a loop visits all forms. A new variant does not compile here.
fn successor(evidence: Evidence) -> Option<Evidence> {
    let operator = OperatorId(0);
    Some(match evidence {
        Evidence::UserAgentRule(_) => Evidence::NoUserAgent,
        Evidence::NoUserAgent => Evidence::UserAgentNoMatch,
        Evidence::UserAgentNoMatch => Evidence::UserAgentMatch(BotId(0)),
        Evidence::UserAgentMatch(_) => Evidence::UserAgentHeuristic,
        Evidence::UserAgentHeuristic => Evidence::AddressVerified(operator),
        Evidence::AddressVerified(_) => Evidence::AddressMismatch(operator),
        Evidence::AddressMismatch(_) => Evidence::AddressPrivate(operator),
        Evidence::AddressPrivate(_) => Evidence::DnsVerified(operator),
        Evidence::DnsVerified(_) => Evidence::DnsMismatch(operator),
        Evidence::DnsMismatch(_) => Evidence::SignatureValid(operator),
        Evidence::SignatureValid(_) => Evidence::SignatureUnknown(Some(operator)),
        Evidence::SignatureUnknown(Some(_)) => Evidence::SignatureUnknown(None),
        Evidence::SignatureUnknown(None) => Evidence::SignatureInvalid(Some(operator)),
        Evidence::SignatureInvalid(Some(_)) => Evidence::SignatureInvalid(None),
        Evidence::SignatureInvalid(None) => Evidence::SignatureUnlisted,
        Evidence::SignatureUnlisted => Evidence::SignatureMalformed,
        Evidence::SignatureMalformed => Evidence::Behavior(Signal::NoLinks),
        Evidence::Behavior(_) => Evidence::BeyondPeople(PagesBeyond { pages: 412, limit: 315 }),
        Evidence::BeyondPeople(_) => Evidence::AddressList(ListId(0)),
        Evidence::AddressList(_) => Evidence::ApiKey,
        Evidence::ApiKey => Evidence::Certificate,
        Evidence::Certificate => return None,
    })
}

fn line(record: &Record<'_>) -> String {
    written(|lines, out| lines.write_json(out, record))
}

fn rejected_line() -> String {
    let sample = sample_record();
    let rejected = RejectedRecord {
        at: sample.admitted_at,
        id: sample.id,
        address: sample.client.address,
        request: RecordedRequest { path: "/item%2F42", ..sample.request },
        status: 400,
        bytes: 214,
        problem: "The path contains an encoded slash (%2F).",
    };
    written(|lines, out| lines.write_rejected_json(out, &rejected))
}

fn written(write: impl FnOnce(&mut LineWriter, &mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    let started = tidegate_policy::Timestamp::from_seconds(1_795_230_843);
    write(&mut LineWriter::starting_at(started), &mut out);
    String::from_utf8(out).expect("UTF-8")
}

/// Entries of a JSON object, in the order of the text.
struct Entries(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;

        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(EntriesVisitor)
    }
}

const INTRODUCTION: &str = "\
The gateway writes one JSON line per finished request. [`log.access`](CONFIGURATION.md#log) sets the file; SIGUSR1 and
SIGHUP reopen it. A line has all that `tidegate replay` needs to repeat the decision. Credentials and cookies are never
written. Times are RFC 3339 in UTC, to the microsecond. In an object, the keys are names of quotas. A client's text that
is not UTF-8 is read as Latin-1.

A line, with line breaks added:

";

const REJECTED: &str = "\
## Rejected requests

A request that is invalid, or for no host of the site, gets a 4xx before any rule decides on it. Its line has fewer fields, and
`problem` with what the client was told. `replay` counts it as an invalid request, and `tidegate explain` does not know its id. A
request whose head cannot be read has no line: `tidegate_responses_total` counts its response, without a class.

";

const SIGNALS: &str = "\
[Classification](../CLASSIFICATION.md#behavior) describes the signals. The signature fields and the agents are those of
Web Bot Auth.
";
