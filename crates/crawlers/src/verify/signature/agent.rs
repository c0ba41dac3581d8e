//! Name of a signing agent: the URL of its keys.

use super::outcome::{SignatureError, SignatureOutcome, UnverifiedReason};
use http::Uri;
use http::uri::Scheme;
use std::fmt;

/// Path of the keys if an agent names only its origin.
const WELL_KNOWN: &str = "/.well-known/http-message-signatures-directory";

/// Maximum length of an agent's URL. URLs in use are much shorter.
const MAX_URL_LEN: usize = 512;

/// URL of an agent's keys, normalized. Without its query, it is the name of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AgentUrl {
    url: String,
    /// Length of the URL without its query.
    name_len: usize,
}

impl AgentUrl {
    /// Parses the value of a request or of the operator table. The URL of the keys is fetched as it is sent; an origin alone, as
    /// before draft -01, stands for its well-known path.
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
        let path = if (url.path(), url.query()) == ("/", None) { WELL_KNOWN } else { url.path() };
        let mut name = format!("https://{}{port}{path}", host.to_ascii_lowercase());
        let name_len = name.len();
        if let Some(query) = url.query() {
            name.extend(["?", query]);
        }
        Ok(Self { url: name, name_len })
    }

    /// Returns the URL to fetch.
    pub(crate) fn as_str(&self) -> &str {
        &self.url
    }

    /// Returns the name of the agent: the URL without its query, so that an agent has one name only.
    pub(super) fn name(&self) -> &str {
        &self.url[..self.name_len]
    }

    /// Returns true if the URL has the default port of HTTPS. Clients must not make the gateway connect to other ports.
    pub(super) fn uses_default_port(&self) -> bool {
        self.url.parse::<Uri>().is_ok_and(|url| url.port().is_none())
    }
}

impl fmt::Display for AgentUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.url)
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
            "HTTPS://bot.example",
            "https://bot.example/.well-known/http-message-signatures-directory",
        ] {
            let url = AgentUrl::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert_eq!(url.as_str(), "https://bot.example/.well-known/http-message-signatures-directory", "{text}");
            assert!(url.uses_default_port());
        }
    }

    #[test]
    fn query_is_fetched_and_no_part_of_the_name() {
        for (text, fetched, name) in [
            ("https://BOT.example/keys?v=2", "https://bot.example/keys?v=2", "https://bot.example/keys"),
            ("https://bot.example/keys?", "https://bot.example/keys?", "https://bot.example/keys"),
            ("https://bot.example?v=2", "https://bot.example/?v=2", "https://bot.example/"),
            ("https://bot.example/keys?v=2#part", "https://bot.example/keys?v=2", "https://bot.example/keys"),
        ] {
            let url = AgentUrl::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert_eq!((url.as_str(), url.name()), (fetched, name), "{text}");
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
