//! The live page: static files that hold no data. Their scripts read the admin API, and send nothing elsewhere.

use super::AdminState;
use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::LazyLock;
use tidegate_policy::Reason;

/// Returns the routes of the page.
pub(super) fn routes() -> Router<AdminState> {
    Router::new()
        .route("/", get(async || response("text/html; charset=utf-8", INDEX.as_str())))
        .route("/page/{file}", get(async |Path(name): Path<String>| file(&name)))
}

/// The page, with the reasons of refusals to choose from.
static INDEX: LazyLock<String> = LazyLock::new(|| {
    let options: String = Reason::ALL.map(|reason| format!("<option>{}</option>", reason.name())).concat();
    include_str!("page/index.html").replace("{reasons}", &options)
});

fn file(name: &str) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some((_, content_type, text)) => response(content_type, text),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn response(content_type: &'static str, text: &'static str) -> Response {
    ([(CONTENT_TYPE, content_type), (CONTENT_SECURITY_POLICY, POLICY)], text).into_response()
}

macro_rules! files {
    ($($name:literal $content_type:expr;)*) => { &[$(($name, $content_type, include_str!(concat!("page/", $name)))),*] };
}

/// Name, type and content of each file of the page.
pub(super) const FILES: &[(&str, &str, &str)] = files! {
    "icon.svg" "image/svg+xml";
    "page.css" "text/css; charset=utf-8";
    "page.js" SCRIPT;
    "actions.js" SCRIPT;
    "address.js" SCRIPT;
    "axis.js" SCRIPT;
    "charts.js" SCRIPT;
    "decisions.js" SCRIPT;
    "dom.js" SCRIPT;
    "format.js" SCRIPT;
    "origin.js" SCRIPT;
    "quotas.js" SCRIPT;
    "samples.js" SCRIPT;
    "table.js" SCRIPT;
    "traffic.js" SCRIPT;
};

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Files and requests of this listener only; no inline scripts or styles.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'none'; base-uri 'none'; frame-ancestors 'none'";
