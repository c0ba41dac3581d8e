//! An agent that signs its requests with its own key.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};

/// An agent and its key.
pub struct Signer {
    /// Value of `Signature-Agent`.
    agent: String,
    key_pair: Ed25519KeyPair,
}

/// Parameters of a signature, except the key.
pub struct SignatureParams<'a> {
    pub host: &'a str,
    pub created: u64,
    pub expires: u64,
    pub nonce: Option<&'a str>,
}

impl Signer {
    /// Creates an agent with a new key, identified by the URL `agent`.
    pub fn new(agent: &str) -> Self {
        Self { agent: agent.to_owned(), key_pair: Ed25519KeyPair::generate().expect("generated key") }
    }

    /// Returns the key directory document that the agent publishes.
    pub fn directory(&self) -> String {
        format!(
            r#"{{"keys": [{{"kty": "OKP", "crv": "Ed25519", "x": "{}", "kid": "any name"}}]}}"#,
            self.public_key_text()
        )
    }

    fn public_key_text(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.key_pair.public_key())
    }

    /// Returns the key id: the JWK thumbprint (RFC 7638).
    fn key_id(&self) -> String {
        let text = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, self.public_key_text());
        BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
    }

    /// Returns the signature fields of a request, each ended by CRLF.
    pub fn signed_fields(&self, params: &SignatureParams<'_>) -> String {
        let SignatureParams { host, created, expires, nonce } = params;
        let nonce = nonce.map_or_else(String::new, |nonce| format!(";nonce=\"{nonce}\""));
        let (agent, key_id) = (&self.agent, self.key_id());
        let input = format!(
            "(\"@authority\" \"signature-agent\";key=\"sig1\");created={created};expires={expires};keyid=\"{key_id}\"\
             {nonce};tag=\"web-bot-auth\""
        );
        let base = format!(
            "\"@authority\": {host}\n\"signature-agent\";key=\"sig1\": \"{agent}\"\n\"@signature-params\": {input}"
        );
        let signature = BASE64_STANDARD.encode(self.key_pair.sign(base.as_bytes()));
        format!(
            "Signature-Agent: sig1=\"{agent}\"\r\nSignature-Input: sig1={input}\r\nSignature: sig1=:{signature}:\r\n"
        )
    }
}
