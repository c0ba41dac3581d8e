//! `tidegate status`: all of a running gate at a glance.

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

/// Asks a running gate for its state and shows it.
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

/// The state, as the admin API tells it in JSON, for people to read.
pub fn text(said: &str, view: &View) -> Result<String, CommandError> {
    let read = serde_json::from_str::<State>(said);
    read.map(|state| render::render(&state, view)).map_err(|error| {
        CommandError::Failed(format!("the gate's answer cannot be read: {error}; is it of this version?"))
    })
}

/// Quotas alone, for people to read.
pub(super) fn quotas(quotas: &[Quota], view: &View) -> String {
    let blocks: Vec<String> = quotas.iter().map(|of| quota::block(of, None, view)).collect();
    match blocks.is_empty() {
        true => "The settings in force have no quota.\n".into(),
        false => blocks.join("\n"),
    }
}

#[cfg(test)]
mod tests;
