//! Patterns of the DNS names of an operator's crawlers.

use std::fmt;
use std::str::FromStr;

/// Pattern of DNS names. `googlebot.com` matches that name and all names below it. `rate-limited-proxy-*.google.com`
/// matches one label with this prefix directly below `google.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsPattern {
    /// Prefix of the first label, if the pattern has a wildcard.
    prefix: Option<String>,
    domain: String,
}

/// Error: the text is not a DNS name pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidDnsPattern;

impl DnsPattern {
    /// Returns true if `name` matches; `name` is lower case and has no trailing dot.
    pub fn matches(&self, name: &str) -> bool {
        let Some(before) = name.strip_suffix(&self.domain) else { return false };
        // Requires a dot or the whole name, so that `evilgooglebot.com` does not match `googlebot.com`.
        match &self.prefix {
            None => before.is_empty() || before.ends_with('.'),
            Some(prefix) => before
                .strip_suffix('.')
                .is_some_and(|label| label.len() > prefix.len() && label.starts_with(prefix) && !label.contains('.')),
        }
    }
}

impl FromStr for DnsPattern {
    type Err = InvalidDnsPattern;

    fn from_str(text: &str) -> Result<Self, InvalidDnsPattern> {
        let text = text.to_ascii_lowercase();
        let (prefix, domain) = match text.split_once("*.") {
            Some((prefix, domain)) => (Some(prefix.to_owned()), domain),
            None => (None, text.as_str()),
        };
        let is_valid = is_name(domain) && prefix.as_deref().is_none_or(is_label);
        is_valid.then(|| Self { prefix, domain: domain.to_owned() }).ok_or(InvalidDnsPattern)
    }
}

impl fmt::Display for DnsPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.prefix {
            Some(prefix) => write!(out, "{prefix}*.{}", self.domain),
            None => out.write_str(&self.domain),
        }
    }
}

/// Returns true for a valid name of at least two labels: no operator owns all of `com`.
fn is_name(text: &str) -> bool {
    text.len() <= 253 && text.contains('.') && text.split('.').all(is_label)
}

fn is_label(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    (1..=63).contains(&text.len()) && text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        pattern.parse::<DnsPattern>().expect("valid pattern").matches(name)
    }

    #[test]
    fn domain_pattern_matches_itself_and_its_subdomains() {
        for name in ["googlebot.com", "crawl-66-249-66-1.googlebot.com", "a.geo.googlebot.com"] {
            assert!(matches("googlebot.com", name), "{name}");
        }
        for name in ["evilgooglebot.com", "googlebot.com.example.net", "com", "", ".com", "googlebot.co"] {
            assert!(!matches("googlebot.com", name), "{name}");
        }
    }

    #[test]
    fn wildcard_matches_the_rest_of_one_label() {
        let pattern = "rate-limited-proxy-*.google.com";
        assert!(matches(pattern, "rate-limited-proxy-66-249-90-77.google.com"));
        for name in
            ["google.com", "mail.google.com", "rate-limited-proxy-.google.com", "rate-limited-proxy-1.a.google.com"]
        {
            assert!(!matches(pattern, name), "{name}");
        }
        assert_eq!(pattern.parse::<DnsPattern>().expect("valid pattern").to_string(), pattern);
    }

    #[test]
    fn overly_broad_names_are_invalid_patterns() {
        for text in ["", "com", ".com", "*.com", "a..com", "*", "*.example.com", "a.*", "exa mple.com", "\u{e9}.com"] {
            assert_eq!(text.parse::<DnsPattern>(), Err(InvalidDnsPattern), "{text}");
        }
    }
}
