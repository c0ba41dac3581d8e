//! Switches of the admin API: block, allow and maintenance. Each change is logged (target `audit`).

use super::audit_text::{self, MAX_NAME};
use super::listener::OptionalPeer;
use super::problem::Problem;
use super::state::SwitchDocument;
use super::{AccessControl, DynGateway, SwitchChange};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tidegate_engine::switch_store::{MAINTENANCE, MAX_EXCEPTIONS, MAX_TEXT_BYTES};
use tidegate_policy::network::IpPrefix;
use tidegate_policy::switches::SwitchEffect;
use tracing::info;

/// Body of `POST /api/v1/switches`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchBody {
    target: String,
    effect: String,
    for_s: Option<u64>,
    #[serde(default)]
    except: Vec<String>,
    why: Option<String>,
    by: Option<String>,
}

/// Body of `DELETE /api/v1/switches/{target}`: empty, or an optional name `by`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndBody {
    by: Option<String>,
}

/// Lists the switches in effect.
pub(super) async fn list(State(gateway): State<DynGateway>) -> Json<Value> {
    Json(json!({ "switches": gateway.state().switches }))
}

/// Sets a switch, which replaces one of the same target. Responds with the switch.
pub(super) async fn set(
    State(gateway): State<DynGateway>,
    State(access): State<Arc<AccessControl>>,
    peer: OptionalPeer,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    let sent: SwitchBody = serde_json::from_slice(&body).map_err(|error| {
        invalid(format!(
            r#"body: {error}; send {{"target": "192.0.2.0/24", "effect": "block", "for_s": 3600, "why": "TEXT"}}"#
        ))
    })?;
    let change = sent.check().map_err(invalid)?;
    change_switch(&gateway, &access, SwitchChange { peer: peer_name(peer), ..change })
}

/// Ends a switch. Responds with its target.
pub(super) async fn end(
    State(gateway): State<DynGateway>,
    State(access): State<Arc<AccessControl>>,
    Path(target): Path<String>,
    peer: OptionalPeer,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    let sent: EndBody = match body.is_empty() {
        true => EndBody::default(),
        false => serde_json::from_slice(&body)
            .map_err(|error| invalid(format!(r#"body: {error}; send an empty body or {{"by": "NAME"}}"#)))?,
    };
    audit_text::check("by", sent.by.as_deref(), MAX_NAME).map_err(invalid)?;
    let change = SwitchChange {
        target,
        effect: None,
        lasts: None,
        except: Vec::new(),
        why: None,
        by: sent.by,
        peer: peer_name(peer),
    };
    change_switch(&gateway, &access, change)
}

fn change_switch(gateway: &DynGateway, access: &AccessControl, change: SwitchChange) -> Result<Json<Value>, Problem> {
    let document = gateway.change_switch(change).map_err(invalid)?;
    let SwitchDocument { target, effect, until, except, why, by, peer, .. } = &document;
    info!(
        target: "audit",
        switch = target, effect, until, why, by, peer, ?except, token = access.token.is_some(),
        "Switch of {target}: {effect}{}, by {}",
        until.as_ref().map(|until| format!(" until {until}")).unwrap_or_default(),
        by.as_deref().map_or("unknown".to_owned(), |by| format!("{by} (unverified)")),
    );
    Ok(Json(json!(document)))
}

impl SwitchBody {
    /// Returns the change, or all errors, one per line.
    fn check(self) -> Result<SwitchChange, String> {
        let effect = SwitchEffect::from_name(&self.effect);
        let is_maintenance = effect == Some(SwitchEffect::Maintenance);
        let mut errors = Vec::new();
        if effect.is_none() {
            errors.push(format!("effect: found {:?}; give block, allow or maintenance", self.effect));
        }
        if is_maintenance && self.target != MAINTENANCE {
            errors.push(format!("target: found {:?}; maintenance has the target {MAINTENANCE}", self.target));
        }
        match self.for_s {
            Some(1..=MAX_SECONDS) => {}
            None if is_maintenance => {}
            Some(seconds) => errors.push(format!("for_s: found {seconds}; give 1 to {MAX_SECONDS} (30 days)")),
            None => errors.push("for_s: missing; give the duration in seconds".to_owned()),
        }
        errors.extend(audit_text::check("why", self.why.as_deref(), MAX_REASON).err());
        if self.why.is_none() && !is_maintenance {
            errors.push("why: missing; give a reason, which the audit log and the status show".to_owned());
        }
        errors.extend(audit_text::check("by", self.by.as_deref(), MAX_NAME).err());
        if !self.except.is_empty() && !is_maintenance {
            errors.push("except: only for maintenance".to_owned());
        }
        if self.except.len() > MAX_EXCEPTIONS {
            errors.push(format!("except: found {} networks; give at most {MAX_EXCEPTIONS}", self.except.len()));
        }
        let is_unknown = |network: &&String| IpPrefix::parse(network).is_none();
        errors.extend(
            self.except
                .iter()
                .filter(is_unknown)
                .take(MAX_EXCEPTIONS)
                .map(|text| format!("except: found {text:?}; give an address or a network such as 192.0.2.0/24")),
        );
        let Self { target, except, why, by, .. } = self;
        match errors.is_empty() {
            true => {
                let lasts = self.for_s.map(Duration::from_secs);
                Ok(SwitchChange { target, effect, lasts, except, why, by, peer: None })
            }
            false => Err(errors.join("\n")),
        }
    }
}

fn peer_name(peer: OptionalPeer) -> Option<String> {
    peer.map(|Extension(peer)| peer.to_string())
}

fn invalid(detail: String) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
}

/// Maximum duration of a switch, 30 days: a longer rule belongs into the configuration.
pub const MAX_SECONDS: u64 = 30 * 24 * 3600;

/// Maximum length of a reason, in characters of up to four bytes.
const MAX_REASON: usize = MAX_TEXT_BYTES / 4;
