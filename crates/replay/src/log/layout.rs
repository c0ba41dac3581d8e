//! Column of the client in a log, found from its first lines.
//!
//! A balancer or a proxy in front of a server is in the first column of each line, and the client in another one: a
//! second address at the start, or a last column with `X-Forwarded-For`. [`TrustedProxies`] tells them apart.

use super::address::{self, AddressList, ForwardedAddresses};
use super::front_fields::FrontFields;
use super::proxies::{ForwardedCounts, TrustedProxies, direct_peers};
use super::{LineError, combined};
use std::collections::BTreeSet;
use std::net::IpAddr;
use tidegate_policy::network::is_private;

/// How the client of each line is found.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    column: ClientColumn,
    proxies: TrustedProxies,
    warning: Option<String>,
}

/// Column of the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ClientColumn {
    /// The first column.
    #[default]
    First,
    /// A list of addresses at the start.
    List,
    /// The second of two addresses at the start.
    Second,
    /// The first of two addresses at the start.
    FirstOfTwo,
    /// The column behind the user agent with this index.
    BehindAgent(usize),
    /// The field of the gateway's own log.
    Native,
}

/// Addresses of a line, from the client to the server.
struct Chain {
    front: AddressList,
    is_list: bool,
    /// Addresses of the columns behind the user agent; none of other columns.
    behind_agent: Vec<ForwardedAddresses>,
}

impl Chain {
    fn parse(line: &[u8]) -> Option<Self> {
        let time = combined::time_field(line)?;
        let front = FrontFields::parse(&line[..time.start - 1])?;
        let columns = combined::columns_behind_agent(line).unwrap_or_default();
        let is_last = |index: usize| index + 1 == columns.len();
        let columns = columns.iter().enumerate().map(|(index, column)| {
            // Numbers are no addresses, but `::` and a server of the application may be bare words in the middle.
            match column.is_quoted || is_last(index) {
                true if column.is_dash() => ForwardedAddresses::default(),
                true => address::parse_forwarded(&column.value),
                false => ForwardedAddresses::default(),
            }
        });
        Some(Self { behind_agent: columns.collect(), front: front.addresses, is_list: front.is_list })
    }

    /// Returns the addresses from the client to the server, by the column of the client.
    fn in_order(&self, column: ClientColumn) -> AddressList {
        let front = || self.front.iter().copied();
        match column {
            ClientColumn::BehindAgent(index) => {
                let forwarded = self.behind_agent.get(index).into_iter().flat_map(|column| &column.addresses);
                forwarded.copied().chain(front()).collect()
            }
            ClientColumn::Second if self.front.len() == 2 => front().rev().collect(),
            _ => self.front.clone(),
        }
    }
}

impl Layout {
    /// Detects the layout of a log by its first lines.
    pub(super) fn detect<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Self {
        let (native, others): (Vec<&[u8]>, Vec<&[u8]>) =
            lines.take(SAMPLE_LINES).filter(|line| !line.is_empty()).partition(|line| line.starts_with(b"{"));
        let chains: Vec<Chain> = others.into_iter().filter_map(Chain::parse).collect();
        if chains.is_empty() {
            let column = if native.is_empty() { ClientColumn::First } else { ClientColumn::Native };
            return Self { column, ..Self::default() };
        }
        let column = client_column(&chains);
        let in_order: Vec<AddressList> = chains.iter().map(|chain| chain.in_order(column)).collect();
        let proxies = TrustedProxies::detect(&in_order);
        let doubt = || forwarded_column(&chains).and_then(|index| forwarded_counts(&chains, index).doubt());
        let warning = proxies.warning_for(&in_order, ADVICE).or_else(doubt);
        Self { column, proxies, warning }
    }

    /// Returns the client of a line in a column other than the first; `None` if the line is read without a layout. Fails if the
    /// column of the client cannot be read.
    pub(super) fn client(&self, line: &[u8]) -> Result<Option<IpAddr>, LineError> {
        if matches!(self.column, ClientColumn::First | ClientColumn::Native) || line.starts_with(b"{") {
            return Ok(None);
        }
        let Some(chain) = Chain::parse(line) else { return Ok(None) };
        match self.column {
            ClientColumn::BehindAgent(index) => {
                let missing = ForwardedAddresses { is_cut: true, ..ForwardedAddresses::default() };
                self.proxies.client_behind(&chain.front, chain.behind_agent.get(index).unwrap_or(&missing))
            }
            column => Ok(self.proxies.client_of(&chain.in_order(column))),
        }
    }

