//! Responses to other proxies.

use super::{JSON, PROBLEM_JSON};
use crate::gateway::message::forward_auth::{AskedRequestError, SettledCosts, SettlementError, WebPageError};
use crate::gateway::message::response_body::ResponseBody;
use http::StatusCode;
use serde_json::{Map, Number, Value, json};
use tidegate_access_log::hexadecimal;
use tidegate_http1::{Fields, Name, Response};
use tidegate_policy::Units;

/// Field with the status of a refusal that is sent as 403.
const STATUS: &str = "x-tidegate-status";

/// Reason why a request of another proxy is not answered.
#[derive(Debug, thiserror::Error)]
pub(in crate::gateway) enum ProxyRequestError {
    /// A peer that is no trusted proxy.
    #[error("the peer is neither a loopback address nor one of clients.trusted_proxies")]
    Peer,
    /// A web page may have sent the request.
    #[error(transparent)]
    WebPage(WebPageError),
    /// A reload has removed the section.
    #[error("forward_auth is no longer configured")]
    Off,
    /// No request is named, or several.
    #[error(transparent)]
    Name(AskedRequestError),
    /// A report of a cost is not valid.
    #[error(transparent)]
    Settlement(SettlementError),
}

impl ProxyRequestError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Peer | Self::WebPage(_) => StatusCode::FORBIDDEN,
            Self::Off => StatusCode::SERVICE_UNAVAILABLE,
            Self::Name(_) => StatusCode::BAD_REQUEST,
            Self::Settlement(error) => match error {
                SettlementError::Method => StatusCode::METHOD_NOT_ALLOWED,
                SettlementError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
                SettlementError::Incomplete | SettlementError::Json(_) => StatusCode::BAD_REQUEST,
                SettlementError::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
                SettlementError::Unknown => StatusCode::NOT_FOUND,
            },
        }
    }
}

/// Returns the problem document of `error`, with decision `id`.
pub(in crate::gateway) fn proxy_request_error(error: &ProxyRequestError, id: u64) -> Response<ResponseBody> {
    let status = error.status();
    let id = hexadecimal(id);
    let document = json!({
        "type": "about:blank",
        "title": status.canonical_reason(),
        "status": status.as_u16(),
        "detail": error.to_string(),
    });
    let mut response = document_response(status, PROBLEM_JSON, &document);
    response.fields.append(Name::Decision, &id);
    if matches!(error, ProxyRequestError::Settlement(SettlementError::Method)) {
        response.fields.append(Name::Allow, b"POST");
    }
    response
}

/// Returns the charges of a settled decision.
pub(in crate::gateway) fn settled(decision: u64, charges: &SettledCosts) -> Response<ResponseBody> {
    let charged: Map<String, Value> = charges.iter().map(|(quota, units)| (quota.clone(), number(*units))).collect();
    let id = hexadecimal(decision);
    let id = std::str::from_utf8(&id).expect("hexadecimal digits");
    document_response(StatusCode::OK, JSON, &json!({ "decision": id, "charged": charged }))
}

/// Returns a refusal as 403, with its status in `X-Tidegate-Status`.
pub(in crate::gateway) fn forbidden(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    response.fields.append_text(STATUS, response.status.as_str().as_bytes());
    response.status = StatusCode::FORBIDDEN;
    response
}

/// Returns whole units as an integer.
pub(super) fn number(units: Units) -> Value {
    match units.milli() % 1000 {
        0 => units.floor().into(),
        _ => Number::from_f64(units.as_f64()).map_or(Value::Null, Value::Number),
    }
}

pub(super) fn document_response(status: StatusCode, kind: &[u8], document: &Value) -> Response<ResponseBody> {
    let mut fields = Fields::new();
    fields.append(Name::ContentType, kind);
    fields.append(Name::CacheControl, b"no-store");
    Response { status, fields, body: ResponseBody::full(format!("{document}\n")) }
}
