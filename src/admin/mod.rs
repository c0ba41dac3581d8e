//! Admin listener: health, metrics, state, corrections and reload, on an address of its own, apart from client traffic.
//!
//! This module depends on the gateway only through [`GatewayApi`], and the gateway does not depend on it. With
//! `admin.token`, every request except `/healthz` and `/readyz` needs `Authorization: Bearer TOKEN` (401 otherwise);
//! `admin.read_token` permits requests that change nothing (403 otherwise). The live page holds no data and needs no
//! token; a browser that sends one gets a session.
//! Errors are problem documents (RFC 9457) whose `detail` has one line per error.

pub(crate) mod amount;
mod api;
mod audit_text;
mod auth;
pub(crate) mod cache;
mod client;
pub(crate) mod corrections;
mod decision;
pub mod endpoints;
mod events;
pub mod fields;
mod health;
mod history;
mod listener;
mod login;
mod page;
mod problem;
mod quotas;
mod server;
mod session;
pub(crate) mod state;
mod switches;
mod time;
mod usage;
mod wrong_tokens;

#[cfg(test)]
mod tests;

pub use amount::Amount;
pub use api::{GatewayApi, SwitchChange, WarmReceiver};
pub use auth::{AccessControl, AccessRules};
pub use cache::CacheDocument;
pub use client::{AdminClient, AdminClientError, AdminResponse};
pub use listener::{BoundListener, Listener};
pub use quotas::CorrectionResponse;
pub use state::{QuotaDocument, StateDocument};
pub use switches::MAX_SECONDS as MAX_SWITCH_SECONDS;
pub use usage::{UsageDocument, UsageRecord};

use axum::extract::{Extension, FromRef, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::{Router, middleware};
use corrections::Corrections;
use events::StateEvents;
use history::History;
use listener::OptionalPeer;
use problem::Problem;
use std::sync::Arc;
use std::time::Duration;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::timeout::TimeoutLayer;
use tracing::info;

type DynGateway = Arc<dyn GatewayApi>;

/// State of the request handlers.
#[derive(Clone)]
struct AdminState {
    gateway: DynGateway,
    corrections: Arc<Corrections>,
    events: Arc<StateEvents>,
    history: Arc<History>,
    access: Arc<AccessControl>,
}

impl FromRef<AdminState> for DynGateway {
    fn from_ref(state: &AdminState) -> Self {
        Arc::clone(&state.gateway)
    }
}

impl FromRef<AdminState> for Arc<Corrections> {
    fn from_ref(state: &AdminState) -> Self {
        Arc::clone(&state.corrections)
    }
}

impl FromRef<AdminState> for Arc<StateEvents> {
    fn from_ref(state: &AdminState) -> Self {
        Arc::clone(&state.events)
    }
}

impl FromRef<AdminState> for Arc<History> {
    fn from_ref(state: &AdminState) -> Self {
        Arc::clone(&state.history)
    }
}

impl FromRef<AdminState> for Arc<AccessControl> {
    fn from_ref(state: &AdminState) -> Self {
        Arc::clone(&state.access)
    }
}

/// Serves the admin listener until `shutdown` completes, and records the history of its page meanwhile.
pub async fn run(listener: Listener, gateway: DynGateway, access: AccessControl, shutdown: impl Future<Output = ()>) {
    let history = Arc::new(History::default());
    let router = router_with_history(Arc::clone(&gateway), access, Arc::clone(&history));
    tokio::select! {
        () = server::serve(listener, router, |error| gateway.record_accept_failure(error), shutdown) => {}
        () = history::run(history, Arc::clone(&gateway)) => {}
    }
}

/// Returns the routes of the admin listener.
pub fn router(gateway: DynGateway, access: AccessControl) -> Router {
    router_with_history(gateway, access, Arc::default())
}

fn router_with_history(gateway: DynGateway, access: AccessControl, history: Arc<History>) -> Router {
    let access = Arc::new(access);
    let corrections = Arc::new(Corrections::new(access.token.is_some()));
    let state = AdminState { gateway, corrections, events: Arc::default(), history, access: Arc::clone(&access) };
    let guarded = Router::new()
        .route("/metrics", get(metrics))
        .route("/api/v1/state", get(state::show))
        .route("/api/v1/events", get(events::stream))
        .route("/api/v1/history", get(history::show))
        .route("/api/v1/quotas", get(quotas::list))
        .route("/api/v1/quotas/{name}", get(quotas::show))
        .route("/api/v1/quotas/{name}/used", put(quotas::set_used))
        .route("/api/v1/quotas/{name}/reset", post(quotas::reset))
        .route("/api/v1/usage", get(usage::list))
        .route("/api/v1/usage/history", get(usage::history))
        .route("/api/v1/decisions", get(decision::list))
        .route("/api/v1/decisions/{id}", get(decision::show))
        .route("/api/v1/decisions/{id}/explanation", get(decision::explain))
        .route("/api/v1/switches", get(switches::list).post(switches::set))
        .route("/api/v1/switches/{target}", delete(switches::end))
        .route("/api/v1/cache", get(cache::show).delete(cache::purge))
        .route("/api/v1/cache/warm", post(cache::warm))
        .route("/api/v1/reload", post(reload))
        // Below the routes and above their handlers: an unauthorized request does not learn which paths exist, and the
        // health checks beside it stay open to orchestrators without a token.
        .fallback(async || StatusCode::NOT_FOUND)
        .layer(middleware::from_fn_with_state(access, auth::authorize));
    Router::new()
        .route("/healthz", get(health::liveness))
        .route("/readyz", get(health::readiness))
        .route("/api/v1/session", get(login::show).post(login::open).delete(login::close))
        .merge(page::routes())
        .merge(guarded)
        .with_state(state)
        .layer(RequestBodyLimitLayer::new(MAX_BODY_BYTES))
        .layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, REQUEST_TIMEOUT))
        // Above all layers that may reject a request, so that each error is a problem document.
        .layer(middleware::map_response(problem::replace_bare_error))
        .layer(fixed_header(X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .layer(fixed_header(CACHE_CONTROL, "no-store"))
        .layer(SetResponseHeaderLayer::if_not_present(
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
        ))
}

/// Returns the metrics in the Prometheus text format. Dashboard and alert rules for them are in `grafana/`.
async fn metrics(State(gateway): State<DynGateway>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], gateway.metrics()).into_response()
}

/// Reads the configuration again: 200 with `reloaded` and `summary`, or 422 with all errors; the current config then
/// stays.
async fn reload(
    State(gateway): State<DynGateway>,
    peer: OptionalPeer,
) -> Result<axum::Json<serde_json::Value>, Problem> {
    let peer = peer.map_or("an unknown address".to_owned(), |Extension(peer)| peer.to_string());
    info!(target: "audit", peer, "Configuration reload requested from {peer}");
    // A reload reads files, and must not block the control runtime.
    let result = tokio::task::spawn_blocking(move || gateway.reload()).await;
    match result {
        Ok(Ok(summary)) => Ok(axum::Json(serde_json::json!({ "reloaded": true, "summary": summary }))),
        Ok(Err(errors)) => Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("Configuration reload failed; the current configuration stays.\n{errors}"),
        )),
        Err(_) => Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "Configuration reload panicked; the current configuration stays.",
        )),
    }
}

fn fixed_header(name: axum::http::HeaderName, value: &'static str) -> SetResponseHeaderLayer<HeaderValue> {
    SetResponseHeaderLayer::overriding(name, HeaderValue::from_static(value))
}

/// Maximum size of a request body. The largest valid body is a number with a name.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// Maximum duration of a request. All responses come from memory, except that of a reload.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