    /// Writes a line. If its client is not in the first column, writes it there, in place of all before the time. Fails if the
    /// client cannot be read.
    pub(super) fn write_line(&self, line: &[u8], out: &mut Vec<u8>) -> Result<(), LineError> {
        let (client, time) = (self.client(line)?, combined::time_field(line));
        let (Some(client), Some(time)) = (client, time) else {
            out.extend_from_slice(line);
            return Ok(());
        };
        let host = FrontFields::parse(&line[..time.start - 1]).and_then(|front| front.host);
        let host = host.map_or(String::new(), |host| format!("{host} "));
        out.extend_from_slice(format!("{host}{client} - - ").as_bytes());
        out.extend_from_slice(&line[time.start - 1..]);
        Ok(())
    }

    /// Returns the column in which the clients were found, for a report.
    pub(super) fn describe(&self) -> String {
        let proxies = self.proxies.describe();
        match self.column {
            ClientColumn::First => "first column".to_owned(),
            ClientColumn::List => format!("list of addresses at the start, from right to left; {proxies}"),
            ClientColumn::Second => format!("second column; {proxies}"),
            ClientColumn::FirstOfTwo => format!("first of two columns; {proxies}"),
            ClientColumn::BehindAgent(index) => {
                format!("column {} after the user agent (X-Forwarded-For), from right to left; {proxies}", index + 1)
            }
            ClientColumn::Native => "field `client` of the gateway's log".to_owned(),
        }
    }

    /// Returns what is doubtful about the clients.
    pub(super) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }
}

/// Returns the column of the clients.
fn client_column(chains: &[Chain]) -> ClientColumn {
    let count = |is: &dyn Fn(&Chain) -> bool| chains.iter().filter(|chain| is(chain)).count();
    let mostly = |lines: usize| lines * 10 >= chains.len() * 9;
    if let Some(index) = forwarded_column(chains)
        && forwarded_counts(chains, index).have_clients()
    {
        return ClientColumn::BehindAgent(index);
    }
    if count(&|chain| chain.is_list) > 0 {
        return ClientColumn::List;
    }
    if !mostly(count(&|chain| chain.front.len() == 2)) {
        return ClientColumn::First;
    }
    let values =
        |index: usize| -> BTreeSet<&IpAddr> { chains.iter().filter_map(|chain| chain.front.get(index)).collect() };
    let public = |values: &BTreeSet<&IpAddr>| values.iter().filter(|address| !is_private(***address)).count();
    let (first, second) = (values(0), values(1));
    match (public(&first), first.len()) > (public(&second), second.len()) {
        true => ClientColumn::FirstOfTwo,
        false => ClientColumn::Second,
    }
}

/// Counts the addresses of a column behind the user agent, and of the peers.
fn forwarded_counts(chains: &[Chain], index: usize) -> ForwardedCounts {
    let columns = chains.iter().filter_map(|chain| chain.behind_agent.get(index));
    let forwarded = || columns.clone().map(|column| &column.addresses).filter(|addresses| !addresses.is_empty());
    let has_private_peer = |chain: &&Chain| chain.front.last().is_none_or(|address| is_private(*address));
    ForwardedCounts {
        lines: chains.len(),
        forwarded_lines: forwarded().count(),
        private_peer_lines: chains.iter().filter(has_private_peer).count(),
        peers: chains.iter().map(|chain| chain.front.as_slice()).collect::<BTreeSet<_>>().len(),
        direct_peers: direct_peers(chains.iter().map(|chain| {
            let forwarded = chain.behind_agent.get(index);
            (chain.front.last(), forwarded.is_some_and(|column| *column != ForwardedAddresses::default()))
        })),
        forwarded: forwarded().collect::<BTreeSet<_>>().len(),
    }
}

/// Returns the index of the column behind the user agent with the most different addresses.
fn forwarded_column(chains: &[Chain]) -> Option<usize> {
    let columns = chains.iter().map(|chain| chain.behind_agent.len()).max()?;
    let clients = |index: usize| -> BTreeSet<&IpAddr> {
        chains.iter().filter_map(|chain| chain.behind_agent.get(index)?.addresses.first()).collect()
    };
    let public = |index: usize| clients(index).iter().filter(|address| !is_private(***address)).count();
    (0..columns).filter(|index| !clients(*index).is_empty()).max_by_key(|index| (public(*index), clients(*index).len()))
}

/// Lines examined at most.
pub(super) const SAMPLE_LINES: usize = 2000;

/// What an administrator can do about a log without clients.
const ADVICE: &str = "let the server log the address that the proxy sends, such as X-Forwarded-For, in the first column or \
                      as the last, in quotes";

#[cfg(test)]
mod tests;
