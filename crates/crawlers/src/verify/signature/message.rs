//! A request as the input of a signature (RFC 9421).

use super::outcome::{SignatureError, SignatureOutcome, UnverifiedReason};
use aws_lc_rs::digest::{SHA256, SHA512, digest};
use sfv::{BareItem, Dictionary, Item, ListEntry, Parser};
use std::io::Write as _;
use tidegate_http1::RequestHead;

/// Parts of a request that a signature may cover.
#[derive(Clone, Copy)]
pub struct SignedMessage<'a> {
    /// Request line and fields, as received.
    pub head: &'a RequestHead,
    /// Host and port, as received.
    pub authority: &'a [u8],
    /// True if the client used HTTPS.
    pub secure: bool,
    /// True if the request has a body.
    pub has_body: bool,
}

impl SignedMessage<'_> {
    /// Appends the value of the component that `identifier` names (RFC 9421 section 2) to `base`.
    pub(super) fn write(&self, identifier: &Item, base: &mut Vec<u8>) -> Result<(), SignatureOutcome> {
        let name = identifier.bare_item.as_string().ok_or(SignatureError::MalformedFields)?.as_str();
        match (name, identifier.params.len()) {
            ("@query-param", 1) => self.query_parameter(identifier, base),
            ("signature-agent", 1) => self.member(name, identifier, base),
            (_, 0) if name.starts_with('@') => self.derived(name, base),
            ("content-digest", 0) => {
                self.check_digest()?;
                self.field(name, base)
            }
            (_, 0) => self.field(name, base),
            _ => Err(UnverifiedReason::UnsupportedComponent.into()),
        }
    }

    fn derived(&self, name: &str, base: &mut Vec<u8>) -> Result<(), SignatureOutcome> {
        let target = &self.head.target;
        match name {
            "@method" => base.extend_from_slice(self.head.method.as_str().as_bytes()),
            "@authority" => self.authority(base)?,
            "@path" => base.extend_from_slice(path(target).as_bytes()),
            "@query" => {
                base.push(b'?');
                base.extend_from_slice(target.query().unwrap_or_default().as_bytes());
            }
            "@target-uri" => {
                base.extend_from_slice(if self.secure { b"https://" } else { b"http://" });
                self.authority(base)?;
                base.extend_from_slice(path(target).as_bytes());
                if let Some(query) = target.query() {
                    base.push(b'?');
                    base.extend_from_slice(query.as_bytes());
                }
            }
            _ => return Err(UnverifiedReason::UnsupportedComponent.into()),
        }
        Ok(())
    }

    /// Appends the authority in lower case, without the default port.
    fn authority(&self, base: &mut Vec<u8>) -> Result<(), SignatureOutcome> {
        let default_port: &[u8] = if self.secure { b":443" } else { b":80" };
        let authority = self.authority.strip_suffix(default_port).unwrap_or(self.authority);
        if authority.is_empty() || !authority.is_ascii() {
            return Err(SignatureError::ComponentAbsent.into());
        }
        base.extend(authority.iter().map(u8::to_ascii_lowercase));
        Ok(())
    }

    /// Appends the joined lines of a field.
    fn field(&self, name: &str, base: &mut Vec<u8>) -> Result<(), SignatureOutcome> {
        let before = base.len();
        for (index, line) in self.head.fields.get_all_by_text(name).enumerate() {
            if !line.is_ascii() {
                return Err(UnverifiedReason::UnsupportedComponent.into());
            }
            if index > 0 {
                base.extend_from_slice(b", ");
            }
            base.extend_from_slice(line);
        }
        match base.len() > before || self.head.fields.get_all_by_text(name).next().is_some() {
            true => Ok(()),
            false => Err(SignatureError::ComponentAbsent.into()),
        }
    }

    /// Appends one member of a dictionary field.
    fn member(&self, name: &str, identifier: &Item, base: &mut Vec<u8>) -> Result<(), SignatureOutcome> {
        let key = identifier.params.get("key").ok_or(UnverifiedReason::UnsupportedComponent)?;
        let key = key.as_string().ok_or(SignatureError::MalformedFields)?.as_str();
        let mut text = Vec::new();
        self.field(name, &mut text)?;
        let members: Dictionary = Parser::new(&text).parse().map_err(|_| SignatureError::MalformedFields)?;
        let member = members.get(key).ok_or(SignatureError::ComponentAbsent)?;
        base.extend_from_slice(canonical_member(member).as_bytes());
        Ok(())
    }

    /// Appends the query parameter of that name; an error if there are several.
    fn query_parameter(&self, identifier: &Item, base: &mut Vec<u8>) -> Result<(), SignatureOutcome> {
        let name = identifier.params.get("name").ok_or(UnverifiedReason::UnsupportedComponent)?;
        let name = name.as_string().ok_or(SignatureError::MalformedFields)?.as_str();
        let query = self.head.target.query().unwrap_or_default();
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let mut matching = pairs.filter(|(key, _)| canonical_query_part(key).as_slice() == name.as_bytes());
        match (matching.next(), matching.next()) {
            (Some((_, value)), None) => base.extend_from_slice(&canonical_query_part(value)),
            _ => return Err(SignatureError::ComponentAbsent.into()),
        }
        Ok(())
    }

    /// Checks `Content-Digest`. The signature is verified before the body is received, so only the digest of an empty
    /// body can be checked.
    fn check_digest(&self) -> Result<(), SignatureOutcome> {
        let mut text = Vec::new();
        self.field("content-digest", &mut text)?;
        let digests: Dictionary = Parser::new(&text).parse().map_err(|_| SignatureError::MalformedFields)?;
        let is_empty_digest = |(name, algorithm)| {
            let value = match digests.get(name) {
                Some(ListEntry::Item(Item { bare_item: BareItem::ByteSequence(value), .. })) => value,
                _ => return false,
            };
            digest(algorithm, b"").as_ref() == value
        };
        let matches_empty = [("sha-256", &SHA256), ("sha-512", &SHA512)].into_iter().any(is_empty_digest);
        match (matches_empty, self.has_body) {
            (true, false) => Ok(()),
            (true, true) | (false, false) => Err(SignatureError::DigestMismatch.into()),
            (false, true) => Err(UnverifiedReason::UnsupportedComponent.into()),
        }
    }
}

fn path(target: &http::Uri) -> &str {
    match target.path() {
        "" => "/",
        path => path,
    }
}

/// Returns a member in the canonical form of structured fields.
pub(super) fn canonical_member(member: &ListEntry) -> String {
    let mut list = sfv::ListSerializer::new();
    list.members([member]);
    list.finish().unwrap_or_default()
}

/// Decodes a part of a query as form data and encodes it again in canonical form (RFC 9421 section 2.2.8).
fn canonical_query_part(part: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, after @ ..] = rest {
        let (byte, after) = match (first, after) {
            (b'+', _) => (b' ', after),
            (b'%', [high, low, after @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (nibble(*high) << 4 | nibble(*low), after)
            }
            (&plain, _) => (plain, after),
        };
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'*' | b'-' | b'.' | b'_' => out.push(byte),
            other => write!(out, "%{other:02X}").expect("writing to a vector cannot fail"),
        }
        rest = after;
    }
    out
}

fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        letter => (letter.to_ascii_lowercase() - b'a') + 10,
    }
}
