//! Names in the verified certificate of a client.

use super::x509::CertificateFacts;

/// Returns the names in a client's certificate, which was verified: its common name, DNS names, email addresses and URIs.
/// Empty if it cannot be parsed.
pub fn client_names(der: &[u8]) -> Vec<String> {
    let Ok(facts) = CertificateFacts::parse(der) else { return Vec::new() };
    let mut names: Vec<String> =
        facts.common_name.into_iter().chain(facts.dns_names).chain(facts.other_names).collect();
    names.truncate(MAX_NAMES);
    names
}

/// Maximum number of names: each is compared with the patterns of all classes.
const MAX_NAMES: usize = 16;
