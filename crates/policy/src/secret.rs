//! Secrets: tokens and API keys that must not be printed.

use std::fmt;

/// A secret text. Comparable, exposed only on request, never printed by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Creates a secret of `text`.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the secret text, for its legitimate recipient.
    pub fn expose_secret(&self) -> &str {
        &self.0
    }

    /// Returns the `Authorization` field with this bearer token; `None` if the secret is not a valid field value.
    pub fn authorization(&self) -> Option<http::HeaderValue> {
        let mut field = http::HeaderValue::try_from(format!("Bearer {}", self.0)).ok()?;
        field.set_sensitive(true);
        Some(field)
    }

    /// Returns true if `candidate` equals the secret. Takes the same time for every guess of that length.
    pub fn matches(&self, candidate: &[u8]) -> bool {
        let difference =
            self.0.bytes().zip(candidate).fold(0, |difference, (expected, actual)| difference | (expected ^ actual));
        self.0.len() == candidate.len() && std::hint::black_box(difference) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_secret_itself_matches() {
        let secret = Secret::new("sesame".into());
        for (candidate, is_match) in
            [("sesame", true), ("sesamE", false), ("Sesame", false), ("sesam", false), ("sesame ", false), ("", false)]
        {
            assert_eq!(secret.matches(candidate.as_bytes()), is_match, "{candidate}");
        }
        assert!(!Secret::new("aa".into()).matches(b"bb"), "equal differences do not cancel out");
    }

    #[test]
    fn secret_is_exposed_only_on_request() {
        let secret = Secret::new("sesame".into());
        assert_eq!((secret.expose_secret(), format!("{secret:?}").as_str()), ("sesame", "Secret"));
        let field = secret.authorization().expect("a valid field");
        assert_eq!((field.as_bytes(), field.is_sensitive()), (&b"Bearer sesame"[..], true));
        assert_eq!(Secret::new("a\nb".into()).authorization(), None);
    }
}
