//! Cost of signature verification: requests without a signature, with a valid one, with an unknown key and forged.

#[allow(unreachable_pub, reason = "the integration tests use it from other modules")]
#[path = "../tests/integration/support/signer.rs"]
mod signer;

use criterion::{Criterion, criterion_group, criterion_main};
use http::{Method, Uri, Version};
use signer::{SignatureParams, Signer};
use std::hint::black_box;
use std::time::Duration;
use tidegate::http1::{Fields, Name, RequestHead};
use tidegate::policy::identity::ClientKey;
use tidegate::policy::{OperatorId, Signature, Timestamp};
use tidegate::verify::signature::{SignaturePolicy, SignatureVerifier, SignedMessage, VerifyTime};

const AGENT: &str = "https://bot.example";
const NOW: u64 = 1_800_000_000;
const MOMENT: VerifyTime = VerifyTime { now: Timestamp::from_seconds(NOW), uptime: Timestamp::from_seconds(60) };
const TERMS: SignaturePolicy = SignaturePolicy { unlisted: false, max_lifetime: Duration::from_secs(24 * 3600) };

/// Returns the head of a browser request, with the additional fields `more`.
fn request_head(more: &str) -> RequestHead {
    let usual = "Host: example.com\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: text/html\r\nAccept-Language: en\r\n\
                 Accept-Encoding: gzip, br\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Site: none\r\n";
    let lines = usual.lines().chain(more.lines());
    let fields: Fields = lines.filter_map(|line| line.split_once(": ")).collect();
    RequestHead { method: Method::GET, target: Uri::from_static("/item/7"), version: Version::HTTP_11, fields }
}

fn signatures(c: &mut Criterion) {
    let agent = Signer::new(AGENT);
    let known = SignatureVerifier::of([(AGENT, OperatorId(0))].into_iter());
    known.insert_for_test(AGENT, agent.directory().as_bytes(), MOMENT);
    let said = |host| SignatureParams { host, created: NOW, expires: NOW + 3600, nonce: None };
    let judge = |signatures: &SignatureVerifier, head: &RequestHead, client| {
        let message = SignedMessage { head, authority: b"example.com", secure: true, has_body: false };
        signatures.verify(&message, ClientKey::from_number(client), TERMS, MOMENT)
    };

    let unsigned = request_head("");
    c.bench_function("unsigned", |b| b.iter(|| black_box(&unsigned).fields.contains(Name::SignatureAgent)));

    let right = request_head(&agent.signed_fields(&said("example.com")));
    assert_eq!(judge(&known, &right, 0), Signature::Verified(OperatorId(0)));
    c.bench_function("verified", |b| b.iter(|| judge(&known, black_box(&right), 0)));

    let stranger = SignatureVerifier::of(std::iter::empty());
    assert_eq!(judge(&stranger, &right, 0), Signature::Unknown(None));
    c.bench_function("agent_unknown", |b| b.iter(|| judge(&stranger, black_box(&right), 0)));

    let wrong = request_head(&agent.signed_fields(&said("other.example")));
    let mut client = 0;
    c.bench_function("forged_by_ever_new_clients", |b| {
        b.iter(|| {
            client += 1;
            judge(&known, black_box(&wrong), client)
        });
    });
    c.bench_function("forged_by_one_client", |b| b.iter(|| judge(&known, black_box(&wrong), 0)));
}

criterion_group!(benches, signatures);
criterion_main!(benches);
