//! The admin listener: is the gate well, what is it doing, and a few things to tell it. A port of its own, never the
//! data plane's.
//!
//! It knows the gate only as [`GatewayApi`], so that what serves requests knows nothing of what watches it.

mod api;
mod auth;
mod client;
mod corrections;
mod decision;
mod health;
mod problem;
mod quotas;
mod state;

#[cfg(test)]
mod tests;

pub use api::{GatewayApi, ListenAddresses, ScopeView, SettingsView};
pub use auth::AccessControl;
pub use client::{AdminClientError, AdminResponse, Client};

use axum::Router;
use axum::extract::{FromRef, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use corrections::Corrections;
use problem::Problem;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::timeout::TimeoutLayer;

type Gate = Arc<dyn GatewayApi>;

/// What is at hand for an answer.
#[derive(Clone)]
struct AdminState {
    gate: Gate,
    corrections: Arc<Corrections>,
}

impl FromRef<AdminState> for Gate {
    fn from_ref(shared: &AdminState) -> Self {
        Arc::clone(&shared.gate)
    }
}

impl FromRef<AdminState> for Arc<Corrections> {
    fn from_ref(shared: &AdminState) -> Self {
        Arc::clone(&shared.corrections)
    }
}

/// Answers on `listener` until `end` comes; requests under way are finished.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    end: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).with_graceful_shutdown(end).await
}

/// All that the admin listener answers.
pub fn router(gate: Gate, access: AccessControl) -> Router {
    let shared = AdminState { gate, corrections: Arc::new(Corrections::new(access.token.is_some())) };
    let guarded = Router::new()
        .route("/metrics", get(metrics))
        .route("/api/v1/state", get(state::show))
        .route("/api/v1/quotas", get(quotas::list))
        .route("/api/v1/quotas/{name}", get(quotas::show))
        .route("/api/v1/quotas/{name}/used", put(quotas::set_used))
        .route("/api/v1/quotas/{name}/reset", post(quotas::reset))
        .route("/api/v1/decisions/{id}", get(decision::show))
        .route("/api/v1/decisions/{id}/explanation", get(decision::explain))
        .route("/api/v1/reload", post(reload))
        // Below the routes and above their handlers: who may not ask does not learn what there is to ask, and the
        // health checks beside it stay open to orchestrators that hold no token.
        .fallback(async || StatusCode::NOT_FOUND)
        .layer(middleware::from_fn_with_state(Arc::new(access), auth::authorize));
    Router::new()
        .route("/healthz", get(health::liveness))
        .route("/readyz", get(health::readiness))
        .merge(guarded)
        .with_state(shared)
        .layer(RequestBodyLimitLayer::new(BODY_BYTES_MAX))
        .layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, ANSWER_WITHIN))
        // Above everything that may say no, so that each error is a problem document.
        .layer(middleware::map_response(problem::explain))
        .layer(fixed(X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .layer(fixed(CACHE_CONTROL, "no-store"))
        .layer(fixed(CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"))
}

async fn metrics(State(gate): State<Gate>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], gate.metrics()).into_response()
}

async fn reload(State(gate): State<Gate>) -> Result<axum::Json<serde_json::Value>, Problem> {
    // Reads files; the control runtime has other things to do meanwhile.
    let told = tokio::task::spawn_blocking(move || gate.reload()).await;
    match told {
        Ok(Ok(summary)) => Ok(axum::Json(serde_json::json!({ "reloaded": true, "summary": summary }))),
        Ok(Err(mistakes)) => Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("The settings are wrong; the old ones stay in force.\n{mistakes}"),
        )),
        Err(_) => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "The reload broke off; the old settings stay.")),
    }
}

fn fixed(name: axum::http::HeaderName, value: &'static str) -> SetResponseHeaderLayer<HeaderValue> {
    SetResponseHeaderLayer::overriding(name, HeaderValue::from_static(value))
}

/// The largest body that anybody needs to send here is a number.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Everything here answers from memory; only a reload reads files.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
