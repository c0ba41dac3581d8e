//! Algorithms of signatures (RFC 9421 section 3.3) with a published key.

/// An algorithm that is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// EdDSA with curve edwards25519.
    Ed25519,
    /// ECDSA with curve P-256 and SHA-256.
    EcdsaP256Sha256,
    /// ECDSA with curve P-384 and SHA-384.
    EcdsaP384Sha384,
    /// RSASSA-PSS with SHA-512.
    RsaPssSha512,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    RsaV15Sha256,
}

impl Algorithm {
    const ALL: [Self; 5] =
        [Self::Ed25519, Self::EcdsaP256Sha256, Self::EcdsaP384Sha384, Self::RsaPssSha512, Self::RsaV15Sha256];

    /// Returns the algorithm of a registered name, as in the parameter `alg` of a signature.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.names()[0] == name)
    }

    /// Returns the algorithm of the member `alg` of a key, which has a registered name or one of JSON Web Algorithms.
    pub(super) fn from_key_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.names().contains(&name))
    }

    /// Returns the registered name, and those in keys.
    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Ed25519 => &["ed25519", "EdDSA", "Ed25519"],
            Self::EcdsaP256Sha256 => &["ecdsa-p256-sha256", "ES256"],
            Self::EcdsaP384Sha384 => &["ecdsa-p384-sha384", "ES384"],
            Self::RsaPssSha512 => &["rsa-pss-sha512", "PS512"],
            Self::RsaV15Sha256 => &["rsa-v1_5-sha256", "RS256"],
        }
    }
}
