//! Raw sections `admin` and `robots`, and the key `paths`.

use crate::admin_address::AdminAddress;
use crate::scalars::{AdminSocket, FilePath};
use crate::section::{any, section, text};
use crate::serde_forms::{SecretText, word_or_keys};
use schemars::JsonSchema;
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tidegate_policy::exempt::ROBOTS_TXT_PATH;
use tidegate_policy::path::normalize;

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

section! {
    /// Listener for the administrator.
    pub(crate) struct Admin {
        /// Address and port, or `unix:/path` of a Unix socket. If it is 0.0.0.0 or `[::]`, the commands connect to
        /// loopback. A Unix socket admits the user and the group of the gateway.
        listen: AdminAddress = AdminAddress::Tcp(DEFAULT_LISTEN) => AdminSocket, any;
        /// Bearer token that requests must send; required beyond loopback. Without a token the listener accepts only
        /// requests whose Host is localhost, a loopback address or the listen address; it refuses requests that a
        /// browser page of another site sends. At least 16 characters. Default none.
        token: Option<SecretText>;
        /// Bearer token for requests that change nothing, such as those of Prometheus and `tidegate status`. At least
        /// 16 characters; requires token. Default none.
        read_token: Option<SecretText>;
    }
}

/// Listener for the administrator, or off.
#[derive(Clone)]
pub(crate) enum AdminListener {
    Off,
    On(Admin),
}

word_or_keys! {
    AdminListener, "an admin listener; use off or { listen: 127.0.0.1:9090 }":
    "off" => Self::Off,
    Admin => Self::On
}

section! {
    /// Handling of robots.txt.
    pub(crate) struct Robots {
        /// true: writes each crawl_delay into robots.txt.
        merge_crawl_delay: bool = true => bool, any;
        /// File that replaces the origin's robots.txt on every host. It is read every second. An emptied file takes
        /// effect after a second, if it is still empty, because many editors truncate a file before writing it. It is
        /// the response to GET and HEAD only; requests with other methods are forwarded to the origin. Default none.
        override_file: Option<FilePath>;
        /// Path that robots.txt disallows and no page links to: a request for it is a bot signal. The gateway adds the
        /// Disallow line itself. Letters, digits, `/`, `-`, `_` and `.` only, such as /private-area. Link to it from no
        /// page. Default none.
        honeypot: Option<String> = None => String, text(plain_path);
        /// true: robots.txt says what pages may be used for, as the classes have it: a purpose (search, agent, training) is
        /// forbidden if the first class whose `when` has this purpose, and no other condition but the kind, has `block: true`,
        /// else allowed; nothing is said of a purpose without such a class. The lines, `Content-Signal` and `Content-Usage`,
        /// are drafts that crawlers need not obey. A group of the origin that has its own keeps them. The crawl policy has
        /// the same.
        terms: bool = false => bool, any;
        /// URL of the license of the site, which robots.txt names above its groups (`License` of RSL 1.0), unless it names one.
        /// Default none.
        license: Option<String> = None => String, text(license_url);
    }
}

/// Accepts a URL that is one value in a line of robots.txt.
fn license_url(url: &str) -> Option<String> {
    let is_plain = url.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let is_valid = is_plain && url.len() <= MAX_LICENSE_URL && rest.is_some_and(|rest| !rest.is_empty());
    (!is_valid).then(|| format!("found {url:?}; write a URL such as https://example.com/license.xml"))
}

/// Maximum length of the URL of a license, in bytes.
const MAX_LICENSE_URL: usize = 2000;

/// Accepts a path that has the same meaning in robots.txt and in a route, and disallows nothing else.
fn plain_path(path: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.');
    let is_valid = path.len() > 1
        && path.starts_with('/')
        && path != ROBOTS_TXT_PATH
        && path.bytes().all(is_plain)
        && normalize(path).as_deref() == Ok(path);
    let hint = "write one such as /private-area, of letters, digits, \"/\", \"-\", \"_\" and \".\"";
    (!is_valid).then(|| format!("invalid path; {hint}"))
}

/// Handling of paths that origins read in different ways.
#[derive(Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Paths {
    #[default]
    Strict,
    Lenient,
    Raw,
}
