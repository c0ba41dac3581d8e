//! Why was I refused? The line of a decision, as long as it is remembered.

use super::Gate;
use super::problem::Problem;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

/// The access-log line of decision `id`, an id as in `X-Tidegate-Decision`.
pub(super) async fn show(State(gate): State<Gate>, Path(id): Path<String>) -> Result<Response, Problem> {
    // Digits only: the parser would take a sign, too.
    let well_formed = id.len() == 16 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
    let Some(number) = u64::from_str_radix(&id, 16).ok().filter(|_| well_formed) else {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "A decision id is 16 hexadecimal digits."));
    };
    match gate.decision(number) {
        Some(line) => Ok(([(CONTENT_TYPE, "application/json")], line).into_response()),
        None => Err(Problem::new(StatusCode::NOT_FOUND, "Nobody remembers this decision; the access log may.")),
    }
}
