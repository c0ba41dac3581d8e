//! Types of the HTTP/1.1 connections to the origin.

use super::request_body::RequestBody;
use super::stream::OriginStream;
use tidegate_http1::client;

/// An idle connection to the origin.
pub(super) type Connection = client::Connection<OriginStream>;
/// Response body of the origin.
pub(in crate::gateway) type OriginBody = client::ResponseBody<OriginStream, RequestBody>;
