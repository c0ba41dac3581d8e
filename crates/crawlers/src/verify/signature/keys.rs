//! Public keys of an agent.

use super::fields::Thumbprint;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{ED25519, ParsedPublicKey};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use tidegate_policy::Timestamp;

/// Maximum number of keys read per agent. Agents in use have one to three.
const MAX_KEYS: usize = 32;

/// Keys whose private half is published in a standard, so that any client can sign with them: the one of RFC 9421,
/// appendix B.1.4.
const PUBLISHED_TEST_KEYS: [&str; 1] = ["JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs"];

/// A public key of an agent.
#[derive(Debug)]
pub(super) struct AgentKey {
    thumbprint: Thumbprint,
    public: ParsedPublicKey,
    not_before: Option<u64>,
    expires: Option<u64>,
}

/// A JSON Web Key (RFC 7517, RFC 8037).
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    crv: String,
    x: String,
    #[serde(rename = "use")]
    used_for: Option<String>,
    alg: Option<String>,
    nbf: Option<u64>,
    exp: Option<u64>,
}

/// Parses a directory: a set of keys, or a single key. Skips keys of other types and [`PUBLISHED_TEST_KEYS`].
pub(super) fn directory(body: &[u8]) -> Result<Vec<Arc<AgentKey>>, serde_json::Error> {
    let document: Value = serde_json::from_slice(body)?;
    let keys = match document.get("keys") {
        Some(Value::Array(keys)) => keys.as_slice(),
        _ => std::slice::from_ref(&document),
    };
    let is_test_key =
        |key: &&Value| key.get("x").and_then(Value::as_str).is_some_and(|x| PUBLISHED_TEST_KEYS.contains(&x));
    let usable = keys.iter().take(MAX_KEYS).filter(|key| !is_test_key(key));
    Ok(usable.filter_map(AgentKey::read).map(Arc::new).collect())
}

impl AgentKey {
    /// Parses one key; `None` if it has another type.
    pub(super) fn read(key: &Value) -> Option<Self> {
        let key = Jwk::deserialize(key).ok()?;
        let is_supported = (key.kty.as_str(), key.crv.as_str()) == ("OKP", "Ed25519")
            && key.used_for.is_none_or(|used_for| used_for == "sig")
            && key.alg.is_none_or(|alg| matches!(alg.as_str(), "EdDSA" | "Ed25519"));
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&key.x).ok().filter(|bytes| is_supported && bytes.len() == 32)?;
        Some(Self {
            thumbprint: thumbprint(&bytes),
            public: ParsedPublicKey::new(&ED25519, &bytes).ok()?,
            not_before: key.nbf,
            expires: key.exp,
        })
    }

    pub(super) fn has_thumbprint(&self, thumbprint: &Thumbprint) -> bool {
        self.thumbprint == *thumbprint
    }

    pub(super) fn is_valid_at(&self, now: Timestamp) -> bool {
        let now = now.seconds();
        self.not_before.is_none_or(|from| from <= now) && self.expires.is_none_or(|until| now < until)
    }

    pub(super) fn verifies(&self, text: &[u8], signature: &[u8]) -> bool {
        self.public.verify_sig(text, signature).is_ok()
    }
}

/// Computes the thumbprint (RFC 7638, with the members of RFC 8037). It is not taken from the directory, whose key ids
/// often differ.
fn thumbprint(key: &[u8]) -> Thumbprint {
    let text = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, BASE64_URL_SAFE_NO_PAD.encode(key));
    digest(&SHA256, text.as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the thumbprint of a key with this `x`.
    pub(crate) fn thumbprint_of(x: &str) -> Thumbprint {
        thumbprint(&BASE64_URL_SAFE_NO_PAD.decode(x).expect("a key"))
    }

    /// Example key of RFC 8037, appendix A.
    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    fn key_count(directory_text: &str) -> usize {
        directory(directory_text.as_bytes()).expect("JSON").len()
    }

    #[test]
    fn key_is_identified_by_thumbprint_not_kid() {
        let encoded = BASE64_URL_SAFE_NO_PAD.encode(thumbprint_of(X));
        assert_eq!(encoded, "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
        let text = format!(r#"{{"keys": [{{"kty": "OKP", "crv": "Ed25519", "kid": "mine", "x": "{X}"}}]}}"#);
        assert!(directory(text.as_bytes()).expect("JSON")[0].has_thumbprint(&thumbprint_of(X)));
    }

    #[test]
    fn directory_is_a_key_set_or_single_key() {
        let key = format!(r#"{{"kty": "OKP", "crv": "Ed25519", "x": "{X}", "use": "sig", "alg": "EdDSA"}}"#);
        assert_eq!(key_count(&key), 1);
        assert_eq!(key_count(&format!(r#"{{"keys": [{key}, {key}]}}"#)), 2);
        assert_eq!(key_count(r#"{"keys": []}"#), 0);
        assert!(directory(b"<html>").is_err());
        let many = vec![key.as_str(); 1000].join(",");
        assert_eq!(key_count(&format!(r#"{{"keys": [{many}]}}"#)), MAX_KEYS);
    }

    #[test]
    fn unsupported_keys_are_skipped() {
        for other in [
            r#""kty": "RSA", "crv": "Ed25519""#,
            r#""kty": "OKP", "crv": "X25519""#,
            r#""kty": "OKP", "crv": "Ed25519", "use": "enc""#,
            r#""kty": "OKP", "crv": "Ed25519", "alg": "HS256""#,
        ] {
            assert_eq!(key_count(&format!(r#"{{"keys": [{{{other}, "x": "{X}"}}]}}"#)), 0, "{other}");
        }
        assert_eq!(key_count(r#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}, 7, null, "x"]}"#), 0);
        assert_eq!(key_count("[]") + key_count("null") + key_count(r#"{"keys": 1}"#), 0);
    }

    #[test]
    fn published_test_keys_are_rejected() {
        for x in PUBLISHED_TEST_KEYS {
            assert_eq!(key_count(&format!(r#"{{"keys": [{{"kty": "OKP", "crv": "Ed25519", "x": "{x}"}}]}}"#)), 0);
        }
    }

    #[test]
    fn key_validity_includes_nbf_and_excludes_exp() {
        let text = format!(r#"{{"kty": "OKP", "crv": "Ed25519", "x": "{X}", "nbf": 100, "exp": 200}}"#);
        let key = &directory(text.as_bytes()).expect("JSON")[0];
        let valid = [99, 100, 199, 200].map(|second| key.is_valid_at(Timestamp::from_seconds(second)));
        assert_eq!(valid, [false, true, true, false]);
    }
}
