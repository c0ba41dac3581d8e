//! TLS in front of the gateway, as public scanners see it.

use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::tls::Certificates;
use serde_json::Value;
use std::fs;
use std::process::Command;

const HOST: &str = "localhost";

/// Findings of testssl.sh that a certificate of a test always has, by reason. None is one of the gateway.
const FINDINGS_OF_A_TEST: &[(&str, &[&str])] = &[
    (
        "a private authority has no revocation service, nor a log of its certificates",
        &["cert_revocation", "OCSP_stapling", "certificate_transparency"],
    ),
    ("no browser trusts the authority of a test", &["cert_chain_of_trust"]),
    ("certificates of a test are valid for centuries", &["cert_extlifeSpan", "cert_validityPeriod"]),
];

/// Findings that show that the scan was complete, at least one per group of checks.
const EXPECTED_FINDINGS: &[&str] =
    &["TLS1_1", "TLS1_3", "cert_commonName", "cipher_order", "heartbleed", "ticketbleed", "ROBOT", "LUCKY13"];

/// A gateway with a certificate for this machine.
fn start(certificates: &Certificates, origin: &Origin) -> (TestGateway, String) {
    let pair = certificates.issue(HOST, &[HOST]);
    let rules = format!("listen: {{ address: '127.0.0.1:0', tls: {{ {pair}, hsts: 365d }} }}");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let target = format!("{HOST}:{}", gateway.address().port());
    (gateway, target)
}

#[test]
fn testssl_has_no_finding_of_medium_severity_or_above() {
    let (certificates, origin) = (Certificates::new(), Origin::plain());
    let (_gateway, target) = start(&certificates, &origin);
    let report = certificates.path("testssl.json");
    let output = Command::new("testssl")
        .args(["--quiet", "--warnings", "off", "--color", "0", "--nodns", "none", "--ip", "127.0.0.1"])
        .args(["--protocols", "--server-defaults", "--server-preference", "--pfs", "--vulnerable"])
        .arg("--add-ca")
        .arg(certificates.path("ca.pem"))
        .arg("--jsonfile")
        .arg(&report)
        .arg(&target)
        .output()
        .expect("testssl is installed: run ./test");
    let text = String::from_utf8_lossy(&output.stdout);
    let findings = fs::read_to_string(&report).unwrap_or_else(|error| panic!("no report ({error}): {text}"));
    let findings: Vec<Value> = serde_json::from_str(&findings).unwrap_or_else(|error| panic!("{error}: {findings}"));
    let field = |finding: &Value, name: &str| finding[name].as_str().unwrap_or_default().to_owned();
    for id in EXPECTED_FINDINGS {
        assert!(findings.iter().any(|finding| field(finding, "id") == *id), "{id} was not checked: {text}");
    }
    let is_of_test = |id: &str| FINDINGS_OF_A_TEST.iter().any(|(_, ids)| ids.contains(&id));
    let is_severe = |finding: &&Value| {
        let severity = field(finding, "severity");
        ["MEDIUM", "HIGH", "CRITICAL", "FATAL"].contains(&severity.as_str()) && !is_of_test(&field(finding, "id"))
    };
    let severe: Vec<&Value> = findings.iter().filter(is_severe).collect();
    assert!(severe.is_empty(), "{severe:#?}");
}

#[test]
fn sslscan_sees_current_protocols_and_suites_only() {
    let (certificates, origin) = (Certificates::new(), Origin::plain());
    let (_gateway, target) = start(&certificates, &origin);
    let output = Command::new("sslscan").args(["--no-colour", &target]).output();
    let output = output.expect("sslscan is installed: run ./test");
    let text = String::from_utf8_lossy(&output.stdout);
    for (protocol, state) in [
        ("SSLv2", "disabled"),
        ("SSLv3", "disabled"),
        ("TLSv1.0", "disabled"),
        ("TLSv1.1", "disabled"),
        ("TLSv1.2", "enabled"),
        ("TLSv1.3", "enabled"),
    ] {
        let is_listed = |line: &str| line.split_whitespace().eq([protocol, state]);
        assert!(text.lines().any(is_listed), "{protocol} {state}: {text}");
    }
    for line in ["Session renegotiation not supported", "TLSv1.3 not vulnerable", "TLSv1.2 not vulnerable"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let suites: Vec<&str> =
        text.lines().filter(|line| line.starts_with("Preferred") || line.starts_with("Accepted")).collect();
    assert_eq!(suites.len(), 6, "{text}");
    for suite in suites {
        assert!(suite.contains("_GCM_") || suite.contains("-GCM-") || suite.contains("CHACHA20"), "{suite}");
        assert!(suite.contains("TLSv1.3") || suite.contains("ECDHE"), "{suite}");
    }
}
