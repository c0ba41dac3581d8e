//! Hypothetical requests, given by their attributes instead of a log line.

use super::environment::Environment;
use super::input::{ClientAttributes, ExplainInput, RequestAttributes};
use http::{HeaderMap, Method, Uri, header};
use std::net::IpAddr;
use tidegate_policy::identity::{CredentialSource, cookie};
use tidegate_policy::network::canonical;
use tidegate_policy::route::normalize;
use tidegate_policy::{Proof, Signature, Timestamp, Units};

/// A hypothetical request, and the quota usage at its arrival.
#[derive(Clone, Debug)]
pub struct HypotheticalRequest {
    /// Address of the connection's peer.
    pub peer: IpAddr,
    /// Request method.
    pub method: Method,
    /// Request target: a URL, or only a path.
    pub url: Uri,
    /// Request headers, including `User-Agent`.
    pub headers: HeaderMap,
    /// Time of arrival.
    pub at: Timestamp,
    /// Used units by quota name; quotas that are not listed are unused.
    pub used: Vec<(String, Units)>,
}

/// Error for a path with an encoded NUL, which the gateway rejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path contains an encoded NUL, which the gateway rejects; remove %00")]
pub struct InvalidPathError;

impl HypotheticalRequest {
    /// Converts the request to the input of an explanation.
    pub fn into_input(self, environment: Environment<'_>) -> Result<ExplainInput<'_>, InvalidPathError> {
        let path = normalize(self.url.path()).map_err(|_| InvalidPathError)?.into_owned();
        let user_agent =
            self.headers.get(header::USER_AGENT).map(|value| value.as_bytes().to_vec()).unwrap_or_default();
        let request = RequestAttributes {
            method: self.method,
            host: self.url.host().unwrap_or_default().to_ascii_lowercase(),
            path,
            query: self.url.query().map(str::to_owned),
            user_agent,
            headers: self.headers,
        };
        let client = client_attributes(environment, &request, canonical(self.peer), self.at);
        let used = |quota: &str| self.used.iter().rev().find(|(name, _)| name == quota).map(|(_, used)| *used);
        Ok(ExplainInput::new(environment, request, client, self.at).with_used(used))
    }
}

/// Returns the client's attributes that can be derived without a running gateway: no DNS lookup, no signature check.
fn client_attributes(
    environment: Environment<'_>,
    request: &RequestAttributes,
    peer: IpAddr,
    now: Timestamp,
) -> ClientAttributes {
    let rules = environment.rules();
    let lines: Vec<&[u8]> = match rules.trust.source.header() {
        Some(name) => request.headers.get_all(name).iter().map(header::HeaderValue::as_bytes).collect(),
        None => Vec::new(),
    };
    let origin = rules.trust.client(peer, &lines);
    let claim = environment.user_agents.claim(&request.user_agent);
    let claimed = tidegate_policy::facts::claimed_operator(claim, Signature::Absent);
    let proof = claimed.map_or(Proof::Unknown, |operator| environment.operators.verify(operator, origin.client, now));
    ClientAttributes {
        peer,
        address_lists: environment.lists.lookup(origin.client),
        claim,
        proof,
        signature: Signature::Absent,
        api_key_classes: rules.api_key_classes(|source| find_credential(source, &request.headers)),
        bot_score: None,
        address: origin,
    }
}

/// Returns the credential that the headers contain in `source`.
fn find_credential<'a>(source: &CredentialSource, headers: &'a HeaderMap) -> Option<&'a [u8]> {
    match source {
        CredentialSource::Header(name) => {
            headers.get(name).map(header::HeaderValue::as_bytes).filter(|value| !value.is_empty())
        }
        CredentialSource::Cookie(name) => {
            cookie(headers.get_all(header::COOKIE).iter().map(header::HeaderValue::as_bytes), name)
        }
    }
}
