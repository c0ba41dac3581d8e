//! Source of an operator's addresses.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::slice;
use std::str::FromStr;

use ipnet::IpNet;
use serde::Deserialize;

/// A network, or a list of networks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(from = "String")]
pub enum RangeSource {
    /// A single network.
    Network(IpNet),
    /// A list at this URL.
    Url(String),
    /// A list in this file.
    File(PathBuf),
}

impl RangeSource {
    /// Returns the networks of the source; empty if its list was never loaded.
    pub(super) fn networks<'a>(&'a self, lists: &'a BTreeMap<RangeSource, Vec<IpNet>>) -> &'a [IpNet] {
        match self {
            RangeSource::Network(network) => slice::from_ref(network),
            RangeSource::Url(_) | RangeSource::File(_) => lists.get(self).map(Vec::as_slice).unwrap_or_default(),
        }
    }
}

impl From<String> for RangeSource {
    fn from(text: String) -> Self {
        match parse_cidr(&text) {
            Some(network) => RangeSource::Network(network),
            None if text.contains("://") => RangeSource::Url(text),
            None => RangeSource::File(text.into()),
        }
    }
}

impl FromStr for RangeSource {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.to_owned().into())
    }
}

impl fmt::Display for RangeSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RangeSource::Network(network) => network.fmt(out),
            // The query may contain a key, and sources are logged.
            RangeSource::Url(url) => out.write_str(url.split('?').next().unwrap_or_default()),
            RangeSource::File(path) => path.display().fmt(out),
        }
    }
}

/// Parses a network. Host bits may be set, and a single address is a network of its own.
pub(super) fn parse_cidr(text: &str) -> Option<IpNet> {
    let network: Option<IpNet> = text.parse().ok();
    network
        .or_else(|| text.parse().ok().map(|address: std::net::IpAddr| IpNet::from(address)))
        .map(|network| network.trunc())
}
