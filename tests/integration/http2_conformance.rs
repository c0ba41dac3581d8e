//! HTTP/2 of the listeners, case by case of RFC 9113 and RFC 7541: what h2spec covers, and more.
//! `tests/clients/http2_conformance.py` has the cases.

use crate::support::crawlers::InstalledClients;
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::tls::Certificates;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Name that the cases connect to.
const SITE: &str = "site.example";

const CASES: usize = 206;

/// Length of the page `/large`, more than the first window of a connection.
const LARGE: usize = 200_000;

/// A case and its result.
#[derive(Debug, Deserialize)]
struct Case {
    id: String,
    #[expect(dead_code, reason = "printed if the result is not the expected one")]
    sentence: String,
    passed: bool,
    observed: String,
}

/// Cases in which the gateway deviates: what happens in place of what the RFC requires, why, and their ids. None leaves
/// a request or a connection in a state that only one side knows.
const DEVIATIONS: [(&str, &str, &[&str]); 4] = [
    (
        "GOAWAY PROTOCOL_ERROR",
        "h2 closes the connection as it must, but names the general code for errors of sizes, windows and compression",
        &[
            "9113/4.3/1",
            "9113/6.3/2",
            "9113/6.4/2",
            "9113/6.5/1",
            "9113/6.5/3",
            "9113/6.5.2/3",
            "9113/6.7/4",
            "9113/6.8/2",
            "9113/6.9/3",
            "7541/2.3.3/1",
            "7541/2.3.3/2",
            "7541/4.2/1",
            "7541/4.3/1",
            "7541/4.4/1",
            "7541/5.1/1",
            "7541/5.1/2",
            "7541/5.2/2",
            "7541/5.2/3",
            "7541/5.2/4",
            "7541/5.2/5",
            "7541/6.1/1",
            "7541/6.3/1",
        ],
    ),
    (
        "GOAWAY PROTOCOL_ERROR",
        "h2 closes the connection for a frame after the end of a request, in place of the stream alone",
        &["9113/5.1/6", "9113/5.1/7"],
    ),
    ("the connection goes on", "h2 accepts any frame after the octets of the preface", &["9113/3.4/3"]),
    (
        "ignored, status 200",
        "h2 drops pseudo-header fields of a trailer, so that nobody behind it sees them",
        &["9113/8.3/11"],
    ),
];

/// Runs all cases against a listener. Fails if a result is not the expected one.
fn assert_conformance(listener: SocketAddr, options: &[&str]) {
    let mut command = InstalledClients::locate().python("http2_conformance.py");
    let output = command.arg(listener.to_string()).args(options).output().expect("python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let cases: Vec<Case> = serde_json::Deserializer::from_slice(&output.stdout)
        .into_iter()
        .collect::<Result<_, _>>()
        .expect("a line of JSON for each case");
    assert_eq!(cases.len(), CASES);
    let deviations: BTreeMap<&str, &str> =
        DEVIATIONS.iter().flat_map(|(observed, _, ids)| ids.iter().map(move |id| (*id, *observed))).collect();
    let is_expected = |case: &&Case| match deviations.get(case.id.as_str()) {
        Some(observed) => !case.passed && case.observed == *observed,
        None => case.passed,
    };
    let unexpected: Vec<_> = cases.iter().filter(|case| !is_expected(case)).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
}

#[test]
fn http2_of_clients_is_served_as_the_standard_requires() {
    let origin = Origin::with_script(|request, connection| {
        connection.read_body(request);
        let body = if request.target == "/large" { vec![b'x'; LARGE] } else { b"hello".to_vec() };
        connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()));
        if request.method != "HEAD" {
            connection.send(body);
        }
    });
    let certificates = Certificates::new();
    let tls = certificates.issue("site", &[SITE]);
    let listen = format!("listen: [127.0.0.1:0, {{ address: '127.0.0.1:0', tls: {{ {tls} }} }}]");
    let gateway = TestGateway::with_rules(origin.address(), &listen);
    assert_conformance(gateway.addresses()[0], &[]);
    let authority = certificates.path("ca.pem");
    assert_conformance(gateway.addresses()[1], &["--authority", authority.to_str().expect("UTF-8")]);
}
