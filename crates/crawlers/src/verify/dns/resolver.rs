//! Reverse and forward lookups. Names in responses are untrusted text: they are compared label by label and never
//! displayed.

use super::{AddressOwners, CacheTtl, DnsResult};
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError as Answer, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::{ResolverBuilder, TokioResolver};
use smallvec::SmallVec;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tidegate_policy::OperatorId;
use tidegate_policy::dns_pattern::DnsPattern;

/// DNS resolver.
pub struct Resolver {
    resolver: TokioResolver,
    /// Maximum duration of all lookups for one address.
    timeout: Duration,
}

/// Reason why the resolver is not available.
#[derive(Debug, thiserror::Error)]
#[error("DNS resolver not available: {0}")]
pub struct ResolverError(#[from] NetError);

/// Result of a lookup.
enum LookupOutcome {
    /// Records, and their lowest TTL.
    Found(Vec<Record>, Duration),
    /// No records, and the negative TTL.
    NoRecords(Duration),
    /// The lookup failed.
    Failed,
}

impl Resolver {
    /// Creates a resolver for these name servers, or the system's if empty. `timeout` applies to each query.
    pub fn new(servers: &[SocketAddr], timeout: Duration) -> Result<Self, ResolverError> {
        let mut builder: ResolverBuilder<TokioRuntimeProvider> = match servers {
            [] => TokioResolver::builder_tokio()?,
            _ => {
                let config = ResolverConfig::from_name_servers(servers.iter().map(server).collect());
                TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            }
        };
        let options = builder.options_mut();
        options.timeout = timeout;
        options.attempts = RETRIES;
        // Results are cached in [`DnsCache`], which is bounded. Names are always fully qualified.
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        Ok(Self { resolver: builder.build()?, timeout: timeout * 4 })
    }

    /// Looks up the operators of an address by forward-confirmed reverse DNS, and the lifetime of the result.
    pub(super) async fn verify(
        &self,
        address: IpAddr,
        patterns: &[(DnsPattern, OperatorId)],
    ) -> (AddressOwners, CacheTtl) {
        let result = tokio::time::timeout(self.timeout, self.forward_confirmed_reverse(address, patterns)).await;
        result.unwrap_or_else(|_| (AddressOwners::unknown(), CacheTtl::Short))
    }

    async fn forward_confirmed_reverse(
        &self,
        address: IpAddr,
        patterns: &[(DnsPattern, OperatorId)],
    ) -> (AddressOwners, CacheTtl) {
        let (records, mut ttl) = match self.query(address.into(), RecordType::PTR).await {
            LookupOutcome::Found(records, ttl) => (records, ttl),
            LookupOutcome::NoRecords(ttl) => return (AddressOwners::mismatch(), CacheTtl::Record(ttl)),
            LookupOutcome::Failed => return (AddressOwners::unknown(), CacheTtl::Short),
        };
        let mut owners = AddressOwners::mismatch();
        let mut names = matching_names(&records, patterns);
        for (name, operators) in names.by_ref().take(MAX_PTR_NAMES) {
            match self.resolves_to(&name, address).await {
                Some((true, address_ttl)) => {
                    owners.verified_operators.extend(operators);
                    ttl = ttl.min(address_ttl);
                }
                Some((false, _)) => {}
                None => owners.default_result = DnsResult::Unknown,
            }
        }
        if names.next().is_some() {
            owners.default_result = DnsResult::Unknown;
        }
        match owners.default_result {
            DnsResult::Unknown if owners.verified_operators.is_empty() => (owners, CacheTtl::Short),
            _ => (owners, CacheTtl::Record(ttl)),
        }
    }

    /// Returns whether a name resolves to the address, and the TTL; `None` if the lookup failed.
    async fn resolves_to(&self, name: &Name, address: IpAddr) -> Option<(bool, Duration)> {
        let kind = if address.is_ipv4() { RecordType::A } else { RecordType::AAAA };
        match self.query(name.clone(), kind).await {
            LookupOutcome::Found(records, ttl) => {
                let is_match = |record: &Record| match record.data {
                    RData::A(resolved) => IpAddr::V4(resolved.0) == address,
                    RData::AAAA(resolved) => IpAddr::V6(resolved.0) == address,
                    _ => false,
                };
                Some((records.iter().any(is_match), ttl))
            }
            LookupOutcome::NoRecords(ttl) => Some((false, ttl)),
            LookupOutcome::Failed => None,
        }
    }

    async fn query(&self, mut name: Name, kind: RecordType) -> LookupOutcome {
        // Otherwise the search list of the system would be applied, too.
        name.set_fqdn(true);
        match self.resolver.lookup(name, kind).await {
            Ok(response) => {
                let records = response.answers().to_vec();
                let ttl = records.iter().map(|record| record.ttl).min().unwrap_or_default();
                LookupOutcome::Found(records, Duration::from_secs(ttl.into()))
            }
            // Without an SOA record, name servers in a response are a referral. A response that is not empty has an
            // alias loop, or is about another name.
            Err(NetError::Dns(Answer::NoRecordsFound(response)))
                if response.soa.is_some()
                    || response.ns.is_none() && response.response_code == ResponseCode::NXDomain =>
            {
                LookupOutcome::NoRecords(Duration::from_secs(response.negative_ttl.unwrap_or_default().into()))
            }
            Err(_) => LookupOutcome::Failed,
        }
    }
}

impl AddressOwners {
    fn mismatch() -> Self {
        Self { verified_operators: SmallVec::new(), default_result: DnsResult::Mismatch }
    }
}

/// Returns the names in `records` that match an operator's pattern, each with its operators.
fn matching_names<'a>(
    records: &'a [Record],
    patterns: &'a [(DnsPattern, OperatorId)],
) -> impl Iterator<Item = (Name, SmallVec<[OperatorId; 4]>)> + 'a {
    let names = records.iter().filter_map(|record| match &record.data {
        RData::PTR(name) => Some(&name.0),
        _ => None,
    });
    names.filter_map(|name| {
        let text = ascii_hostname(name)?;
        let operators = patterns.iter().filter(|(pattern, _)| pattern.matches(&text)).map(|(_, operator)| *operator);
        let operators: SmallVec<[OperatorId; 4]> = operators.collect();
        (!operators.is_empty()).then(|| (name.clone(), operators))
    })
}

/// Returns the name in lower case, or `None` if a label contains bytes that host names do not have. A label may hold
/// any byte, including dots.
fn ascii_hostname(name: &Name) -> Option<String> {
    let mut text = String::new();
    for label in name.iter() {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !label.iter().all(plain) {
            return None;
        }
        if !text.is_empty() {
            text.push('.');
        }
        text.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
    }
    Some(text)
}

fn server(address: &SocketAddr) -> NameServerConfig {
    let at_port = |mut connection: ConnectionConfig| {
        connection.port = address.port();
        connection
    };
    let connections = vec![at_port(ConnectionConfig::udp()), at_port(ConnectionConfig::tcp())];
    NameServerConfig::new(address.ip(), true, connections)
}

/// Number of retries after a lost datagram.
const RETRIES: usize = 1;

/// Maximum number of names looked up per address. Addresses of crawlers have one.
const MAX_PTR_NAMES: usize = 4;
