//! Raw key `redirect` of a route: a target, or keys.

use crate::serde_forms::string_or_map;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// Redirect of a route: a target, or keys.
#[derive(Clone)]
pub(crate) struct RouteRedirect(pub RedirectKeys);

/// Redirect of a route.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RedirectKeys {
    /// Path on the same host, such as `/new`, or URL, such as `https://example.com/new`. A `{rest}` at its end becomes what
    /// `**` at the end of match has matched, without a slash at its start. The query of the request is kept, unless the
    /// target has a `?`. Required.
    pub to: Option<String>,
    /// Status: 301, 302, 303, 307 or 308. Default 301 for GET and HEAD, 308 for other methods, which keeps method and
    /// body.
    pub status: Option<u16>,
}

impl From<RedirectKeys> for RouteRedirect {
    fn from(keys: RedirectKeys) -> Self {
        Self(keys)
    }
}

impl<'de> Deserialize<'de> for RouteRedirect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "a target or keys; use /new, https://example.com/new or { to: /new, status: 302 }";
        string_or_map::<D, Self, RedirectKeys>(deserializer, needs, |word| {
            Some(Self(RedirectKeys { to: Some(word.to_owned()), status: None }))
        })
    }
}

impl JsonSchema for RouteRedirect {
    fn schema_name() -> Cow<'static, str> {
        "RouteRedirect".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let keys = generator.subschema_for::<RedirectKeys>();
        json_schema!({ "anyOf": [{ "type": "string" }, keys] })
    }
}
