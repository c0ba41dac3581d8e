//! Parser of the three fields of a signed request. It does not verify anything.

use super::agent::AgentUrl;
use super::algorithm::Algorithm;
use super::message::{SignedMessage, canonical_member};
use super::outcome::{SignatureError, SignatureOutcome, UnverifiedReason};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sfv::{BareItem, Dictionary, InnerList, Item, ListEntry, Parser};
use std::time::Duration;
use tidegate_http1::{Fields, Name};
use tidegate_policy::Timestamp;

/// Tag of signatures that identify a bot. Signatures with other tags are ignored.
const TAG: &str = "web-bot-auth";

/// Maximum size of each field, in bytes. A signature over all allowed components is shorter.
const MAX_FIELD_BYTES: usize = 4096;
/// Maximum number of signatures per request.
pub(super) const MAX_SIGNATURES: usize = 4;
/// Maximum number of components that a signature covers.
const MAX_COMPONENTS: usize = 16;

/// Maximum time by which a signer's clock may be ahead, in seconds.
const MAX_CLOCK_SKEW: i64 = 60;

/// Parsed fields of a signed request.
pub(super) struct SignatureFields {
    input: Dictionary,
    signatures: Dictionary,
    agents: AgentFields,
}

/// Value of `Signature-Agent`.
enum AgentFields {
    /// Older form: one agent for all signatures.
    Single(String),
    /// Agents by label.
    ByLabel(Dictionary),
}

/// A signature in the name of an agent.
pub(super) struct SignatureClaim<'a> {
    label: &'a str,
    covered: &'a InnerList,
    signature: &'a [u8],
    agents: &'a AgentFields,
}

/// Parameters of a signature. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SignatureParams {
    pub(super) created: i64,
    pub(super) expires: i64,
    /// Thumbprint of the key.
    pub(super) key: Thumbprint,
    /// Named algorithm; `None` stands for that of the key.
    pub(super) algorithm: Option<Algorithm>,
    pub(super) nonce: Option<String>,
}

impl SignatureParams {
    /// Checks that the signature is valid at `now`, and that its lifetime does not exceed `max_lifetime`.
    pub(super) fn check(&self, max_lifetime: Duration, now: Timestamp) -> Result<(), SignatureError> {
        let now = i64::try_from(now.seconds()).unwrap_or(i64::MAX);
        let max_lifetime = i64::try_from(max_lifetime.as_secs()).unwrap_or(i64::MAX);
        if self.created > now.saturating_add(MAX_CLOCK_SKEW) {
            return Err(SignatureError::CreatedInFuture);
        }
        if self.expires <= now {
            return Err(SignatureError::Expired);
        }
        match self.expires.saturating_sub(self.created) > max_lifetime {
            true => Err(SignatureError::LifetimeTooLong),
            false => Ok(()),
        }
    }
}

/// SHA-256 thumbprint of a key (RFC 7638).
pub(super) type Thumbprint = [u8; 32];

impl SignatureFields {
    /// Parses the fields. Returns [`SignatureOutcome::Absent`] if there is no signature or no agent.
    pub(super) fn read(fields: &Fields) -> Result<Self, SignatureOutcome> {
        let [agent, input, signature] =
            [Name::SignatureAgent, Name::SignatureInput, Name::Signature].map(|name| join_field_lines(fields, name));
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

    /// Returns the signatures in the name of an agent.
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

/// Joins the lines of a field, up to [`MAX_FIELD_BYTES`]; `None` if there are none.
fn join_field_lines(fields: &Fields, name: Name) -> Result<Option<Vec<u8>>, SignatureOutcome> {
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
            Some(b'"') => one().map(Self::Single).ok_or_else(|| SignatureError::MalformedFields.into()),
            _ => Ok(Self::ByLabel(Parser::new(text).parse().map_err(|_| SignatureError::MalformedFields)?)),
        }
    }
}

