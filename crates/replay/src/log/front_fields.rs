//! Fields before the time of a line: the virtual host, and addresses.

use super::address::{self, AddressList};
use super::line::LoggedClient;
use super::timestamp;
use tidegate_policy::network::is_private;

/// Fields before the time.
#[derive(Debug)]
pub(super) struct FrontFields<'a> {
    pub(super) host: Option<&'a str>,
    /// Addresses at the start; empty if there is a name instead.
    pub(super) addresses: AddressList,
    /// True if commas separate the addresses, as in `X-Forwarded-For`.
    pub(super) is_list: bool,
    /// Text of the first client column.
    name: &'a str,
}

impl<'a> FrontFields<'a> {
    /// Parses the fields; `None` if the line begins with no client. Collectors write a prefix in front of all lines of a file,
    /// which is removed before: a client that could choose where a prefix ends could write lines of others.
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim_start_matches(' ');
        let mut words = text.split(' ').filter(|word| !word.is_empty());
        let (first, second) = (words.next()?, words.next());
        if let Some(fields) = Self::of_addresses(None, text) {
            return Some(fields);
        }
        match second {
            Some(second) if is_address(second) && is_host(first) => {
                Self::of_addresses(Some(first), &text[first.len()..])
            }
            // A host name instead of the address, as Apache logs it with `HostnameLookups`, or a socket without an address.
            Some("-") if is_host(first) || first == "unix:" => {
                Some(Self { host: None, addresses: AddressList::new(), is_list: false, name: first })
            }
            _ => None,
        }
    }

    /// Reads the addresses at the start of `text`.
    fn of_addresses(host: Option<&'a str>, text: &'a str) -> Option<Self> {
        let (mut addresses, mut is_list, mut name) = (AddressList::new(), false, "");
        let mut words = text.split(' ').filter(|word| !word.is_empty()).peekable();
        while let Some(word) = words.next() {
            let Some(members) = address::parse_list(word.trim_end_matches(',').as_bytes()) else { break };
            is_list |= word.contains(',');
            name = if addresses.is_empty() { word } else { name };
            addresses.extend(members);
            // A word like `nginx:` follows the host of a collector, not a client.
            if words.peek().is_some_and(|next| next.len() > 1 && next.ends_with(':') && !is_address(next)) {
                return None;
            }
        }
        (!addresses.is_empty()).then_some(Self { host, addresses, is_list, name })
    }

    /// Returns the client of a line whose log is unknown: the first public address of a list, else the first address;
    /// of two columns the second, unless only the first is public.
    pub(super) fn default_client(&self) -> LoggedClient<'a> {
        let public = self.addresses.iter().find(|address| !is_private(**address));
        let first = match self.addresses.as_slice() {
            [first, second] if !self.is_list && (is_private(*first) || !is_private(*second)) => Some(second),
            _ => public.or(self.addresses.first()),
        };
        first.map_or(LoggedClient::HostName(self.name), |address| LoggedClient::Address(*address))
    }
}

fn is_address(word: &str) -> bool {
    address::parse_list(word.trim_end_matches(',').as_bytes()).is_some()
}

/// Returns true if a word may be a host, and is not part of the prefix of a collector. A list of unknown members
/// (`unknown,`) is no host, either.
fn is_host(word: &str) -> bool {
    word.len() > 1
        && !word.ends_with([':', ',', '|', ']'])
        && !word.starts_with('<')
        && !MONTHS.contains(&word)
        && timestamp::read(word.as_bytes()).is_none()
}

/// Months as syslog writes them (RFC 3164, section 4.1.2).
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
