//! Names in DNS by which an operator's crawlers are known.

use std::fmt;
use std::str::FromStr;

/// `googlebot.com`, which is that name and all below it, or `rate-limited-proxy-*.google.com`, which is one label that
/// begins so, right below the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsPattern {
    /// What the first label begins with, where only such ones fit.
    begins: Option<String>,
    domain: String,
}

/// Text that is no pattern of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidDnsPattern;

impl DnsPattern {
    /// True when `name`, in small letters and without the dot at its end, is such a name.
    pub fn matches(&self, name: &str) -> bool {
        let Some(before) = name.strip_suffix(&self.domain) else { return false };
        // A dot, or nothing, so that `evilgooglebot.com` is not below `googlebot.com`.
        match &self.begins {
            None => before.is_empty() || before.ends_with('.'),
            Some(begins) => before
                .strip_suffix('.')
                .is_some_and(|label| label.len() > begins.len() && label.starts_with(begins) && !label.contains('.')),
        }
    }
}

impl FromStr for DnsPattern {
    type Err = InvalidDnsPattern;

    fn from_str(text: &str) -> Result<Self, InvalidDnsPattern> {
        let text = text.to_ascii_lowercase();
        let (begins, domain) = match text.split_once("*.") {
            Some((begins, domain)) => (Some(begins.to_owned()), domain),
            None => (None, text.as_str()),
        };
        let right = is_name(domain) && begins.as_deref().is_none_or(is_label);
        right.then(|| Self { begins, domain: domain.to_owned() }).ok_or(InvalidDnsPattern)
    }
}

impl fmt::Display for DnsPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.begins {
            Some(begins) => write!(out, "{begins}*.{}", self.domain),
            None => out.write_str(&self.domain),
        }
    }
}

/// Two labels at least: nobody owns all of `com`.
fn is_name(text: &str) -> bool {
    text.len() <= 253 && text.contains('.') && text.split('.').all(is_label)
}

fn is_label(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    (1..=63).contains(&text.len()) && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        pattern.parse::<DnsPattern>().expect("a pattern").matches(name)
    }

    #[test]
    fn a_domain_is_itself_and_all_below_it_and_nothing_beside() {
        for name in ["googlebot.com", "crawl-66-249-66-1.googlebot.com", "a.geo.googlebot.com"] {
            assert!(matches("googlebot.com", name), "{name}");
        }
        for name in ["evilgooglebot.com", "googlebot.com.example.net", "com", "", ".com", "googlebot.co"] {
            assert!(!matches("googlebot.com", name), "{name}");
        }
    }

    #[test]
    fn a_star_is_the_rest_of_one_label() {
        let pattern = "rate-limited-proxy-*.google.com";
        assert!(matches(pattern, "rate-limited-proxy-66-249-90-77.google.com"));
        for name in
            ["google.com", "mail.google.com", "rate-limited-proxy-.google.com", "rate-limited-proxy-1.a.google.com"]
        {
            assert!(!matches(pattern, name), "{name}");
        }
        assert_eq!(pattern.parse::<DnsPattern>().expect("a pattern").to_string(), pattern);
    }

    #[test]
    fn what_nobody_owns_is_no_pattern() {
        for text in ["", "com", ".com", "*.com", "a..com", "*", "*.example.com", "a.*", "exa mple.com", "\u{e9}.com"] {
            assert_eq!(text.parse::<DnsPattern>(), Err(InvalidDnsPattern), "{text}");
        }
    }
}
