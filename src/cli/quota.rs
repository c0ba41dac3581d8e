//! `tidegate quota`: shows and corrects the quotas of a running gateway.

use super::admin_client::AdminArgs;
use super::status::{self, View};
use super::{CommandError, environment, path_segment, print, user};
use crate::admin::CorrectionResponse;
use clap::Subcommand;
use http::Method;
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;
use tidegate_policy::Units;

/// Subcommands of `tidegate quota`.
#[derive(Clone, Debug, Subcommand)]
pub enum QuotaCommand {
    /// Shows one or all quotas: used, reserved and remaining units, end of the window, units charged by class.
    Show {
        /// Name of the quota (default: all).
        name: Option<String>,
        /// Prints the document of GET /api/v1/quotas or /api/v1/quotas/NAME.
        #[arg(long)]
        json: bool,
        /// Address and token of the admin listener.
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Sets the usage of the current window.
    ///
    /// The window continues; only its usage changes. An enforced quota accepts 0 to its limit, less the units reserved
    /// for requests in flight (the output says so); a quota with `enforce: false` may exceed its limit. Ends the Redis
    /// recovery of the quota and a closure by the origin. The command sends the user name (before sudo) as `by`.
    Set {
        /// Name of the quota.
        name: String,
        /// Used units, such as 1200 or 12.25, from 0 to the limit.
        #[arg(allow_negative_numbers = true)]
        used: String,
        /// Prints the response of the admin API.
        #[arg(long)]
        json: bool,
        /// Address and token of the admin listener.
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Sets the usage of the current window to 0, so that the full limit is available again.
    Reset {
        /// Name of the quota.
        name: String,
        /// Prints the response of the admin API.
        #[arg(long)]
        json: bool,
        /// Address and token of the admin listener.
        #[command(flatten)]
        admin: AdminArgs,
    },
}

/// Shows or corrects quotas of a running gateway.
pub fn run(command: &QuotaCommand) -> ExitCode {
    let result = match command {
        QuotaCommand::Show { name, json, admin } => show(admin, name.as_deref(), *json),
        QuotaCommand::Set { name, used, json, admin } => {
            let body = json!({ "used": used, "by": user::name(&environment()) });
            let response = admin.request(Method::PUT, &format!("{}/used", path(name)), &body.to_string());
            response.and_then(|response| if *json { Ok(response) } else { correction_line(&response, Some(used)) })
        }
        QuotaCommand::Reset { name, json, admin } => {
            let response = admin.request(
                Method::POST,
                &format!("{}/reset", path(name)),
                &json!({ "by": user::name(&environment()) }).to_string(),
            );
            response.and_then(|response| if *json { Ok(response) } else { correction_line(&response, None) })
        }
    };
    match result {
        Ok(text) => print(&format!("{}\n", text.trim_end())),
        Err(error) => error.report(),
    }
}

fn show(admin: &AdminArgs, name: Option<&str>, json: bool) -> Result<String, CommandError> {
    let response = admin.request(Method::GET, &name.map_or_else(|| PATH.to_owned(), path), "")?;
    if json {
        return Ok(response);
    }
    let result = match name {
        Some(_) => serde_json::from_str(&response).map(|quota| vec![quota]),
        None => serde_json::from_str(&response),
    };
    Ok(status::quotas(&parse_response(result)?, &View::for_stdout()))
}

/// Renders a correction as one line: the new and old usage, and why the new one differs from the requested one.
fn correction_line(response: &str, requested: Option<&str>) -> Result<String, CommandError> {
    let CorrectionResponse { name, from, to } = parse_response(serde_json::from_str(response))?;
    let mut text = format!("{name}: {to} used, {from} before");
    let requested: Option<Units> = requested.and_then(|requested| requested.parse().ok());
    if let Some(requested) = requested.filter(|requested| to.units() != Some(*requested)) {
        let _ = write!(text, "; not {requested}: the rest is reserved for requests in flight");
    }
    Ok(text)
}

fn parse_response<T>(result: serde_json::Result<T>) -> Result<T, CommandError> {
    result.map_err(|error| {
        CommandError::Failed(format!(
            "unreadable response of the gateway: {error}; check that it has the version of this command"
        ))
    })
}

fn path(name: &str) -> String {
    format!("{PATH}/{}", path_segment(name))
}

const PATH: &str = "/api/v1/quotas";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correction_output_shows_old_new_and_requested_value() {
        let response = r#"{"name": "api", "from": 12.25, "to": 1200}"#;
        assert_eq!(correction_line(response, Some("1200")).as_deref(), Ok("api: 1,200 used, 12.25 before"));
        assert_eq!(correction_line(response, None).as_deref(), Ok("api: 1,200 used, 12.25 before"));
        let expected = "api: 1,200 used, 12.25 before; not 1203: the rest is reserved for requests in flight";
        assert_eq!(correction_line(response, Some("1203")).as_deref(), Ok(expected));
        assert!(matches!(correction_line("[]", None), Err(CommandError::Failed(_))));
    }

    #[test]
    fn quota_name_is_escaped_in_the_path() {
        assert_eq!(path("places_api-2"), "/api/v1/quotas/places_api-2");
        assert_eq!(path("../state?a b"), "/api/v1/quotas/%2E%2E%2Fstate%3Fa%20b");
    }
}
