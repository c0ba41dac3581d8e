//! What the three fields of a signed request say, before anybody knows whether it is true.

use super::agent::AgentUrl;
use super::message::{SignedMessage, canonical_member};
use super::outcome::{SignatureError, SignatureOutcome, UnverifiedReason};
use crate::http1::{Fields, Name};
use crate::policy::Timestamp;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sfv::{BareItem, Dictionary, InnerList, Item, ListEntry, Parser};
use std::time::Duration;

/// The tag of signatures that say who a bot is; others are between other parties.
const TAG: &str = "web-bot-auth";

/// The largest of each field that is read, in bytes: a signature of all that it may cover is shorter.
const MAX_FIELD_BYTES: usize = 4096;
/// Signatures of one request that are looked at.
pub(super) const MAX_SIGNATURES: usize = 4;
/// What one of them may cover.
const MAX_COMPONENTS: usize = 16;

/// How far a signer's clock may be ahead of ours.
const MAX_CLOCK_SKEW: i64 = 60;

/// The fields of a signed request, read.
pub(super) struct SignatureFields {
    input: Dictionary,
    signatures: Dictionary,
    agents: AgentFields,
}

/// Who is said to have signed.
enum AgentFields {
    /// In the form before there were several: one for all.
    One(String),
    /// By label.
    Labelled(Dictionary),
}

/// One signature that is said to be an agent's.
pub(super) struct SignatureClaim<'a> {
    label: &'a str,
    covered: &'a InnerList,
    signature: &'a [u8],
    agents: &'a AgentFields,
}

/// When a signature holds, in seconds of the epoch, and by which key it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SignatureParams {
    pub(super) created: i64,
    pub(super) expires: i64,
    /// The thumbprint of the key.
    pub(super) key: Thumbprint,
    pub(super) nonce: Option<String>,
}

impl SignatureParams {
    /// Whether it holds now, and not for longer than is believed.
    pub(super) fn check(&self, longest: Duration, now: Timestamp) -> Result<(), SignatureError> {
        let now = i64::try_from(now.seconds()).unwrap_or(i64::MAX);
        let longest = i64::try_from(longest.as_secs()).unwrap_or(i64::MAX);
        if self.created > now.saturating_add(MAX_CLOCK_SKEW) {
            return Err(SignatureError::NotYet);
        }
        if self.expires <= now {
            return Err(SignatureError::Expired);
        }
        match self.expires.saturating_sub(self.created) > longest {
            true => Err(SignatureError::LifetimeTooLong),
            false => Ok(()),
        }
    }
}

/// The SHA-256 of a key as RFC 7638 writes it.
pub(super) type Thumbprint = [u8; 32];

impl SignatureFields {
    /// Reads the fields; [`SignatureOutcome::Absent`] where there is no signature, or none that says whose it is.
    pub(super) fn read(fields: &Fields) -> Result<Self, SignatureOutcome> {
        let [agent, input, signature] =
            [Name::SignatureAgent, Name::SignatureInput, Name::Signature].map(|name| joined(fields, name));
        let (Some(agent), Some(input), Some(signature)) = (agent?, input?, signature?) else {
            return Err(SignatureOutcome::Absent);
        };
        let dictionary =
            |text: &[u8]| Parser::new(text).parse::<Dictionary>().map_err(|_| SignatureError::MalformedFields);
        let (input, signatures) = (dictionary(&input)?, dictionary(&signature)?);
        if input.len() > MAX_SIGNATURES || signatures.len() > MAX_SIGNATURES {
            return Err(UnverifiedReason::TooLarge.into());
        }
        Ok(Self { input, signatures, agents: AgentFields::read(&agent)? })
    }

    /// The signatures that are said to be an agent's.
    pub(super) fn agent_signatures(&self) -> impl Iterator<Item = Result<SignatureClaim<'_>, SignatureOutcome>> {
        self.input.iter().filter_map(|(label, covered)| {
            let ListEntry::InnerList(covered) = covered else {
                return Some(Err(SignatureError::MalformedFields.into()));
            };
            let tag = covered.params.get("tag").and_then(BareItem::as_string);
            if tag.is_none_or(|tag| tag.as_str() != TAG) {
                return None;
            }
            let signature = match self.signatures.get(label) {
                Some(ListEntry::Item(Item { bare_item: BareItem::ByteSequence(signature), .. })) => signature,
                _ => return Some(Err(SignatureError::MalformedFields.into())),
            };
            Some(Ok(SignatureClaim { label: label.as_str(), covered, signature, agents: &self.agents }))
        })
    }
}

/// The lines of a field in one, within bounds; `None` where there is none.
fn joined(fields: &Fields, name: Name) -> Result<Option<Vec<u8>>, SignatureOutcome> {
    let mut all: Option<Vec<u8>> = None;
    for line in fields.all(name) {
        let text = all.get_or_insert_default();
        if !text.is_empty() {
            text.extend_from_slice(b", ");
        }
        text.extend_from_slice(line);
        if text.len() > MAX_FIELD_BYTES {
            return Err(UnverifiedReason::TooLarge.into());
        }
    }
    Ok(all)
}

