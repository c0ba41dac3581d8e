//! Hypothetical requests, given by their attributes instead of a log line.

use super::assumed_usage::AssumedUsage;
use super::environment::Environment;
use super::input::{ExplainInput, RequestAttributes};
use http::{HeaderMap, Method, Uri, header};
use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use tidegate_crawlers::verify::api_key::listed_key;
use tidegate_policy::address_lists::ListSet;
use tidegate_policy::api_keys::ListedKey;
use tidegate_policy::bot_detection::BotScore;
use tidegate_policy::identity::{ClientAddress, CredentialSource, ProxyTrust, cookie};
use tidegate_policy::network::canonical;
use tidegate_policy::network_origin::NetworkOrigin;
use tidegate_policy::path::{Ambiguity, PathError, PathReadings, resolved};
use tidegate_policy::purpose::Purpose;
use tidegate_policy::route::normalize_host;
use tidegate_policy::session::Session;
use tidegate_policy::{Claim, ClassId, ClientEvidence, ClientFacts, OperatorId, Proof, Signature, Timestamp};

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
    /// Usage by quota name; quotas that are not listed are unused.
    pub used: Vec<(String, AssumedUsage)>,
}

/// Reason for which the gateway rejects a hypothetical request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidRequest {
    /// Path that origins read in different ways.
    Path(PathError),
    /// Header fields that origins read in different ways.
    Fields(Ambiguity),
}

impl fmt::Display for InvalidRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Path(error) => return error.fmt(out),
            Self::Fields(Ambiguity::Costs) => {
                "a header field or cookie that chooses the route can be read in several ways, with costs in different quotas"
            }
            Self::Fields(Ambiguity::Origin) => "a header field or cookie that chooses the route can be read in several ways, which lead to different origins",
            Self::Fields(Ambiguity::Rewrite) => {
                "a header field or cookie that chooses the route can be read in several ways, with different paths at the origin"
            }
        })
    }
}

impl Error for InvalidRequest {}

impl HypotheticalRequest {
    /// Converts the request to the input of an explanation.
    pub fn into_input(self, environment: Environment<'_>) -> Result<ExplainInput<'_>, InvalidRequest> {
        let readings =
            PathReadings::new(self.url.path(), environment.rules().path_policy).map_err(InvalidRequest::Path)?;
        let user_agent =
            self.headers.get(header::USER_AGENT).map(|value| value.as_bytes().to_vec()).unwrap_or_default();
        let peer = canonical(self.peer);
        let address = client_address(&environment.rules().trust, peer, &self.headers);
        let is_preflight = self.method == Method::OPTIONS
            && ["origin", "access-control-request-method"].iter().all(|name| self.headers.contains_key(*name));
        let pairs = || self.headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
        let fields = environment.rules().field_match(pairs);
        let request = RequestAttributes {
            is_preflight,
            method: self.method,
            host: normalize_host(self.url.host().unwrap_or_default()).into_owned(),
            path: readings.normalized(self.url.path()).to_owned(),
            resolved_path: resolved(self.url.path()).into_owned(),
            other_paths: readings.others().to_vec(),
            query: self.url.query().map(str::to_owned),
            user_agent,
            headers: self.headers,
            peer,
            hops: address.hops,
            json: None,
            fields,
        };
        let mut evidence =
            HypotheticalEvidence { environment, request: &request, client: address.client, now: self.at };
        let client = ClientFacts::gather(address.client, &mut evidence);
        let used = |quota: &str| self.used.iter().rev().find(|(name, _)| name == quota).map(|(_, used)| *used);
        if !readings.others().is_empty() || request.facts().is_ambiguous() {
            let checked = environment.settings.check_readings(&request.facts(), &request.resolved_path);
            checked.map_err(|ambiguity| match readings.others() {
                [] => InvalidRequest::Fields(ambiguity),
                _ => InvalidRequest::Path(PathError::Ambiguous(ambiguity)),
            })?;
        }
        Ok(ExplainInput::new(environment, request, client, self.at).with_used(used))
    }
}

/// Evidence that can be derived without a running gateway: no DNS lookup, no signature check, no behavior.
struct HypotheticalEvidence<'a> {
    environment: Environment<'a>,
    request: &'a RequestAttributes,
    client: IpAddr,
    now: Timestamp,
}

impl ClientEvidence for HypotheticalEvidence<'_> {
    fn claim(&mut self) -> Claim {
        self.environment.user_agents.claim(&self.request.user_agent)
    }

    fn signature(&mut self) -> Signature {
        Signature::Absent
    }

    fn proof(&mut self, claimed: Option<OperatorId>) -> Proof {
        claimed.map_or(Proof::Unknown, |operator| self.environment.operators.verify(operator, self.client, self.now))
    }

    fn address_lists(&mut self) -> ListSet {
        self.environment.lists.lookup(self.client)
    }

    fn api_key(&mut self) -> Option<ListedKey> {
        let header = |name| self.request.headers.get(name).map(header::HeaderValue::as_bytes);
        listed_key(&self.environment.rules().api_keys, header, self.now)
    }

    fn api_key_classes(&mut self) -> Vec<ClassId> {
        self.environment.rules().api_key_classes(|source| find_credential(source, &self.request.headers))
    }

    /// A hypothetical request has no certificate.
    fn certificate_classes(&mut self) -> Vec<ClassId> {
        Vec::new()
    }

    fn purpose(&mut self, operator: OperatorId) -> Option<Purpose> {
        self.environment.operators.purpose(operator)
    }

    fn field_classes(&mut self) -> Vec<ClassId> {
        self.environment.rules().field_classes(|condition| match &condition.source {
            CredentialSource::Header(name) => {
                condition.matches(self.request.headers.get_all(name).iter().map(header::HeaderValue::as_bytes))
            }
            cookie => condition.matches(find_credential(cookie, &self.request.headers).into_iter()),
        })
    }

    /// Only a running gateway can verify a session.
    fn session(&mut self) -> Session {
        Session::None
    }

    fn network_origin(&mut self) -> NetworkOrigin {
        self.environment.network_databases.lookup(self.client)
    }

    fn bot_score(&mut self) -> Option<BotScore> {
        None
    }
}

fn client_address(trust: &ProxyTrust, peer: IpAddr, headers: &HeaderMap) -> ClientAddress {
    let lines: Vec<&[u8]> = match trust.source.header() {
        Some(name) => headers.get_all(name).iter().map(header::HeaderValue::as_bytes).collect(),
        None => Vec::new(),
    };
    trust.client(peer, &lines)
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
