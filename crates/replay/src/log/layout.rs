//! Column of the client in a log, found from its first lines.
//!
//! A balancer or a proxy in front of a server is in the first column of each line, and the client in another one: a
//! second address at the start, or a last column with `X-Forwarded-For`. Lines are read as the gateway reads that field:
//! from the server to the client, past trusted proxies. Trusted are the addresses of a column that has far fewer of them
//! than the column of clients, and private ones if the log has public clients.

use super::address::{self, AddressList};
use super::combined;
use super::front_fields::FrontFields;
use std::collections::BTreeSet;
use std::net::IpAddr;
use tidegate_policy::network::is_private;

/// How the client of each line is found.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    column: ClientColumn,
    proxies: BTreeSet<IpAddr>,
    trusts_private: bool,
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
    /// Addresses of the columns behind the user agent; `None` for other columns.
    behind_agent: Vec<Option<AddressList>>,
}

impl Chain {
    fn parse(line: &[u8]) -> Option<Self> {
        let time = combined::time_field(line)?;
        let front = FrontFields::parse(&line[..time.start - 1])?;
        let columns = combined::columns_behind_agent(line).unwrap_or_default();
        let is_last = |index: usize| index + 1 == columns.len();
        let columns = columns.iter().enumerate().map(|(index, column)| {
            let list = address::parse_list(&column.value)?;
            // Numbers are no addresses, but `::` and a server of the application may be bare words in the middle.
            (column.is_quoted || is_last(index)).then_some(list)
        });
        Some(Self { behind_agent: columns.collect(), front: front.addresses, is_list: front.is_list })
    }

    /// Returns the addresses from the client to the server, by the column of the client.
    fn in_order(&self, column: ClientColumn) -> AddressList {
        let front = || self.front.iter().copied();
        match column {
            ClientColumn::BehindAgent(index) => {
                let forwarded = self.behind_agent.get(index).and_then(Option::as_ref).into_iter().flatten();
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
        let proxies = trusted_proxies(&in_order);
        let trusts_private =
            in_order.iter().flatten().any(|address| !is_private(*address) && !proxies.contains(address));
        let mut layout = Self { column, proxies, trusts_private, warning: None };
        layout.warning = layout.warning_for(&in_order);
        layout
    }

    /// Returns the client of a line in a column other than the first; `None` if the line is read without a layout.
    pub(super) fn client(&self, line: &[u8]) -> Option<IpAddr> {
        if matches!(self.column, ClientColumn::First | ClientColumn::Native) || line.starts_with(b"{") {
            return None;
        }
        self.client_of(&Chain::parse(line)?.in_order(self.column))
    }

    /// Writes a line. If its client is not in the first column, writes it there, in place of all before the time.
    pub(super) fn write_line(&self, line: &[u8], out: &mut Vec<u8>) {
        let (client, time) = (self.client(line), combined::time_field(line));
        let (Some(client), Some(time)) = (client, time) else { return out.extend_from_slice(line) };
        let host = FrontFields::parse(&line[..time.start - 1]).and_then(|front| front.host);
        let host = host.map_or(String::new(), |host| format!("{host} "));
        out.extend_from_slice(format!("{host}{client} - - ").as_bytes());
        out.extend_from_slice(&line[time.start - 1..]);
    }

    fn client_of(&self, chain: &AddressList) -> Option<IpAddr> {
        let is_trusted =
            |address: &&IpAddr| self.proxies.contains(*address) || self.trusts_private && is_private(**address);
        chain.iter().rev().find(|address| !is_trusted(address)).or(chain.first()).copied()
    }

    /// Returns the column in which the clients were found, for a report.
    pub(super) fn describe(&self) -> String {
        let proxies = match (self.proxies.len(), self.trusts_private) {
            (0, _) => "private addresses are proxies".to_owned(),
            (1, _) => "the other address is one proxy".to_owned(),
            (count, _) => format!("the other addresses are {count} proxies"),
        };
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

    fn warning_for(&self, chains: &[AddressList]) -> Option<String> {
        if chains.len() < MIN_LINES {
            return None;
        }
        let clients: BTreeSet<Option<IpAddr>> = chains.iter().map(|chain| self.client_of(chain)).collect();
        let only = clients.first().filter(|_| clients.len() == 1)?;
        let who = match only {
            Some(address) if is_private(*address) => format!("the private address {address}, probably a proxy"),
            Some(_) => return None,
            None => "no address".to_owned(),
        };
        Some(format!(
            "all lines have one client, {who}: let the server log the address that the proxy sends, such as \
             X-Forwarded-For, in the first column or as the last, in quotes"
        ))
    }
}

/// Returns the column of the clients.
fn client_column(chains: &[Chain]) -> ClientColumn {
    let count = |is: &dyn Fn(&Chain) -> bool| chains.iter().filter(|chain| is(chain)).count();
    let mostly = |lines: usize| lines * 10 >= chains.len() * 9;
    let fronts: BTreeSet<&[IpAddr]> = chains.iter().map(|chain| chain.front.as_slice()).collect();
    if let Some(index) = forwarded_column(chains) {
        let lines = count(&|chain| chain.behind_agent.get(index).is_some_and(Option::is_some));
        let private = count(&|chain| chain.front.last().is_none_or(|address| is_private(*address)));
        let forwarded: BTreeSet<&AddressList> =
            chains.iter().filter_map(|chain| chain.behind_agent.get(index)?.as_ref()).collect();
        if mostly(lines) && fronts.len() * 2 <= forwarded.len() || fronts.len() == 1 && mostly(lines) || mostly(private)
        {
            return ClientColumn::BehindAgent(index);
        }
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

/// Returns the index of the column behind the user agent with the most different addresses.
fn forwarded_column(chains: &[Chain]) -> Option<usize> {
    let columns = chains.iter().map(|chain| chain.behind_agent.len()).max()?;
    let clients = |index: usize| -> BTreeSet<&IpAddr> {
        chains.iter().filter_map(|chain| chain.behind_agent.get(index)?.as_ref()?.first()).collect()
    };
    let public = |index: usize| clients(index).iter().filter(|address| !is_private(***address)).count();
    (0..columns).filter(|index| !clients(*index).is_empty()).max_by_key(|index| (public(*index), clients(*index).len()))
}

/// Returns the addresses of the columns next to the server that have far fewer addresses than the column of clients.
fn trusted_proxies(chains: &[AddressList]) -> BTreeSet<IpAddr> {
    let firsts: BTreeSet<IpAddr> = chains.iter().filter_map(|chain| chain.first().copied()).collect();
    let mut proxies = BTreeSet::new();
    for from_server in 0..MAX_PROXIES {
        let longer: Vec<&AddressList> = chains.iter().filter(|chain| chain.len() >= from_server + 2).collect();
        let values: BTreeSet<IpAddr> = longer.iter().map(|chain| chain[chain.len() - 1 - from_server]).collect();
        let is_column = longer.len() * 2 >= chains.len();
        if !is_column || values.len() * 8 > firsts.len() && values.len() > 1 {
            break;
        }
        proxies.extend(values);
    }
    proxies
}

/// Lines examined at most.
const SAMPLE_LINES: usize = 2000;

/// Lines from which a single client is worth a warning.
const MIN_LINES: usize = 20;

/// Proxies that a request passes at most.
const MAX_PROXIES: usize = 8;

#[cfg(test)]
mod tests;
