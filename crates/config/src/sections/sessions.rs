//! Section `sessions`.

use crate::scalars::Span;
use crate::section::{any, section};
use crate::serde_forms::word_or_keys;
use std::time::Duration;

/// Sessions of browsers: a word, or keys.
#[derive(Clone, Debug, Default)]
pub(crate) enum SessionsForm {
    #[default]
    Off,
    On(Sessions),
}

section! {
    /// Sessions of browsers.
    pub struct Sessions {
        /// Name of the cookie. Over http, where browsers refuse the prefix `__Host-`, it is sent without it.
        cookie: String = "__Host-tidegate".to_owned() => String, cookie_name;
        /// Time for which a session holds, from 1m to 24h.
        lifetime: Duration = Duration::from_secs(24 * 3600) => Span, at_most_a_day;
        /// false: shadow mode. The gateway sends cookies and logs sessions, but no refusal asks a browser to repeat the request,
        /// and no rule refuses a request because of the built-in class `stranger`.
        enforce: bool = true => bool, any;
    }
}

/// The keys that sign cookies are kept for two days.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 3600);
const MIN_LIFETIME: Duration = Duration::from_secs(60);

fn at_most_a_day(Span(span): &Span, _: Option<&Span>) -> Option<String> {
    let is_valid = (MIN_LIFETIME..=MAX_LIFETIME).contains(span);
    (!is_valid).then(|| "needs 1m to 24h; write a duration such as 24h".to_owned())
}

fn cookie_name(name: &String, _: Option<&String>) -> Option<String> {
    // The syntax of cookie names is that of header names (RFC 6265 section 4.1.1).
    let bare = name.strip_prefix("__Host-").unwrap_or(name);
    let is_valid = http::HeaderName::from_bytes(bare.as_bytes()).is_ok() && !bare.starts_with("__") && name.len() <= 64;
    (!is_valid).then(|| format!("invalid cookie name {name:?}; write it like __Host-tidegate"))
}

word_or_keys! {
    SessionsForm, "on, off or keys; use on or { lifetime: 24h }":
    "on" => Self::On(Sessions::default()),
    "off" => Self::Off,
    Sessions => Self::On
}
