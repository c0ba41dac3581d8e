//! Entries of the log field `evidence`: the words that the writer and the readers share.

use super::json;
use super::record::NameResolver;
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
            Evidence::AddressList(list) => (Self::AddressList, Some(names.list(list))),
            Evidence::ApiKey => (Self::ApiKey, None),
            Evidence::Certificate => (Self::Certificate, None),
        }
    }
}

/// Appends the content of the JSON string of an entry, such as `user_agent_match:GPTBot`.
pub(super) fn write(out: &mut Vec<u8>, evidence: Evidence, names: &dyn NameResolver) {
    let (word, name) = EvidenceWord::of(evidence, names);
    json::name(out, word.name());
    if let Some(name) = name {
        out.push(b':');
        json::content(out, name.as_bytes());
    }
}