impl SignatureClaim<'_> {
    /// Returns the agent that the signature covers. An agent that is not covered could have been added by a third
    /// party.
    pub(super) fn agent(&self) -> Result<AgentUrl, SignatureOutcome> {
        let url = match self.agents {
            AgentFields::Single(url) => {
                self.covered_agents().find(|key| key.is_none()).ok_or(SignatureError::AgentNotCovered)?;
                url.as_str()
            }
            AgentFields::ByLabel(members) => {
                let member = members.get(self.covered_label(members)?).ok_or(SignatureError::ComponentAbsent)?;
                let ListEntry::Item(member) = member else { return Err(SignatureError::MalformedFields.into()) };
                // Parameters of drafts before -01 named another way to the keys.
                if !member.params.is_empty() {
                    return Err(UnverifiedReason::AgentIgnored.into());
                }
                member.bare_item.as_string().ok_or(SignatureError::MalformedFields)?.as_str()
            }
        };
        AgentUrl::parse(url)
    }

    /// Returns the label of the covered member: that of the signature, or the only one.
    fn covered_label<'m>(&'m self, members: &'m Dictionary) -> Result<&'m str, SignatureOutcome> {
        let mut covered = self.covered_agents();
        if self.covered_agents().any(|key| key == Some(self.label)) {
            return Ok(self.label);
        }
        match (covered.next(), covered.next()) {
            (Some(Some(key)), None) => Ok(key),
            // The whole field is covered.
            (Some(None), None) if members.contains_key(self.label) => Ok(self.label),
            (Some(None), None) if members.len() == 1 => {
                members.keys().next().map(|key| key.as_str()).ok_or_else(|| SignatureError::ComponentAbsent.into())
            }
            _ => Err(SignatureError::AgentNotCovered.into()),
        }
    }

    /// Returns the covered members of `Signature-Agent`, by key; `None` stands for the whole field.
    fn covered_agents(&self) -> impl Iterator<Item = Option<&str>> {
        self.covered.items.iter().filter_map(|item| {
            let is_agent = item.bare_item.as_string().is_some_and(|name| name.as_str() == "signature-agent");
            is_agent.then(|| item.params.get("key").and_then(BareItem::as_string).map(|key| key.as_str()))
        })
    }

    /// Parses the parameters needed for verification; others are covered and ignored.
    pub(super) fn params(&self) -> Result<SignatureParams, SignatureOutcome> {
        let parameter = |name: &str| self.covered.params.get(name);
        let time = |name: &str| {
            parameter(name).and_then(BareItem::as_integer).map(i64::from).ok_or(SignatureError::MissingParams)
        };
        let text = |name: &str| parameter(name).and_then(BareItem::as_string).map(|text| text.as_str());
        let algorithm = match (parameter("alg"), text("alg")) {
            (None, _) => None,
            (Some(_), None) => return Err(SignatureError::MalformedFields.into()),
            (Some(_), Some("hmac-sha256")) => return Err(SignatureError::SymmetricAlgorithm.into()),
            (Some(_), Some(name)) => Some(Algorithm::from_name(name).ok_or(UnverifiedReason::UnsupportedAlgorithm)?),
        };
        let (created, expires) = (time("created")?, time("expires")?);
        let key = BASE64_URL_SAFE_NO_PAD.decode(text("keyid").ok_or(SignatureError::MissingParams)?);
        let key = key.ok().and_then(|key| key.try_into().ok()).ok_or(UnverifiedReason::KeyUnknown)?;
        if !self.covers("@authority") && !self.covers("@target-uri") {
            return Err(SignatureError::TargetNotCovered.into());
        }
        Ok(SignatureParams { created, expires, key, algorithm, nonce: text("nonce").map(str::to_owned) })
    }

    fn covers(&self, component: &str) -> bool {
        let is_match = |item: &Item| {
            item.params.is_empty() && item.bare_item.as_string().is_some_and(|name| name.as_str() == component)
        };
        self.covered.items.iter().any(is_match)
    }

    /// Returns the bytes of the signature.
    pub(super) fn signature(&self) -> &[u8] {
        self.signature
    }

    /// Builds the signature base (RFC 9421 section 2.5) for this message.
    pub(super) fn signature_base(&self, message: &SignedMessage<'_>) -> Result<Vec<u8>, SignatureOutcome> {
        if self.covered.items.len() > MAX_COMPONENTS {
            return Err(UnverifiedReason::TooLarge.into());
        }
        let mut base = Vec::with_capacity(512);
        let mut identifiers: Vec<String> = Vec::with_capacity(self.covered.items.len());
        for component in &self.covered.items {
            let identifier = canonical_member(&component.clone().into());
            if identifiers.contains(&identifier) {
                return Err(SignatureError::DuplicateComponent.into());
            }
            base.extend_from_slice(identifier.as_bytes());
            base.extend_from_slice(b": ");
            message.write(component, &mut base)?;
            base.push(b'\n');
            identifiers.push(identifier);
        }
        base.extend_from_slice(b"\"@signature-params\": ");
        base.extend_from_slice(canonical_member(&self.covered.clone().into()).as_bytes());
        Ok(base)
    }
}
