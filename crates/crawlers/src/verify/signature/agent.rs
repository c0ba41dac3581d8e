//! Name of a signing agent: the URL of its keys.

use super::outcome::{SignatureError, SignatureOutcome, UnverifiedReason};
use http::Uri;
use http::uri::Scheme;
use std::fmt;

/// Path of the keys if an agent names only its origin.
const WELL_KNOWN: &str = "/.well-known/http-message-signatures-directory";

/// Maximum length of an agent's URL. URLs in use are much shorter.
const MAX_URL_LEN: usize = 512;

/// URL of an agent's keys, which is its name. Normalized and without a query.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AgentUrl(String);

impl AgentUrl {
    /// Parses the value of a request or of the operator table. Both published forms give the same name: the URL of the
    /// keys, and the origin alone.
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

    /// Returns the URL to fetch.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the URL has the default port of HTTPS. Clients must not make the gateway connect to other ports.
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
    fn bare_origin_means_its_well_known_directory() {
        for text in [
            "https://bot.example",
            "https://bot.example/",
            "https://BOT.example:443",
            "HTTPS://bot.example/?who=me",
            "https://bot.example/.well-known/http-message-signatures-directory",
            "https://bot.example/.well-known/http-message-signatures-directory?a=b",
        ] {
            let url = AgentUrl::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert_eq!(url.as_str(), "https://bot.example/.well-known/http-message-signatures-directory", "{text}");
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
    fn non_https_agent_url_is_rejected() {
        assert_eq!(AgentUrl::parse("http://bot.example"), Err(SignatureError::NotHttps.into()));
        for invalid in
            ["", "bot.example", "/keys", "https://", "https://me@bot.example", "https://bot.example/a b", "data:,x"]
        {
            assert!(AgentUrl::parse(invalid).is_err(), "{invalid}");
        }
        assert_eq!(
            AgentUrl::parse(&format!("https://{}", "a".repeat(MAX_URL_LEN))),
            Err(UnverifiedReason::TooLarge.into())
        );
    }
}
