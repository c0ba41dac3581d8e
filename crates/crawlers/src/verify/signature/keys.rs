//! Public keys of an agent.

use super::algorithm::Algorithm;
use super::fields::Thumbprint;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA512, RsaPublicKeyComponents,
};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use tidegate_policy::Timestamp;

/// Maximum number of keys read per agent. Agents in use have one to three.
const MAX_KEYS: usize = 32;

/// Thumbprints of keys whose private half is published in a standard, so that any client can sign with them: those of RFC 9421,
/// appendices B.1.1 to B.1.4.
const PUBLISHED_TEST_KEYS: [&str; 4] = [
    "BHj8s0GPnMEQtkaULIM-PLgEhLBbuGUQ1vMxmBWZzEo",
    "oD0HwocPBSfpNy5W3bpJeyFGY_IQ_YpqxSjQ3Yd-CLA",
    "ydQXMtvbsOsZyFir-Y7A8t7fKEM1gbKPvyFkdpu4fvI",
    "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U",
];

/// Lengths of an RSA modulus, in bytes: keys of 2,048 to 4,096 bits. Longer ones take longer to verify than a request.
const RSA_MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=512;

/// Maximum length of an RSA exponent, in bytes. Keys in use have three.
const MAX_RSA_EXPONENT_BYTES: usize = 4;

/// A public key of an agent.
#[derive(Debug)]
pub(super) struct AgentKey {
    thumbprint: Thumbprint,
    /// The key for each of its algorithms, the default one first.
    by_algorithm: Vec<(Algorithm, ParsedPublicKey)>,
    not_before: Option<u64>,
    expires: Option<u64>,
}

/// Members of a JSON Web Key that all types have (RFC 7517).
#[derive(Deserialize)]
struct Jwk {
    #[serde(flatten)]
    material: KeyMaterial,
    #[serde(rename = "use")]
    used_for: Option<String>,
    alg: Option<String>,
    nbf: Option<u64>,
    exp: Option<u64>,
}

/// Public members of a key by its type (RFC 7518, RFC 8037).
#[derive(Deserialize)]
#[serde(tag = "kty")]
enum KeyMaterial {
    #[serde(rename = "OKP")]
    OctetPair { crv: String, x: String },
    #[serde(rename = "EC")]
    EllipticCurve { crv: String, x: String, y: String },
    #[serde(rename = "RSA")]
    Rsa { n: String, e: String },
}

/// Parses a directory: a set of keys, or a single key. Skips keys of other types and [`PUBLISHED_TEST_KEYS`].
pub(super) fn directory(body: &[u8]) -> Result<Vec<Arc<AgentKey>>, serde_json::Error> {
    let document: Value = serde_json::from_slice(body)?;
    let keys = match document.get("keys") {
        Some(Value::Array(keys)) => keys.as_slice(),
        _ => std::slice::from_ref(&document),
    };
    let is_test_key = |key: &AgentKey| PUBLISHED_TEST_KEYS.contains(&&*BASE64_URL_SAFE_NO_PAD.encode(key.thumbprint));
    let usable = keys.iter().take(MAX_KEYS).filter_map(AgentKey::read).filter(|key| !is_test_key(key));
    Ok(usable.map(Arc::new).collect())
}

