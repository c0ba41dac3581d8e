//! The live page: static files that hold no data. Their script reads the admin API, and sends nothing elsewhere.

use super::AdminState;
use axum::Router;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::LazyLock;
use tidegate_policy::Reason;

/// Returns the routes of the page.
pub(super) fn routes() -> Router<AdminState> {
    Router::new()
        .route("/", get(async || file("text/html; charset=utf-8", INDEX.as_str())))
        .route("/page.css", get(async || file("text/css; charset=utf-8", include_str!("page/page.css"))))
        .route("/page.js", get(async || file("text/javascript; charset=utf-8", include_str!("page/page.js"))))
        .route("/charts.js", get(async || file("text/javascript; charset=utf-8", include_str!("page/charts.js"))))
        .route("/dom.js", get(async || file("text/javascript; charset=utf-8", include_str!("page/dom.js"))))
        .route("/icon.svg", get(async || file("image/svg+xml", include_str!("page/icon.svg"))))
}

/// The page, with the reasons of refusals to choose from.
static INDEX: LazyLock<String> = LazyLock::new(|| {
    let options: String = Reason::ALL.map(|reason| format!("<option>{}</option>", reason.name())).concat();
    include_str!("page/index.html").replace("{reasons}", &options)
});

fn file(content_type: &'static str, text: &'static str) -> Response {
    ([(CONTENT_TYPE, content_type), (CONTENT_SECURITY_POLICY, POLICY)], text).into_response()
}

/// Files and requests of this listener only; no inline scripts or styles.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'none'; base-uri 'none'; frame-ancestors 'none'";
