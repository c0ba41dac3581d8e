//! Types of the HTTP/1.1 connections to the origin.

use super::request_body::RequestBody;
use tidegate_http1::client;
use tokio::net::TcpStream;

/// An idle connection to the origin.
pub(super) type Connection = client::Connection<TcpStream>;
/// Response body of the origin.
pub(in crate::gateway) type OriginBody = client::ResponseBody<TcpStream, RequestBody>;
