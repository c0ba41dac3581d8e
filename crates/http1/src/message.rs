//! HTTP messages, independent of the version.

use super::fields::Fields;
use http::{Method, StatusCode, Uri, Version};

/// An HTTP request.
#[derive(Debug)]
pub struct Request<B> {
    /// Head of the request.
    pub head: RequestHead,
    /// Body of the request.
    pub body: B,
}

/// A request without its body.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// Request method.
    pub method: Method,
    /// Request target.
    pub target: Uri,
    /// HTTP version of the sender.
    pub version: Version,
    /// Header fields.
    pub fields: Fields,
}

/// An HTTP response.
#[derive(Debug)]
pub struct Response<B> {
    /// Response status.
    pub status: StatusCode,
    /// Header fields.
    pub fields: Fields,
    /// Response body.
    pub body: B,
}