impl AgentKey {
    /// Parses one key; `None` if it has another type.
    pub(super) fn read(key: &Value) -> Option<Self> {
        let key = Jwk::deserialize(key).ok().filter(|key| key.used_for.as_deref().is_none_or(|used| used == "sig"))?;
        let (by_algorithm, canonical) = key.material.parse()?;
        let mut key = Self {
            thumbprint: digest(&SHA256, canonical.as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes"),
            by_algorithm,
            not_before: key.nbf,
            expires: key.exp,
        }
        .restricted_to(key.alg.as_deref());
        key.by_algorithm.shrink_to_fit();
        (!key.by_algorithm.is_empty()).then_some(key)
    }

    /// Returns the key for the algorithm that its publisher names, if any.
    fn restricted_to(mut self, name: Option<&str>) -> Self {
        if let Some(name) = name {
            let named = Algorithm::from_key_name(name);
            self.by_algorithm.retain(|(algorithm, _)| Some(*algorithm) == named);
        }
        self
    }

    pub(super) fn has_thumbprint(&self, thumbprint: &Thumbprint) -> bool {
        self.thumbprint == *thumbprint
    }

    pub(super) fn is_valid_at(&self, now: Timestamp) -> bool {
        let now = now.seconds();
        self.not_before.is_none_or(|from| from <= now) && self.expires.is_none_or(|until| now < until)
    }

    /// Verifies a signature with the algorithm that it names, or the default one of the key. An algorithm of another key does not
    /// verify.
    pub(super) fn verifies(&self, algorithm: Option<Algorithm>, text: &[u8], signature: &[u8]) -> bool {
        let mut keys = self.by_algorithm.iter();
        let key = keys.find(|(supported, _)| algorithm.is_none_or(|named| named == *supported));
        key.is_some_and(|(_, public)| public.verify_sig(text, signature).is_ok())
    }
}

impl KeyMaterial {
    /// Returns the key for each algorithm, and the text of its thumbprint (RFC 7638 section 3.2). The thumbprint is not taken from
    /// the directory, whose key ids often differ.
    fn parse(&self) -> Option<(Vec<(Algorithm, ParsedPublicKey)>, String)> {
        let decode = |text: &String| BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        match self {
            Self::OctetPair { crv, x } => {
                let x = decode(x).filter(|x| crv == "Ed25519" && x.len() == 32)?;
                let public = ParsedPublicKey::new(&ED25519, &x).ok()?;
                let text = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, encode(&x));
                Some((vec![(Algorithm::Ed25519, public)], text))
            }
            Self::EllipticCurve { crv, x, y } => {
                let (x, y) = (decode(x)?, decode(y)?);
                let point = [&[4], &x[..], &y].concat();
                let (algorithm, public) = match (crv.as_str(), x.len(), y.len()) {
                    ("P-256", 32, 32) => {
                        (Algorithm::EcdsaP256Sha256, ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &point))
                    }
                    ("P-384", 48, 48) => {
                        (Algorithm::EcdsaP384Sha384, ParsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, &point))
                    }
                    _ => return None,
                };
                let text = format!(r#"{{"crv":"{crv}","kty":"EC","x":"{}","y":"{}"}}"#, encode(&x), encode(&y));
                Some((vec![(algorithm, public.ok()?)], text))
            }
            Self::Rsa { n, e } => {
                let n = decode(n).filter(|n| RSA_MODULUS_BYTES.contains(&n.len()))?;
                let e = decode(e).filter(|e| e.len() <= MAX_RSA_EXPONENT_BYTES)?;
                let components = RsaPublicKeyComponents { n: &n, e: &e };
                let pss = components.to_parsed_public_key(&RSA_PSS_2048_8192_SHA512).ok()?;
                let pkcs1 = components.to_parsed_public_key(&RSA_PKCS1_2048_8192_SHA256).ok()?;
                let text = format!(r#"{{"e":"{}","kty":"RSA","n":"{}"}}"#, encode(&e), encode(&n));
                Some((vec![(Algorithm::RsaPssSha512, pss), (Algorithm::RsaV15Sha256, pkcs1)], text))
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the thumbprint of a key with this `x`.
    pub(crate) fn thumbprint_of(x: &str) -> Thumbprint {
        let jwk = serde_json::json!({ "kty": "OKP", "crv": "Ed25519", "x": x });
        AgentKey::read(&jwk).expect("a key").thumbprint
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

    /// Public keys of RFC 9421, appendices B.1.1 to B.1.4.
    pub(crate) const TEST_KEYS: [&str; 4] = [
        r#"{"kty": "RSA", "e": "AQAB", "n": "hAKYdtoeoy8zcAcR874L8cnZxKzAGwd7v36APp7Pv6Q2jdsPBRrwWEBnez6d0UDKDwGbc6nxfEXAy5mbhgajzrw3MOEt8uA5txSKobBpKDeBLOsdJKFqMGmXCQvEG7YemcxDTRPxAleIAgYYRjTSd_QBwVW9OwNFhekro3RtlinV0a75jfZgkne_YiktSvLG34lw2zqXBDTC5NHROUqGTlML4PlNZS5Ri2U4aCNx2rUPRcKIlE0PuKxI4T-HIaFpv8-rdV6eUgOrB2xeI1dSFFn_nnv5OoZJEIB-VmuKn3DCUcCZSFlQPSXSfBDiUGhwOw76WuSSsf1D4b_vLoJ10w"}"#,
        r#"{"kty": "RSA", "alg": "PS512", "e": "AQAB", "n": "r4tmm3r20Wd_PbqvP1s2-QEtvpuRaV8Yq40gjUR8y2Rjxa6dpG2GXHbPfvMs8ct-Lh1GH45x28Rw3Ry53mm-oAXjyQ86OnDkZ5N8lYbggD4O3w6M6pAvLkhk95AndTrifbIFPNU8PPMO7OyrFAHqgDsznjPFmTOtCEcN2Z1FpWgchwuYLPL-Wokqltd11nqqzi-bJ9cvSKADYdUAAN5WUtzdpiy6LbTgSxP7ociU4Tn0g5I6aDZJ7A8Lzo0KSyZYoA485mqcO0GVAdVw9lq4aOT9v6d-nb4bnNkQVklLQ3fVAvJm-xdDOp9LCNCN48V2pnDOkFV6-U9nV5oyc6XI2w"}"#,
        r#"{"kty": "EC", "crv": "P-256", "x": "qIVYZVLCrPZHGHjP17CTW0_-D9Lfw0EkjqF7xB4FivA", "y": "Mc4nN9LTDOBhfoUeg8Ye9WedFRhnZXZJA12Qp0zZ6F0"}"#,
        r#"{"kty": "OKP", "crv": "Ed25519", "x": "JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs"}"#,
    ];

    fn test_key(text: &str) -> AgentKey {
        AgentKey::read(&serde_json::from_str(text).expect("JSON")).expect("a key")
    }

    #[test]
    fn published_test_keys_are_rejected() {
        for key in TEST_KEYS {
            assert_eq!(key_count(key), 0, "{key}");
        }
        assert_eq!(TEST_KEYS.map(|key| BASE64_URL_SAFE_NO_PAD.encode(test_key(key).thumbprint)), PUBLISHED_TEST_KEYS);
    }

    /// The response of RFC 9421, appendix B.2.4, whose signature the key of appendix B.1.3 verifies.
    #[test]
    fn published_ecdsa_signature_verifies() {
        let base = "\"@status\": 200\n\"content-type\": application/json\n\"content-digest\": sha-512=:mEWXIS7MaLRuGgxOBdODa3xqM1XdEvxoYhvlCFJ41QJgJc4GTsPp29l5oGX69wWdXymyU0rjJuahq4l5aGgfLQ==:\n\"content-length\": 23\n\"@signature-params\": (\"@status\" \"content-type\" \"content-digest\" \"content-length\");created=1618884473;keyid=\"test-key-ecc-p256\"";
        let signature = "wNmSUAhwb5LxtOtOpNa6W5xj067m5hFrj0XQ4fvpaCLx0NKocgPquLgyahnzDnDAUy5eCdlYUEkLIj+32oiasw==";
        let signature = base64::prelude::BASE64_STANDARD.decode(signature).expect("base64");
        let key = test_key(TEST_KEYS[2]);
        assert!(key.verifies(None, base.as_bytes(), &signature));
        assert!(key.verifies(Some(Algorithm::EcdsaP256Sha256), base.as_bytes(), &signature));
        for (algorithm, text) in
            [(Some(Algorithm::Ed25519), base), (Some(Algorithm::EcdsaP384Sha384), base), (None, "other")]
        {
            assert!(!key.verifies(algorithm, text.as_bytes(), &signature), "{algorithm:?} {text}");
        }
    }

    #[test]
    fn keys_are_used_with_the_named_algorithm_only() {
        let named = |alg: &str| {
            let mut key: Value = serde_json::from_str(TEST_KEYS[0]).expect("JSON");
            key["alg"] = alg.into();
            let key = AgentKey::read(&key)?;
            Some(key.by_algorithm.iter().map(|(algorithm, _)| *algorithm).collect::<Vec<_>>())
        };
        let both = test_key(TEST_KEYS[0]).by_algorithm.iter().map(|(algorithm, _)| *algorithm).collect::<Vec<_>>();
        assert_eq!(both, [Algorithm::RsaPssSha512, Algorithm::RsaV15Sha256]);
        assert_eq!(named("PS512"), Some(vec![Algorithm::RsaPssSha512]));
        assert_eq!(named("rsa-v1_5-sha256"), Some(vec![Algorithm::RsaV15Sha256]));
        assert_eq!((named("ES256"), named("HS256"), named("none")), (None, None, None));
    }

    #[test]
    fn keys_of_unusual_sizes_are_skipped() {
        let rsa = |n: usize, e: &[u8]| {
            let n = BASE64_URL_SAFE_NO_PAD.encode(vec![0xff; n]);
            key_count(&format!(r#"{{"kty": "RSA", "n": "{n}", "e": "{}"}}"#, BASE64_URL_SAFE_NO_PAD.encode(e)))
        };
        assert_eq!((rsa(128, &[1, 0, 1]), rsa(513, &[1, 0, 1]), rsa(256, &[1; 5]), rsa(256, &[])), (0, 0, 0, 0));
        let zeros = BASE64_URL_SAFE_NO_PAD.encode([0; 32]);
        for key in [
            format!(r#"{{"kty": "EC", "crv": "P-256", "x": "{zeros}", "y": "{zeros}"}}"#),
            format!(r#"{{"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "{zeros}"}}"#),
            format!(r#"{{"kty": "EC", "crv": "secp256k1", "x": "{zeros}", "y": "{zeros}"}}"#),
        ] {
            assert_eq!(key_count(&key), 0, "{key}");
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
