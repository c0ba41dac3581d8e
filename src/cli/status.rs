//! `tidegate status`: shows the state of a running gateway.

mod budget;
mod quota;
mod render;
mod view;
mod watch;

pub use view::View;

use super::admin_client::AdminArgs;
use super::{CommandError, print};
use crate::admin::state::{QuotaDocument, StateDocument};
use clap::Args;
use http::Method;
use std::process::ExitCode;

/// Arguments of `tidegate status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// Prints the document of GET /api/v1/state.
    #[arg(long, conflicts_with_all = ["top", "watch"])]
    json: bool,
    /// Shows who asks for the most units, since the start of the last hour.
    #[arg(long)]
    top: bool,
    /// Shows the state again every 2 seconds, until Ctrl-C.
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Requests the state of a running gateway and prints it.
pub fn run(args: &StatusArgs) -> ExitCode {
    let page = if args.top { Page::Top } else { Page::State };
    let state = || args.admin.request(Method::GET, "/api/v1/state", "");
    if args.watch {
        let page = if args.top { Page::Top } else { Page::Watch };
        return watch::run(|view| text(&state()?, page, view));
    }
    let result = state().and_then(|body| if args.json { Ok(body) } else { text(&body, page, &View::for_stdout()) });
    match result {
        Ok(text) => print(&format!("{}\n", text.trim_end())),
        Err(error) => error.report(),
    }
}

/// What is shown of the state.
#[derive(Clone, Copy, Debug)]
pub enum Page {
    /// The whole state.
    State,
    /// The state in the order of what to watch: a small terminal shows the beginning.
    Watch,
    /// The quotas, and who asks for most.
    Top,
}

/// Renders the JSON state of the admin API as text.
pub fn text(body: &str, page: Page, view: &View) -> Result<String, CommandError> {
    let state: StateDocument = serde_json::from_str(body).map_err(|error| {
        CommandError::Failed(format!(
            "unreadable response of the gateway: {error}; check that it has the version of this command"
        ))
    })?;
    Ok(match page {
        Page::State => render::render(&state, view),
        Page::Watch => render::render_watched(&state, view),
        Page::Top => render::render_top(&state, view),
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
