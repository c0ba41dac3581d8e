//! The name by which an agent signs: where its keys are published.

use super::outcome::{SignatureError, SignatureOutcome, UnverifiedReason};
use http::Uri;
use http::uri::Scheme;
use std::fmt;

/// Where keys are, if an agent names no more than its origin.
const WELL_KNOWN: &str = "/.well-known/http-message-signatures-directory";

/// No address of a directory in use is near this.
const MAX_URL_LEN: usize = 512;

/// The address of an agent's keys, which is the agent's name: one spelling each, without a query.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AgentUrl(String);

impl AgentUrl {
    /// Reads what a request or the operators' table says. Both published forms lead to the same name: the address of the
    /// keys themselves, and the origin alone.
    pub(crate) fn parse(text: &str) -> Result<Self, SignatureOutcome> {
        if text.len() > MAX_URL_LEN {
            return Err(UnverifiedReason::TooLarge.into());
        }
        let url: Uri = text.parse().map_err(|_| SignatureError::MalformedFields)?;
        let host = url.host().filter(|host| !host.is_empty()).ok_or(SignatureError::MalformedFields)?;
        if url.scheme() != Some(&Scheme::HTTPS) {
            return Err(SignatureError::NotHttps.into());
        }
        if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(SignatureError::MalformedFields.into());
        }
        let port = url.port_u16().filter(|&port| port != 443).map_or_else(String::new, |port| format!(":{port}"));
        let path = if url.path() == "/" { WELL_KNOWN } else { url.path() };
        Ok(Self(format!("https://{}{port}{path}", host.to_ascii_lowercase())))
    }

    /// The address, as it is fetched.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// True where it is at the port that everybody's HTTPS is at: nobody may have the gate knock at any other.
    pub(super) fn uses_default_port(&self) -> bool {
        self.0.parse::<Uri>().is_ok_and(|url| url.port().is_none())
    }
}

impl fmt::Display for AgentUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_alone_means_its_well_known_directory() {
        for same in [
            "https://bot.example",
            "https://bot.example/",
            "https://BOT.example:443",
            "HTTPS://bot.example/?who=me",
            "https://bot.example/.well-known/http-message-signatures-directory",
            "https://bot.example/.well-known/http-message-signatures-directory?a=b",
        ] {
            let url = AgentUrl::parse(same).unwrap_or_else(|found| panic!("{same}: {found:?}"));
            assert_eq!(url.as_str(), "https://bot.example/.well-known/http-message-signatures-directory", "{same}");
            assert!(url.uses_default_port());
        }
    }

    #[test]
    fn another_path_or_port_is_another_agent() {
        assert_eq!(
            AgentUrl::parse("https://bot.example/keys").map(|url| url.to_string()),
            Ok("https://bot.example/keys".into())
        );
        assert!(!AgentUrl::parse("https://bot.example:8443").expect("a port is allowed").uses_default_port());
    }

    #[test]
    fn what_is_no_https_address_names_nobody() {
        assert_eq!(AgentUrl::parse("http://bot.example"), Err(SignatureError::NotHttps.into()));
        for broken in
            ["", "bot.example", "/keys", "https://", "https://me@bot.example", "https://bot.example/a b", "data:,x"]
        {
            assert!(AgentUrl::parse(broken).is_err(), "{broken}");
        }
        assert_eq!(
            AgentUrl::parse(&format!("https://{}", "a".repeat(MAX_URL_LEN))),
            Err(UnverifiedReason::TooLarge.into())
        );
    }
}
