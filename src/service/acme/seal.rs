//! Encryption of the certificates that gateways share: who reads the shared server has no private key.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use tidegate_policy::secret::Secret;

/// Purpose of the key, so that another use of the same secret has another one.
const PURPOSE: &[u8] = b"tidegate certificate";

/// Key with which certificates are encrypted (AES-256-GCM).
pub(super) struct CertificateSeal(RandomizedNonceKey);

/// Length of the key.
struct KeyLength;

impl KeyType for KeyLength {
    fn len(&self) -> usize {
        AES_256_GCM.key_len()
    }
}

impl CertificateSeal {
    /// Derives the key from a secret (HKDF, RFC 5869).
    pub(super) fn new(secret: &Secret) -> Self {
        let mut key = [0; 32];
        let derived = Salt::new(HKDF_SHA256, &[]).extract(secret.expose_secret().as_bytes());
        let filled = derived.expand(&[PURPOSE], KeyLength).and_then(|output| output.fill(&mut key));
        filled.expect("a key is shorter than the longest output");
        Self(RandomizedNonceKey::new(&AES_256_GCM, &key).expect("the length of the key fits the algorithm"))
    }

    /// Encrypts key and chain of the certificate `name`.
    pub(super) fn seal(&self, name: &str, pem: &str) -> String {
        let mut text = pem.as_bytes().to_vec();
        let nonce = self.0.seal_in_place_append_tag(Aad::from(name.as_bytes()), &mut text);
        let nonce = nonce.expect("a certificate is shorter than the longest text");
        STANDARD.encode([&nonce.as_ref()[..], &text].concat())
    }

    /// Decrypts the certificate `name`. Returns `None` if it was not encrypted with this secret and for this name.
    pub(super) fn open(&self, name: &str, sealed: &str) -> Option<String> {
        let mut bytes = STANDARD.decode(sealed).ok()?;
        let (nonce, text) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let text = self.0.open_in_place(nonce, Aad::from(name.as_bytes()), text).ok()?;
        String::from_utf8(text.to_vec()).ok()
    }
}

impl fmt::Debug for CertificateSeal {
    /// Hides the key.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("CertificateSeal").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seal(secret: &str) -> CertificateSeal {
        CertificateSeal::new(&Secret::new(secret.to_owned()))
    }

    proptest! {
        #[test]
        fn only_the_same_secret_and_name_open_what_is_intact(pem in "\\PC{0,300}", name in "[a-z.]{1,20}", at in 0..1000usize) {
            let sealed = seal("secret").seal(&name, &pem);
            prop_assert_eq!(seal("secret").open(&name, &sealed), Some(pem.clone()));
            prop_assert_ne!(&seal("secret").seal(&name, &pem), &sealed, "each time another nonce");
            prop_assert!(pem.len() < 8 || !sealed.contains(&pem));
            prop_assert_eq!(seal("other").open(&name, &sealed), None);
            prop_assert_eq!(seal("secret").open("other", &sealed), None);
            let mut bytes = STANDARD.decode(&sealed).expect("base64");
            let at = at % bytes.len();
            bytes[at] ^= 1;
            prop_assert_eq!(seal("secret").open(&name, &STANDARD.encode(&bytes)), None);
            prop_assert_eq!(seal("secret").open(&name, &STANDARD.encode(&bytes[..at])), None);
        }
    }

    #[test]
    fn text_that_was_never_sealed_is_not_opened() {
        for text in ["", "AAAA", "-----BEGIN PRIVATE KEY-----\nMIGH\n-----END PRIVATE KEY-----\n"] {
            assert_eq!(seal("secret").open("name", text), None);
        }
    }
}
