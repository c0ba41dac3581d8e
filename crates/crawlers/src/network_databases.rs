//! Databases of networks: the autonomous system and the country of an address, from files of the administrator in the MaxMind
//! format (<https://maxmind.github.io/MaxMind-DB/>).

use maxminddb::{PathElement, Reader};
use serde_json::Value;
use std::net::IpAddr;
use std::path::Path;
use tidegate_engine::files;
use tidegate_policy::network_origin::NetworkOrigin;

/// Databases of networks, in memory.
#[derive(Debug, Default)]
pub struct NetworkDatabases {
    asn: Option<Reader<Vec<u8>>>,
    country: Option<Reader<Vec<u8>>>,
}

/// A file of the administrator, and the location of its key.
pub type Source<'a> = (&'a Path, &'a str);

/// Maximum size of a file: those of all networks of the world with one value each have less than a tenth.
const MAX_FILE_BYTES: usize = 512 << 20;

/// Paths of the number of an autonomous system: of GeoLite2 and DB-IP, and of IPinfo, which writes `AS64496`.
const ASN_PATHS: [&str; 2] = ["autonomous_system_number", "asn"];

/// Paths of the code of a country: of GeoLite2 and DB-IP, of IPinfo Lite, and of IPinfo.
const COUNTRY_PATHS: [&[PathElement<'static>]; 3] = [
    &[PathElement::Key("country"), PathElement::Key("iso_code")],
    &[PathElement::Key("country_code")],
    &[PathElement::Key("country")],
];

impl NetworkDatabases {
    /// Reads the databases. Returns all errors, one line each.
    pub fn read(asn: Option<Source<'_>>, country: Option<Source<'_>>) -> Result<Self, String> {
        match (asn.map(read).transpose(), country.map(read).transpose()) {
            (Ok(asn), Ok(country)) => Ok(Self { asn, country }),
            (asn, country) => {
                let errors: Vec<String> = asn.err().into_iter().chain(country.err()).collect();
                Err(errors.join("\n"))
            }
        }
    }

    /// Returns autonomous system and country of `address`, as far as the databases know them. A lookup reads at most a bit of
    /// the address from each node of the tree, so that a broken one ends, too.
    #[inline]
    pub fn lookup(&self, address: IpAddr) -> NetworkOrigin {
        match self {
            Self { asn: None, country: None } => NetworkOrigin::default(),
            _ => self.find(address),
        }
    }

    fn find(&self, address: IpAddr) -> NetworkOrigin {
        NetworkOrigin {
            asn: self.asn.as_ref().and_then(|reader| asn(reader, address)),
            country: self.country.as_ref().and_then(|reader| {
                let found = reader.lookup(address).ok()?;
                let text = |path: &&[PathElement<'_>]| found.decode_path::<&str>(path).ok()?;
                COUNTRY_PATHS.iter().find_map(text)?.parse().ok()
            }),
        }
    }
}

fn asn(reader: &Reader<Vec<u8>>, address: IpAddr) -> Option<u32> {
    let found = reader.lookup(address).ok()?;
    ASN_PATHS.iter().find_map(|key| {
        // As any type of number, or as text.
        match found.decode_path::<Value>(&[PathElement::Key(key)]).ok()?? {
            Value::Number(number) => u32::try_from(number.as_u64()?).ok(),
            Value::String(text) => text.trim_start_matches("AS").parse().ok(),
            _ => None,
        }
    })
}

fn read((file, location): Source<'_>) -> Result<Reader<Vec<u8>>, String> {
    let failed = |error: &dyn std::fmt::Display| {
        format!("{location}: {} cannot be used: {error}; name a file of the MaxMind format (.mmdb)", file.display())
    };
    let content = files::read(file, MAX_FILE_BYTES).map_err(|error| failed(&error))?;
    Reader::from_source(content).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The metadata of a database with one node, of 24 bits a record.
    const METADATA: &[u8] =
        b"\xab\xcd\xefMaxMind.com\xe9\x4anode_count\xc1\x01\x4brecord_size\xa1\x18\x4aip_version\xa1\x06\
        \x4ddatabase_type\x44test\x5bbinary_format_major_version\xa1\x02\x5bbinary_format_minor_version\xa0\
        \x4bbuild_epoch\x01\x02\x01\x49languages\x00\x04\x4bdescription\xe0";

    proptest! {
        #[test]
        fn no_tree_and_no_data_make_a_lookup_fail(tree: [u8; 6], data in prop::collection::vec(any::<u8>(), 0..60), address: u128) {
            let file = [&tree[..], &[0; 16], &data, METADATA].concat();
            let reader = Reader::from_source(file);
            prop_assert!(reader.is_ok());
            let databases = NetworkDatabases { asn: reader.ok(), country: None };
            let _ = databases.lookup(IpAddr::V6(address.into()));
        }
    }
}
