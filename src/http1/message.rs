//! Messages as they pass through the gate, of any version of HTTP.

use super::fields::Fields;
use http::{Method, StatusCode, Uri, Version};

/// A request.
#[derive(Debug)]
pub struct Request<B> {
    /// All but its body.
    pub head: RequestHead,
    /// Its body.
    pub body: B,
}

/// A request without its body.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// What is to be done.
    pub method: Method,
    /// With what.
    pub target: Uri,
    /// What the sender speaks.
    pub version: Version,
    /// Its header fields.
    pub fields: Fields,
}

/// An answer.
#[derive(Debug)]
pub struct Response<B> {
    /// How it went.
    pub status: StatusCode,
    /// Its header fields.
    pub fields: Fields,
    /// Its body.
    pub body: B,
}
