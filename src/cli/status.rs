//! `tidegate status`: shows the state of a running gateway.

mod quota;
mod render;
mod state;
mod view;

pub use state::Amount;
pub use view::View;

use super::admin_client::AdminArgs;
use super::{CommandError, print};
use http::Method;
use state::{Quota, State};
use std::process::ExitCode;

/// Requests the state of a running gateway and prints it.
pub fn run(gate: &AdminArgs, json: bool) -> ExitCode {
    let shown = gate.request(Method::GET, "/api/v1/state", "").and_then(|said| match json {
        true => Ok(said),
        false => text(&said, &View::for_stdout()),
    });
    match shown {
        Ok(text) => print(&format!("{}\n", text.trim_end())),
        Err(why) => why.report(),
    }
}

/// Renders the JSON state of the admin API as text.
pub fn text(said: &str, view: &View) -> Result<String, CommandError> {
    let read = serde_json::from_str::<State>(said);
    read.map(|state| render::render(&state, view)).map_err(|error| {
        CommandError::Failed(format!(
            "unreadable response of the gateway: {error}; check that it has the version of this command"
        ))
    })
}

/// Renders quotas as text.
pub(super) fn quotas(quotas: &[Quota], view: &View) -> String {
    let blocks: Vec<String> = quotas.iter().map(|of| quota::block(of, None, view)).collect();
    match blocks.is_empty() {
        true => "The current configuration has no quotas.\n".into(),
        false => blocks.join("\n"),
    }
}

#[cfg(test)]
mod tests;