impl AgentFields {
    fn read(text: &[u8]) -> Result<Self, SignatureOutcome> {
        let one = || Parser::new(text).parse::<Item>().ok()?.bare_item.as_string().map(|url| url.as_str().to_owned());
        match text.first() {
            Some(b'"') => one().map(Self::One).ok_or_else(|| SignatureError::MalformedFields.into()),
            _ => Ok(Self::Labelled(Parser::new(text).parse().map_err(|_| SignatureError::MalformedFields)?)),
        }
    }
}

impl SignatureClaim<'_> {
    /// Who is said to have signed: the one that this signature covers, so that nobody else can have put it there.
    pub(super) fn agent(&self) -> Result<AgentUrl, SignatureOutcome> {
        let url = match self.agents {
            AgentFields::One(url) => {
                self.covered_agents().find(|key| key.is_none()).ok_or(SignatureError::AgentNotCovered)?;
                url.as_str()
            }
            AgentFields::Labelled(members) => {
                let member = members.get(self.member(members)?).ok_or(SignatureError::ComponentAbsent)?;
                let ListEntry::Item(member) = member else { return Err(SignatureError::MalformedFields.into()) };
                member.bare_item.as_string().ok_or(SignatureError::MalformedFields)?.as_str()
            }
        };
        AgentUrl::parse(url)
    }

    /// The label of the member that is covered: the signature's own, or the only one.
    fn member<'m>(&'m self, members: &'m Dictionary) -> Result<&'m str, SignatureOutcome> {
        let mut covered = self.covered_agents();
        if self.covered_agents().any(|key| key == Some(self.label)) {
            return Ok(self.label);
        }
        match (covered.next(), covered.next()) {
            (Some(Some(key)), None) => Ok(key),
            // All of the field is covered.
            (Some(None), None) if members.contains_key(self.label) => Ok(self.label),
            (Some(None), None) if members.len() == 1 => {
                members.keys().next().map(|key| key.as_str()).ok_or_else(|| SignatureError::ComponentAbsent.into())
            }
            _ => Err(SignatureError::AgentNotCovered.into()),
        }
    }

    /// The members of Signature-Agent that are covered, by key; `None` is the field as a whole.
    fn covered_agents(&self) -> impl Iterator<Item = Option<&str>> {
        self.covered.items.iter().filter_map(|item| {
            let is_agent = item.bare_item.as_string().is_some_and(|name| name.as_str() == "signature-agent");
            is_agent.then(|| item.params.get("key").and_then(BareItem::as_string).map(|key| key.as_str()))
        })
    }

    /// Its parameters, as far as they are needed; the rest is covered and not looked at.
    pub(super) fn params(&self) -> Result<SignatureParams, SignatureOutcome> {
        let parameter = |name: &str| self.covered.params.get(name);
        let time = |name: &str| {
            parameter(name).and_then(BareItem::as_integer).map(i64::from).ok_or(SignatureError::MissingParams)
        };
        let text = |name: &str| parameter(name).and_then(BareItem::as_string).map(|text| text.as_str());
        if parameter("alg").is_some() && text("alg") != Some("ed25519") {
            return Err(SignatureError::Algorithm.into());
        }
        let (created, expires) = (time("created")?, time("expires")?);
        let key = BASE64_URL_SAFE_NO_PAD.decode(text("keyid").ok_or(SignatureError::MissingParams)?);
        let key = key.ok().and_then(|key| key.try_into().ok()).ok_or(UnverifiedReason::KeyUnknown)?;
        if !self.covers("@authority") && !self.covers("@target-uri") {
            return Err(SignatureError::TargetNotCovered.into());
        }
        Ok(SignatureParams { created, expires, key, nonce: text("nonce").map(str::to_owned) })
    }

    fn covers(&self, component: &str) -> bool {
        let is_it = |item: &Item| {
            item.params.is_empty() && item.bare_item.as_string().is_some_and(|name| name.as_str() == component)
        };
        self.covered.items.iter().any(is_it)
    }

    /// The bytes of the signature itself.
    pub(super) fn signature(&self) -> &[u8] {
        self.signature
    }

    /// What was signed (RFC 9421 section 2.5), if it was this message.
    pub(super) fn signature_base(&self, message: &SignedMessage<'_>) -> Result<Vec<u8>, SignatureOutcome> {
        if self.covered.items.len() > MAX_COMPONENTS {
            return Err(UnverifiedReason::TooLarge.into());
        }
        let mut base = Vec::with_capacity(512);
        let mut written_so_far: Vec<String> = Vec::with_capacity(self.covered.items.len());
        for component in &self.covered.items {
            let identifier = canonical_member(&component.clone().into());
            if written_so_far.contains(&identifier) {
                return Err(SignatureError::DuplicateComponent.into());
            }
            base.extend_from_slice(identifier.as_bytes());
            base.extend_from_slice(b": ");
            message.write(component, &mut base)?;
            base.push(b'\n');
            written_so_far.push(identifier);
        }
        base.extend_from_slice(b"\"@signature-params\": ");
        base.extend_from_slice(canonical_member(&self.covered.clone().into()).as_bytes());
        Ok(base)
    }
}
