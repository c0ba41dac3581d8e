//! Where a client's network is: its autonomous system and its country.

use std::fmt;
use std::str::FromStr;

/// Autonomous system and country of an address, as far as the administrator's databases know them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkOrigin {
    /// Number of the autonomous system.
    pub asn: Option<u32>,
    /// Country.
    pub country: Option<Country>,
}

/// Code of a country (ISO 3166-1 alpha-2), in capitals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Country([u8; 2]);

/// Error: the text is no code of two letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidCountry;

impl NetworkOrigin {
    /// Returns true if the databases know anything of the address.
    pub const fn is_known(&self) -> bool {
        self.asn.is_some() || self.country.is_some()
    }
}

impl Country {
    /// Returns the code.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl FromStr for Country {
    type Err = InvalidCountry;

    fn from_str(text: &str) -> Result<Self, InvalidCountry> {
        let code: [u8; 2] = text.as_bytes().try_into().map_err(|_| InvalidCountry)?;
        match code.iter().all(u8::is_ascii_alphabetic) {
            true => Ok(Self(code.map(|letter| letter.to_ascii_uppercase()))),
            false => Err(InvalidCountry),
        }
    }
}

impl fmt::Display for Country {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_country_is_two_letters_in_any_case() {
        for (text, code) in
            [("DE", Some("DE")), ("de", Some("DE")), ("D", None), ("DEU", None), ("1A", None), ("\u{df}", None)]
        {
            assert_eq!(text.parse::<Country>().ok().map(|country| country.to_string()).as_deref(), code, "{text}");
        }
    }
}
