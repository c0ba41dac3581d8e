//! Session tickets (RFC 5077, RFC 8446 section 4.6.1): the state of a session, encrypted and kept by the client.
//!
//! Keys are replaced every six hours; tickets of the previous key are accepted. A key is used on all threads and listeners.
//! The keys are plain values, so that a successor of this process can take them over.

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use rustls::server::ProducesTickets;
use std::fmt;
use std::sync::Arc;

/// Time for which a key encrypts new tickets, in seconds. A stolen key reveals the sessions of twice this time.
const KEY_LIFETIME: u64 = 6 * 3600;

const NAME_LEN: usize = 16;
const NONCE_LEN: usize = 12;
/// Maximum size of a ticket. Larger ones, with many client certificates, are not worth their memory.
const MAX_TICKET: usize = 16 * 1024;

/// Key of session tickets.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketKey {
    /// Public name, by which a ticket finds its key.
    pub name: [u8; NAME_LEN],
    /// Secret AES-256 key.
    pub secret: [u8; 32],
}

/// The keys in use, as a successor takes them over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketKeySet {
    /// Key that encrypts new tickets.
    pub current: TicketKey,
    /// Key whose tickets are accepted.
    pub previous: Option<TicketKey>,
    /// Time from which the current key was used, in seconds since 1970.
    pub current_since: u64,
}

/// Keys of session tickets, shared by all threads and listeners.
#[derive(Debug)]
pub struct TicketKeys(ArcSwap<ActiveKeys>);

#[derive(Debug)]
struct ActiveKeys {
    set: TicketKeySet,
    current: RandomizedNonceKey,
    previous: Option<RandomizedNonceKey>,
}

impl TicketKey {
    fn generate() -> Self {
        let mut key = Self { name: [0; NAME_LEN], secret: [0; 32] };
        getrandom::fill(&mut key.name).expect("the system has randomness");
        getrandom::fill(&mut key.secret).expect("the system has randomness");
        key
    }

    fn cipher(&self) -> RandomizedNonceKey {
        RandomizedNonceKey::new(&AES_256_GCM, &self.secret).expect("the length of the key fits the algorithm")
    }
}

/// Hides the secret.
impl fmt::Debug for TicketKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TicketKey").field("name", &self.name).finish_non_exhaustive()
    }
}

impl From<TicketKeySet> for ActiveKeys {
    fn from(set: TicketKeySet) -> Self {
        Self { current: set.current.cipher(), previous: set.previous.as_ref().map(TicketKey::cipher), set }
    }
}

impl TicketKeys {
    /// Generates keys. `now` is in seconds since 1970, here and below.
    pub fn generate(now: u64) -> Arc<Self> {
        Self::import(TicketKeySet { current: TicketKey::generate(), previous: None, current_since: now })
    }

    /// Takes over the keys of another process.
    pub fn import(set: TicketKeySet) -> Arc<Self> {
        Arc::new(Self(ArcSwap::from_pointee(set.into())))
    }

    /// Returns the keys, for a successor of this process.
    pub fn export(&self) -> TicketKeySet {
        self.0.load().set.clone()
    }

    /// Replaces the current key if its time is over.
    pub fn rotate_if_due(&self, now: u64) {
        let active = self.0.load();
        if now.saturating_sub(active.set.current_since) >= KEY_LIFETIME {
            let previous = Some(active.set.current.clone());
            self.0
                .store(Arc::new(TicketKeySet { current: TicketKey::generate(), previous, current_since: now }.into()));
        }
    }
}

/// Encrypts and decrypts the tickets of one listener.
#[derive(Debug)]
pub(super) struct Ticketer {
    pub(super) keys: Arc<TicketKeys>,
    /// Authenticated with each ticket. A ticket of a listener is void on another one that trusts other client certificates.
    pub(super) scope: Vec<u8>,
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    /// Returns the time for which every ticket is accepted: its key is at least the previous one.
    fn lifetime(&self) -> u32 {
        KEY_LIFETIME as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        if plain.len() > MAX_TICKET {
            return None;
        }
        let active = self.keys.0.load();
        let mut sealed = plain.to_vec();
        let nonce = active.current.seal_in_place_append_tag(Aad::from(&self.scope), &mut sealed).ok()?;
        Some([&active.set.current.name[..], nonce.as_ref(), &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME_LEN)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        if sealed.len() > 2 * MAX_TICKET {
            return None;
        }
        let active = self.keys.0.load();
        let cipher = match &active.set {
            set if set.current.name == name => &active.current,
            set if set.previous.as_ref().is_some_and(|key| key.name == name) => active.previous.as_ref()?,
            _ => return None,
        };
        let (nonce, mut sealed) = (Nonce::try_assume_unique_for_key(nonce).ok()?, sealed.to_vec());
        let length = cipher.open_in_place(nonce, Aad::from(&self.scope), &mut sealed).ok()?.len();
        sealed.truncate(length);
        Some(sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticketer(keys: &Arc<TicketKeys>, scope: &[u8]) -> Ticketer {
        Ticketer { keys: Arc::clone(keys), scope: scope.to_vec() }
    }

    #[test]
    fn tickets_of_the_current_and_the_previous_key_are_accepted() {
        let keys = TicketKeys::generate(0);
        let ticketer = ticketer(&keys, b"");
        let ticket = ticketer.encrypt(b"session").expect("a ticket");
        for (now, is_accepted) in
            [(KEY_LIFETIME - 1, true), (KEY_LIFETIME, true), (2 * KEY_LIFETIME - 1, true), (2 * KEY_LIFETIME, false)]
        {
            keys.rotate_if_due(now);
            assert_eq!(ticketer.decrypt(&ticket).as_deref() == Some(b"session"), is_accepted, "{now}");
        }
    }

    #[test]
    fn successor_accepts_tickets_of_its_predecessor() {
        let keys = TicketKeys::generate(0);
        let ticket = ticketer(&keys, b"").encrypt(b"session").expect("a ticket");
        let successor = TicketKeys::import(keys.export());
        assert_eq!(ticketer(&successor, b"").decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(ticketer(&TicketKeys::generate(0), b"").decrypt(&ticket), None);
    }

    #[test]
    fn altered_and_foreign_tickets_are_void() {
        let keys = TicketKeys::generate(0);
        let own = ticketer(&keys, b"");
        let ticket = own.encrypt(b"session").expect("a ticket");
        assert_eq!(ticketer(&keys, b"other authority").decrypt(&ticket), None);
        for index in 0..ticket.len() {
            let mut altered = ticket.clone();
            altered[index] ^= 1;
            assert_eq!(own.decrypt(&altered), None, "{index}");
            assert_eq!(own.decrypt(&ticket[..index]), None, "{index}");
        }
        assert_eq!(own.encrypt(&vec![0; MAX_TICKET + 1]), None);
    }

    #[test]
    fn secrets_are_not_shown() {
        let keys = TicketKeys::import(TicketKeySet {
            current: TicketKey { name: [1; 16], secret: [77; 32] },
            previous: None,
            current_since: 0,
        });
        assert!(!format!("{:?} {:?}", keys.export(), keys).contains("77"));
    }
}
