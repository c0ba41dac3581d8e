//! `tidegate status`: shows the state of a running gateway.

mod quota;
mod render;
mod view;

pub use view::View;

use super::admin_client::AdminArgs;
use super::{CommandError, print};
use crate::admin::state::{QuotaDocument, StateDocument};
use http::Method;
use std::process::ExitCode;

/// Requests the state of a running gateway and prints it.
pub fn run(admin: &AdminArgs, json: bool) -> ExitCode {
    let result = admin.request(Method::GET, "/api/v1/state", "").and_then(|body| match json {
        true => Ok(body),
        false => text(&body, &View::for_stdout()),
    });
    match result {
        Ok(text) => print(&format!("{}\n", text.trim_end())),
        Err(error) => error.report(),
    }
}

/// Renders the JSON state of the admin API as text.
pub fn text(body: &str, view: &View) -> Result<String, CommandError> {
    let result = serde_json::from_str::<StateDocument>(body);
    result.map(|state| render::render(&state, view)).map_err(|error| {
        CommandError::Failed(format!(
            "unreadable response of the gateway: {error}; check that it has the version of this command"
        ))
    })
}

/// Renders quotas as text.
pub(super) fn quotas(quotas: &[QuotaDocument], view: &View) -> String {
    let blocks: Vec<String> = quotas.iter().map(|quota| quota::block(quota, None, view)).collect();
    match blocks.is_empty() {
        true => "The current configuration has no quotas.\n".into(),
        false => blocks.join("\n"),
    }
}

#[cfg(test)]
mod tests;
