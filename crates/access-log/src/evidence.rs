//! Entries of the log field `evidence`: the words that the writer and the readers share.

use super::record::NameResolver;
use super::{json, number_text};
use tidegate_policy::bot_detection::{PagesBeyond, Signal};
use tidegate_policy::class::Evidence;

macro_rules! evidence_words {
    ($($word:ident $name:literal)*) => {
        /// First part of an entry, such as `user_agent_match` of `user_agent_match:GPTBot`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum EvidenceWord {
            $(#[doc = concat!("`", $name, "`.")] $word,)*
        }

        impl EvidenceWord {
            const ALL: &[Self] = &[$(Self::$word),*];

            const fn name(self) -> &'static str {
                match self { $(Self::$word => $name,)* }
            }
        }
    };
}

evidence_words! {
    UserAgentRule "user_agent_rule"
    NoUserAgent "no_user_agent"
    UserAgentNoMatch "user_agent_no_match"
    UserAgentMatch "user_agent_match"
    UserAgentHeuristic "user_agent_heuristic"
    AddressVerified "address_verified"
    AddressMismatch "address_mismatch"
    AddressPrivate "address_private"
    DnsVerified "dns_verified"
    DnsMismatch "dns_mismatch"
    SignatureValid "signature_valid"
    SignatureUnknown "signature_unknown"
    SignatureInvalid "signature_invalid"
    SignatureUnlisted "signature_unlisted"
    SignatureMalformed "signature_malformed"
    Behavior "behavior"
    BeyondPeople "beyond_people"
    AddressList "address_list"
    ApiKey "api_key"
    Certificate "certificate"
}

impl EvidenceWord {
    /// Splits an entry into its word and its name, which may be empty; `None` for a word of another version.
    pub fn parse(entry: &str) -> Option<(Self, &str)> {
        let (word, name) = entry.split_once(':').unwrap_or((entry, ""));
        Self::ALL.iter().find(|known| known.name() == word).map(|known| (*known, name))
    }

    /// Returns an entry about `client` as a sentence. An entry of another version stays as it is.
    pub fn describe(entry: &str, client: &str) -> String {
        Self::parse(entry).map_or_else(|| entry.to_owned(), |(word, name)| word.sentence(name, client))
    }

    /// Returns the evidence about `client` as a sentence; `name` is that of the entry.
    pub fn sentence(self, name: &str, client: &str) -> String {
        let agent = if name.is_empty() { "an agent" } else { name };
        match self {
            Self::UserAgentRule => format!("the user agent contains {name:?}"),
            Self::NoUserAgent => "no user agent sent".into(),
            Self::UserAgentNoMatch => "the user agent matches no bot".into(),
            Self::UserAgentMatch => format!("the user agent matches the bot {name}"),
            Self::UserAgentHeuristic => "the user agent has the form of a program's".into(),
            Self::AddressVerified => format!("{client} is in the ranges that {name} publishes"),
            Self::AddressMismatch => {
                format!("claims to be {name}, but {client} is in none of the ranges that {name} publishes")
            }
            Self::AddressPrivate => format!(
                "claims to be {name}; {client} is a loopback, private, link-local or shared address, which neither \
                 verifies nor disproves the claim; behind a proxy, set clients.address_from and clients.trusted_proxies"
            ),
            Self::DnsVerified => format!("{client} resolves to a DNS name of {name}, which resolves back to it"),
            Self::DnsMismatch => format!("claims to be {name}, but {client} resolves to no DNS name of {name}"),
            Self::SignatureValid => format!("signed by {name}"),
            Self::SignatureUnknown => format!("signed in the name of {agent}; the signature cannot be verified"),
            Self::SignatureInvalid => format!("signed in the name of {agent}, but the signature does not verify"),
            Self::SignatureUnlisted => "signed by an agent without a known operator".into(),
            Self::SignatureMalformed => "the signature is malformed".into(),
            Self::Behavior => match Signal::from_name(name) {
                Some(signal) => format!("behaves like a bot: {}", signal.description()),
                None => format!("behaves like a bot: {name}"),
            },
            Self::BeyondPeople => match parse_beyond(name) {
                Some(PagesBeyond { pages, limit }) => format!(
                    "behaves like a bot: its session asks for {pages} costly pages in a day, and no more than {limit} are \
                     usual for people of the site"
                ),
                None => format!("behaves like a bot: {}", Signal::BeyondPeople.description()),
            },
            Self::AddressList => format!("{client} is on the address list {name}"),
            Self::ApiKey => "the request contains an API key of the class".into(),
            Self::Certificate => "the client's certificate has a name of the class".into(),
        }
    }

