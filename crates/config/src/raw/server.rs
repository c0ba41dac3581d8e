//! Raw sections `admin` and `robots`, and the key `paths`.

use crate::scalars::{AdminSocket, FilePath};
use crate::serde_forms::{SecretText, word_or_keys};
use schemars::JsonSchema;
use serde::Deserialize;

/// Listener for the administrator.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Admin {
    /// Address and port, or `unix:/path` of a Unix socket. If it is 0.0.0.0 or `[::]`, the commands connect to loopback. A
    /// Unix socket admits the user and the group of the gateway. Default 127.0.0.1:9090.
    pub listen: Option<AdminSocket>,
    /// Bearer token that requests must send; required beyond loopback. Without a token the listener accepts only
    /// requests whose Host is localhost, a loopback address or the listen address; it refuses requests that a browser
    /// page of another site sends. At least 16 characters. Default none.
    pub token: Option<SecretText>,
    /// Bearer token for requests that change nothing, such as those of Prometheus and `tidegate status`. At least 16
    /// characters; requires token. Default none.
    pub read_token: Option<SecretText>,
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

/// Handling of robots.txt.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Robots {
    /// true: writes each crawl_delay into robots.txt. Default true.
    pub merge_crawl_delay: Option<bool>,
    /// File that replaces the origin's robots.txt on every host. It is read every second. An emptied file takes effect
    /// after a second, if it is still empty, because many editors truncate a file before writing it. It is the response
    /// to GET and HEAD only; requests with other methods are forwarded to the origin. Default none.
    pub override_file: Option<FilePath>,
    /// Path that robots.txt disallows and no page links to: a request for it is a bot signal. The gateway adds the
    /// Disallow line itself. Letters, digits, `/`, `-`, `_` and `.` only, such as /private-area. Link to it from no
    /// page. Default none.
    pub honeypot: Option<String>,
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
