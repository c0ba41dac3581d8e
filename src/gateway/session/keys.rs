//! The signature of session cookies: HMAC-SHA256 (RFC 2104) with a key for each day, derived from a secret that gateways share.

use arc_swap::ArcSwap;
use aws_lc_rs::{constant_time, hmac};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::Timestamp;
use tidegate_policy::hash::fnv1a;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::session::Session;

/// Secret from which the keys are derived.
pub type SessionSecret = [u8; 32];

/// Keys that sign session cookies and hash credentials.
pub(in crate::gateway) struct SessionKeys {
    secret: ArcSwap<SessionSecret>,
    credential_key: ArcSwap<hmac::Key>,
}

/// Values of session cookies that came with a request: another host of the domain, or another network of the client, may have
/// left one besides the valid one.
pub(in crate::gateway) type SessionCookies = SmallVec<[Box<[u8]>; 1]>;

/// Content of a session cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct SessionToken {
    /// Time of issue, in seconds since 1970.
    pub(super) issued_s: u32,
    /// Random number that distinguishes sessions.
    id: [u8; 8],
    /// True once a visit of a person was seen with the session.
    pub(super) is_known: bool,
}

/// Client to which a cookie is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::gateway) struct Bearer {
    /// Network of the client: a /24, or a /48 of IPv6.
    network: u64,
    /// Hash of the user agent, the same on all gateways.
    user_agent: u64,
}

/// Length of a token's content, of the part of the HMAC that is sent, and of both as text.
const CONTENT_LEN: usize = 13;
const SIGNATURE_LEN: usize = 16;
const TEXT_LEN: usize = ((CONTENT_LEN + SIGNATURE_LEN) * 4).div_ceil(3);

/// Time by which the clocks of gateways may differ, in seconds.
const MAX_CLOCK_SKEW_S: u32 = 60;

/// Names the key of credentials among those that are derived from the secret.
const CREDENTIALS: &[u8] = b"credentials";

const DAY_S: u32 = 24 * 3600;

/// Time for which a browser that was given a cookie is not asked again to come back with it.
const JUST_ISSUED: Duration = Duration::from_secs(60);

impl SessionKeys {
    pub(in crate::gateway) fn new(secret: SessionSecret) -> Self {
        Self { secret: ArcSwap::from_pointee(secret), credential_key: ArcSwap::from_pointee(credential_key(&secret)) }
    }

    /// Returns the secret.
    pub(in crate::gateway) fn secret(&self) -> SessionSecret {
        **self.secret.load()
    }

    /// Signs and verifies with another secret from now on.
    pub(in crate::gateway) fn replace(&self, secret: SessionSecret) {
        self.secret.store(Arc::new(secret));
        self.credential_key.store(Arc::new(credential_key(&secret)));
    }

    /// Returns the hash of a credential. It is keyed, because readers of the log may try credentials, and the same as long as the
    /// secret is, because usage by credential outlives the process.
    pub(in crate::gateway) fn credential_hash(&self, credential: &[u8]) -> u64 {
        let hash = hmac::sign(&self.credential_key.load(), credential);
        u64::from_be_bytes(std::array::from_fn(|index| hash.as_ref()[index]))
    }

    /// Returns a new token; `None` if the system has no random numbers.
    pub(super) fn issue(now: Timestamp) -> Option<SessionToken> {
        let mut id = [0; 8];
        getrandom::fill(&mut id).ok()?;
        Some(SessionToken { issued_s: u32::try_from(now.seconds()).ok()?, id, is_known: false })
    }

    /// Returns the value of the cookie for `token`, bound to `bearer`.
    pub(super) fn sign(&self, token: SessionToken, bearer: Bearer) -> String {
        let mut bytes = [0; CONTENT_LEN + SIGNATURE_LEN];
        let content = token.to_bytes();
        bytes[..CONTENT_LEN].copy_from_slice(&content);
        bytes[CONTENT_LEN..].copy_from_slice(&self.signature(&content, token.issued_s, bearer));
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Returns the token of a cookie with this value; `None` if it is not signed for `bearer`, or older than `lifetime`.
    pub(in crate::gateway) fn verify(
        &self,
        value: &[u8],
        bearer: Bearer,
        lifetime: Duration,
        now: Timestamp,
    ) -> Option<SessionToken> {
        if value.len() != TEXT_LEN {
            return None;
        }
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(value).ok()?;
        let (content, signature) = bytes.split_first_chunk::<CONTENT_LEN>()?;
        let token = SessionToken::from_bytes(content)?;
        let now_s = u32::try_from(now.seconds()).ok()?;
        let is_current = token.issued_s <= now_s.saturating_add(MAX_CLOCK_SKEW_S)
            && u64::from(now_s.saturating_sub(token.issued_s)) < lifetime.as_secs();
        let expected = self.signature(content, token.issued_s, bearer);
        let is_signed = constant_time::verify_slices_are_equal(&expected, signature).is_ok();
        (is_current && is_signed).then_some(token)
    }

    fn signature(&self, content: &[u8; CONTENT_LEN], issued_s: u32, bearer: Bearer) -> [u8; SIGNATURE_LEN] {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &**self.secret.load());
        let day = hmac::sign(&secret, &(issued_s / DAY_S).to_be_bytes());
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, day.as_ref()));
        context.update(content);
        context.update(&bearer.network.to_be_bytes());
        context.update(&bearer.user_agent.to_be_bytes());
        let mut signature = [0; SIGNATURE_LEN];
        signature.copy_from_slice(&context.sign().as_ref()[..SIGNATURE_LEN]);
        signature
    }
}

