//! Reverse and forward look-ups. What comes back is somebody else's text: it is read label by label, and nothing of it is
//! ever shown.

use super::{AddressOwners, CacheTtl, DnsResult};
use crate::policy::OperatorId;
use crate::policy::dns_pattern::DnsPattern;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError as Answer, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::{ResolverBuilder, TokioResolver};
use smallvec::SmallVec;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A way to ask DNS.
pub struct Resolver {
    resolver: TokioResolver,
    /// How long all questions about one address may take together.
    timeout: Duration,
}

/// Why DNS cannot be asked.
#[derive(Debug, thiserror::Error)]
#[error("cannot ask DNS: {0}")]
pub struct ResolverError(#[from] NetError);

/// What a question came to.
enum LookupOutcome {
    /// Records, and how long they last.
    Found(Vec<Record>, Duration),
    /// There are none, which lasts so long.
    NoRecords(Duration),
    /// Nobody can say now.
    Failed,
}

impl Resolver {
    /// Asks these name servers, or the system's where none is named; each has `timeout` for a question.
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
        // What was found is remembered here, where it has bounds; names are asked for in full.
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        Ok(Self { resolver: builder.build()?, timeout: timeout * 4 })
    }

    /// Finds out whose names an address has, both ways, and how long that may be believed.
    pub(super) async fn verify(
        &self,
        address: IpAddr,
        patterns: &[(DnsPattern, OperatorId)],
    ) -> (AddressOwners, CacheTtl) {
        let found = tokio::time::timeout(self.timeout, self.forward_confirmed_reverse(address, patterns)).await;
        found.unwrap_or_else(|_| (AddressOwners::unknown(), CacheTtl::Short))
    }

    async fn forward_confirmed_reverse(
        &self,
        address: IpAddr,
        patterns: &[(DnsPattern, OperatorId)],
    ) -> (AddressOwners, CacheTtl) {
        let (records, mut lasts) = match self.query(address.into(), RecordType::PTR).await {
            LookupOutcome::Found(records, lasts) => (records, lasts),
            LookupOutcome::NoRecords(lasts) => return (AddressOwners::mismatch(), CacheTtl::Record(lasts)),
            LookupOutcome::Failed => return (AddressOwners::unknown(), CacheTtl::Short),
        };
        let mut finding = AddressOwners::mismatch();
        let mut names = matching_names(&records, patterns);
        for (name, whose) in names.by_ref().take(MAX_PTR_NAMES) {
            match self.resolves_to(&name, address).await {
                Some((true, of_address)) => {
                    finding.proven.extend(whose);
                    lasts = lasts.min(of_address);
                }
                Some((false, _)) => {}
                None => finding.others = DnsResult::Unknown,
            }
        }
        if names.next().is_some() {
            finding.others = DnsResult::Unknown;
        }
        match finding.others {
            DnsResult::Unknown if finding.proven.is_empty() => (finding, CacheTtl::Short),
            _ => (finding, CacheTtl::Record(lasts)),
        }
    }

    /// Whether a name has the address, and how long that lasts; `None` when nobody can say.
    async fn resolves_to(&self, name: &Name, address: IpAddr) -> Option<(bool, Duration)> {
        let kind = if address.is_ipv4() { RecordType::A } else { RecordType::AAAA };
        match self.query(name.clone(), kind).await {
            LookupOutcome::Found(records, lasts) => {
                let same = |record: &Record| match record.data {
                    RData::A(found) => IpAddr::V4(found.0) == address,
                    RData::AAAA(found) => IpAddr::V6(found.0) == address,
                    _ => false,
                };
                Some((records.iter().any(same), lasts))
            }
            LookupOutcome::NoRecords(lasts) => Some((false, lasts)),
            LookupOutcome::Failed => None,
        }
    }

    async fn query(&self, mut name: Name, kind: RecordType) -> LookupOutcome {
        // Without this the system's search list would be tried, too.
        name.set_fqdn(true);
        match self.resolver.lookup(name, kind).await {
            Ok(found) => {
                let records = found.answers().to_vec();
                let lasts = records.iter().map(|record| record.ttl).min().unwrap_or_default();
                LookupOutcome::Found(records, Duration::from_secs(lasts.into()))
            }
            // Without an authority's word, other name servers in an answer only say whom else to ask; and an answer
            // that is not empty has aliases that lead round, or is about another name.
            Err(NetError::Dns(Answer::NoRecordsFound(none)))
                if none.soa.is_some() || none.ns.is_none() && none.response_code == ResponseCode::NXDomain =>
            {
                LookupOutcome::NoRecords(Duration::from_secs(none.negative_ttl.unwrap_or_default().into()))
            }
            Err(_) => LookupOutcome::Failed,
        }
    }
}

impl AddressOwners {
    fn mismatch() -> Self {
        Self { proven: SmallVec::new(), others: DnsResult::Mismatch }
    }
}

/// The names among these that are some operator's, with whose they are.
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
        let whose = patterns.iter().filter(|(pattern, _)| pattern.matches(&text)).map(|(_, operator)| *operator);
        let whose: SmallVec<[OperatorId; 4]> = whose.collect();
        (!whose.is_empty()).then(|| (name.clone(), whose))
    })
}

/// The name in small letters, if it is made of what host names are made of: a label may hold any byte, dots among them.
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

/// A lost datagram is asked for once more.
const RETRIES: usize = 1;

/// So many names of an address are looked up; crawlers have one.
const MAX_PTR_NAMES: usize = 4;
