//! Raw section `error_pages`: bodies of the gateway's own error responses.

use crate::scalars::FilePath;
use crate::serde_forms::string_or_map;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// Bodies of the error responses with a status: an HTML file, or keys.
#[derive(Clone)]
pub(crate) enum ErrorBodies {
    Html(FilePath),
    Forms(ErrorForms),
}

/// Bodies of the error responses with a status.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ErrorForms {
    /// HTML file, for clients that accept HTML. Default: that of the class of statuses, else a short page of the gateway.
    pub html: Option<FilePath>,
    /// Body for all other clients: problem, openai, anthropic or a JSON file. Default: that of the class of statuses, else
    /// problem.
    ///
    /// problem is problem+json. openai and anthropic are the errors of these APIs, which their SDKs raise as errors of rate
    /// limits (429), authentication (401) and permission (403). The SDKs wait for Retry-After and repeat the request; where it is
    /// more than a minute, `x-should-retry: false` lets them raise the error at once. Write ./openai for a file of that name.
    pub json: Option<FilePath>,
}

impl From<ErrorForms> for ErrorBodies {
    fn from(forms: ErrorForms) -> Self {
        Self::Forms(forms)
    }
}

impl<'de> Deserialize<'de> for ErrorBodies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "a file or keys; use pages/busy.html or { html: pages/busy.html, json: openai }";
        string_or_map::<D, Self, ErrorForms>(deserializer, needs, |word| FilePath::parse(word).map(Self::Html))
    }
}

impl JsonSchema for ErrorBodies {
    fn schema_name() -> Cow<'static, str> {
        "ErrorBodies".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (file, forms) = (generator.subschema_for::<FilePath>(), generator.subschema_for::<ErrorForms>());
        json_schema!({ "anyOf": [file, forms] })
    }
}
