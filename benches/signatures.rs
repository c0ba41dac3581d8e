//! Cost of signature verification: requests without a signature, with a valid one, with an unknown key and forged.

#[allow(unreachable_pub, reason = "the integration tests use it from other modules")]
#[path = "../tests/integration/support/signer.rs"]
mod signer;

use criterion::{Criterion, criterion_group, criterion_main};
use http::{Method, Uri, Version};
use signer::{SignatureParams, Signer};
use std::hint::black_box;
use std::time::Duration;
use tidegate_crawlers::verify::signature::{SignaturePolicy, SignatureVerifier, SignedMessage, VerifyTime};
use tidegate_http1::{Fields, Name, RequestHead};
use tidegate_policy::identity::ClientKey;
use tidegate_policy::{OperatorId, Signature, Timestamp};

const AGENT: &str = "https://bot.example";
const NOW: u64 = 1_800_000_000;
const MOMENT: VerifyTime = VerifyTime { now: Timestamp::from_seconds(NOW), uptime: Timestamp::from_seconds(60) };
const TERMS: SignaturePolicy =
    SignaturePolicy { fetch_unlisted_keys: false, max_lifetime: Duration::from_secs(24 * 3600) };

/// Returns the head of a browser request, with additional fields.
fn request_head(extra_fields: &str) -> RequestHead {
    let default_fields = "Host: example.com\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: text/html\r\nAccept-Language: en\r\n\
                 Accept-Encoding: gzip, br\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Site: none\r\n";
    let lines = default_fields.lines().chain(extra_fields.lines());
    let fields: Fields = lines.filter_map(|line| line.split_once(": ")).collect();
    RequestHead { method: Method::GET, target: Uri::from_static("/item/7"), version: Version::HTTP_11, fields }
}

fn signatures(c: &mut Criterion) {
    let agent = Signer::new(AGENT);
    let verifier = SignatureVerifier::new([(AGENT, OperatorId(0))].into_iter());
    verifier.insert_for_test(AGENT, agent.directory().as_bytes(), MOMENT);
    let params = |host| SignatureParams { host, created: NOW, expires: NOW + 3600, nonce: None };
    let verify = |verifier: &SignatureVerifier, head: &RequestHead, client| {
        let message = SignedMessage { head, authority: b"example.com", secure: true, has_body: false };
        verifier.verify(&message, ClientKey::from_u64(client), TERMS, MOMENT)
    };

    let unsigned = request_head("");
    c.bench_function("unsigned", |b| b.iter(|| black_box(&unsigned).fields.contains(Name::SignatureAgent)));

    let valid = request_head(&agent.signed_fields(&params("example.com")));
    assert_eq!(verify(&verifier, &valid, 0), Signature::Verified(OperatorId(0)));
    c.bench_function("verified", |b| b.iter(|| verify(&verifier, black_box(&valid), 0)));

    let empty_verifier = SignatureVerifier::new(std::iter::empty());
    assert_eq!(verify(&empty_verifier, &valid, 0), Signature::Unknown(None));
    c.bench_function("agent_unknown", |b| b.iter(|| verify(&empty_verifier, black_box(&valid), 0)));

    let forged = request_head(&agent.signed_fields(&params("other.example")));
    let mut client = 0;
    c.bench_function("forged_by_ever_new_clients", |b| {
        b.iter(|| {
            client += 1;
            verify(&verifier, black_box(&forged), client)
        });
    });
    c.bench_function("forged_by_one_client", |b| b.iter(|| verify(&verifier, black_box(&forged), 0)));
}

criterion_group!(benches, signatures);
criterion_main!(benches);