    /// Returns the word and the name of `evidence`, if it has one.
    fn of(evidence: Evidence, names: &dyn NameResolver) -> (Self, Option<&str>) {
        match evidence {
            Evidence::UserAgentRule(index) => (Self::UserAgentRule, Some(names.user_agent_rule(index))),
            Evidence::NoUserAgent => (Self::NoUserAgent, None),
            Evidence::UserAgentNoMatch => (Self::UserAgentNoMatch, None),
            Evidence::UserAgentMatch(bot) => (Self::UserAgentMatch, Some(names.bot(bot))),
            Evidence::UserAgentHeuristic => (Self::UserAgentHeuristic, None),
            Evidence::AddressVerified(operator) => (Self::AddressVerified, Some(names.operator(operator))),
            Evidence::AddressMismatch(operator) => (Self::AddressMismatch, Some(names.operator(operator))),
            Evidence::AddressPrivate(operator) => (Self::AddressPrivate, Some(names.operator(operator))),
            Evidence::DnsVerified(operator) => (Self::DnsVerified, Some(names.operator(operator))),
            Evidence::DnsMismatch(operator) => (Self::DnsMismatch, Some(names.operator(operator))),
            Evidence::SignatureValid(operator) => (Self::SignatureValid, Some(names.operator(operator))),
            Evidence::SignatureUnknown(operator) => {
                (Self::SignatureUnknown, operator.map(|operator| names.operator(operator)))
            }
            Evidence::SignatureInvalid(operator) => {
                (Self::SignatureInvalid, operator.map(|operator| names.operator(operator)))
            }
            Evidence::SignatureUnlisted => (Self::SignatureUnlisted, None),
            Evidence::SignatureMalformed => (Self::SignatureMalformed, None),
            Evidence::Behavior(signal) => (Self::Behavior, Some(signal.name())),
            // Its name are figures.
            Evidence::BeyondPeople(_) => (Self::BeyondPeople, None),
            Evidence::AddressList(list) => (Self::AddressList, Some(names.list(list))),
            Evidence::ApiKey => (Self::ApiKey, None),
            Evidence::Certificate => (Self::Certificate, None),
        }
    }
}

/// Returns the figures of a session: pages, a slash and the limit.
pub(super) fn parse_beyond(figures: &str) -> Option<PagesBeyond> {
    let (pages, limit) = figures.split_once('/')?;
    Some(PagesBeyond { pages: pages.parse().ok()?, limit: limit.parse().ok()? })
}

/// Appends the content of the JSON string of an entry, such as `user_agent_match:GPTBot`.
pub(super) fn write(out: &mut Vec<u8>, evidence: Evidence, names: &dyn NameResolver) {
    let (word, name) = EvidenceWord::of(evidence, names);
    json::name(out, word.name());
    if let Evidence::BeyondPeople(PagesBeyond { pages, limit }) = evidence {
        out.push(b':');
        number_text::write_u64(out, pages.into());
        out.push(b'/');
        number_text::write_u64(out, limit.into());
    }
    if let Some(name) = name {
        out.push(b':');
        json::content(out, name.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::EVIDENCE;

    #[test]
    fn every_documented_entry_is_described_in_words() {
        for entry in EVIDENCE {
            let sentence = EvidenceWord::describe(entry.value, "192.0.2.1");
            assert!(sentence.contains(' ') && sentence != entry.value, "{}: {sentence}", entry.value);
        }
        for signal in Signal::ALL {
            let sentence = EvidenceWord::describe(&format!("behavior:{}", signal.name()), "192.0.2.1");
            assert!(sentence.starts_with("behaves like a bot: ") && sentence.ends_with(signal.description()));
        }
    }

    #[test]
    fn entry_of_another_version_stays_as_it_is() {
        assert_eq!(EvidenceWord::describe("moon_phase:full", "192.0.2.1"), "moon_phase:full");
    }
}