impl Bearer {
    pub(in crate::gateway) fn new(client: ClientKey, user_agent: &[u8]) -> Self {
        Self { network: client.network(), user_agent: fnv1a(user_agent.iter().copied()) }
    }
}

impl SessionToken {
    /// Returns the session as rules match it.
    pub(in crate::gateway) fn session(self) -> Session {
        if self.is_known { Session::Known } else { Session::New }
    }

    /// Returns a part of the id: the same for all requests of the session, and never 0.
    pub(in crate::gateway) fn short_id(self) -> u32 {
        let [_, _, _, _, short @ ..] = self.id;
        u32::from_be_bytes(short).max(1)
    }

    /// Returns the token of the same session, issued anew.
    pub(super) fn renewed(self, is_known: bool, now: Timestamp) -> Option<Self> {
        let issued_s = u32::try_from(now.seconds()).ok()?;
        Some(Self { is_known, issued_s, ..self })
    }

    /// Returns the time since the token was issued.
    pub(super) fn age(self, now: Timestamp) -> Duration {
        now.saturating_duration_since(Timestamp::from_seconds(self.issued_s.into()))
    }

    /// Returns true if the time of issue in a cookie with this value is within a minute. The signature is not verified.
    pub(super) fn was_just_issued(value: &[u8], now: Timestamp) -> bool {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(value).unwrap_or_default();
        let token = bytes.first_chunk::<CONTENT_LEN>().and_then(Self::from_bytes);
        token.is_some_and(|token| token.age(now) < JUST_ISSUED)
    }

    fn to_bytes(self) -> [u8; CONTENT_LEN] {
        let mut bytes = [0; CONTENT_LEN];
        bytes[..4].copy_from_slice(&self.issued_s.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.id);
        bytes[12] = self.is_known.into();
        bytes
    }

    fn from_bytes(bytes: &[u8; CONTENT_LEN]) -> Option<Self> {
        let (issued, rest) = bytes.split_first_chunk::<4>()?;
        let (id, known) = rest.split_first_chunk::<8>()?;
        Some(Self { issued_s: u32::from_be_bytes(*issued), id: *id, is_known: *known == [1] })
    }
}

fn credential_key(secret: &SessionSecret) -> hmac::Key {
    let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), CREDENTIALS);
    hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOON: Timestamp = Timestamp::from_seconds(1_800_014_400);
    const LIFETIME: Duration = Duration::from_secs(24 * 3600);

    fn keys() -> SessionKeys {
        SessionKeys::new([7; 32])
    }

    #[test]
    fn a_cookie_holds_for_its_network_agent_and_lifetime_only() {
        let bearer = Bearer { network: 0x00c0_0002, user_agent: 5 };
        let token = SessionKeys::issue(NOON).expect("random numbers");
        let cookie = keys().sign(token, bearer);
        let found = |bearer, at| keys().verify(cookie.as_bytes(), bearer, LIFETIME, at);
        assert_eq!(cookie.len(), TEXT_LEN);
        assert_eq!(found(bearer, NOON), Some(token));
        assert_eq!(found(bearer, NOON + LIFETIME - Duration::from_secs(1)), Some(token));
        assert_eq!(found(bearer, NOON + LIFETIME), None, "expired");
        assert_eq!(found(bearer, Timestamp::from_seconds(1_800_014_400 - 61)), None, "not issued yet");
        assert_eq!(found(Bearer { network: 1, ..bearer }, NOON), None, "another network");
        assert_eq!(found(Bearer { user_agent: 6, ..bearer }, NOON), None, "another user agent");
        let known = keys().sign(token.renewed(true, NOON).expect("a time of this century"), bearer);
        let known = keys().verify(known.as_bytes(), bearer, LIFETIME, NOON).expect("a valid cookie");
        assert_eq!((known.session(), known.id), (Session::Known, token.id));
        let other = SessionKeys::new([8; 32]);
        assert_eq!(other.verify(cookie.as_bytes(), bearer, LIFETIME, NOON), None, "another secret");
    }

    proptest! {
        #[test]
        fn no_other_text_is_a_session(position in 0..TEXT_LEN, letter in "[A-Za-z0-9_-]", bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let bearer = Bearer { network: 5, user_agent: 0 };
            let cookie = keys().sign(SessionKeys::issue(NOON).expect("random numbers"), bearer);
            let mut changed = cookie.clone().into_bytes();
            changed[position] = letter.as_bytes()[0];
            let found = |value: &[u8]| keys().verify(value, bearer, LIFETIME, NOON);
            prop_assert!(changed == cookie.as_bytes() || found(&changed).is_none());
            prop_assert_eq!(found(&bytes), None);
        }
    }
}
