//! `tidegate block`, `allow` and `maintenance`: switches of a running gateway.

use super::admin_client::AdminArgs;
use super::{CommandError, environment, path_segment, print, user};
use crate::admin::MAX_SWITCH_SECONDS;
use crate::admin::state::SwitchDocument;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;
use tidegate_config::duration;

/// Arguments of `tidegate block` and `tidegate allow`.
#[derive(Clone, Debug, Args)]
pub(super) struct SwitchArgs {
    /// Address, network, operator or class, such as 192.0.2.7, 2001:db8::/48, googlebot or class:bot.
    target: String,
    /// Duration, such as 1h or 30m; at most 30 days.
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration, required_unless_present = "end")]
    lasts: Option<Duration>,
    /// Reason, for the audit log and the status.
    #[arg(long, value_name = "TEXT", required_unless_present = "end")]
    why: Option<String>,
    /// Ends the switch of the target.
    #[arg(long, conflicts_with_all = ["lasts", "why"])]
    end: bool,
    /// Prints the response of the admin API.
    #[arg(long)]
    json: bool,
    /// Address and token of the admin listener.
    #[command(flatten)]
    admin: AdminArgs,
}

/// Subcommands of `tidegate maintenance`.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum MaintenanceCommand {
    /// Begins maintenance: clients get 503 and a page of its own, with the announced end as Retry-After.
    On {
        /// Announced duration, such as 1h or 30m, after which it ends (default: until `maintenance off`).
        #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
        lasts: Option<Duration>,
        /// Reason, for the audit log and the status.
        #[arg(long, value_name = "TEXT")]
        why: Option<String>,
        /// Address or network that is served meanwhile; may be repeated.
        #[arg(long, value_name = "NETWORK")]
        except: Vec<String>,
        /// Prints the response of the admin API.
        #[arg(long)]
        json: bool,
        /// Address and token of the admin listener.
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Ends maintenance.
    Off {
        /// Prints the response of the admin API.
        #[arg(long)]
        json: bool,
        /// Address and token of the admin listener.
        #[command(flatten)]
        admin: AdminArgs,
    },
}

/// Sets or ends the switch `effect` (`block` or `allow`) of a target.
pub(super) fn run(args: &SwitchArgs, effect: &str) -> ExitCode {
    let SwitchArgs { target, lasts, why, end, json, admin } = args;
    let response = match end {
        true => end_switch(admin, target),
        false => set(
            admin,
            &json!({
                "target": target, "effect": effect, "for_s": lasts.map(|lasts| lasts.as_secs()), "why": why,
                "by": user::name(&environment()),
            }),
        ),
    };
    report(response, *json)
}

/// Begins or ends maintenance.
pub(super) fn run_maintenance(command: &MaintenanceCommand) -> ExitCode {
    match command {
        MaintenanceCommand::On { lasts, why, except, json, admin } => report(
            set(
                admin,
                &json!({
                    "target": "maintenance", "effect": "maintenance", "for_s": lasts.map(|lasts| lasts.as_secs()),
                    "why": why, "except": except, "by": user::name(&environment()),
                }),
            ),
            *json,
        ),
        MaintenanceCommand::Off { json, admin } => report(end_switch(admin, "maintenance"), *json),
    }
}

fn set(admin: &AdminArgs, body: &serde_json::Value) -> Result<String, CommandError> {
    admin.request(Method::POST, PATH, &body.to_string())
}

fn end_switch(admin: &AdminArgs, target: &str) -> Result<String, CommandError> {
    let body = json!({ "by": user::name(&environment()) });
    admin.request(Method::DELETE, &format!("{PATH}/{}", path_segment(target)), &body.to_string())
}

fn report(response: Result<String, CommandError>, json: bool) -> ExitCode {
    let text = response.and_then(|response| if json { Ok(response) } else { summary(&response) });
    match text {
        Ok(text) => print(&format!("{}\n", text.trim_end())),
        Err(error) => error.report(),
    }
}

/// Returns the new state of a switch as one line.
fn summary(response: &str) -> Result<String, CommandError> {
    let switch: SwitchDocument = serde_json::from_str(response).map_err(|error| {
        CommandError::Failed(format!(
            "unreadable response of the gateway: {error}; check that it has the version of this command"
        ))
    })?;
    let SwitchDocument { target, effect, until, except, .. } = switch;
    let mut text = match effect.as_str() {
        "off" => format!("{target}: switched off"),
        "maintenance" => "maintenance: on".to_owned(),
        effect => format!("{target}: {effect}"),
    };
    if let Some(until) = until {
        let _ = write!(text, " until {until}");
    }
    if !except.is_empty() {
        let _ = write!(text, ", except {}", except.join(", "));
    }
    Ok(text)
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let is_valid = |lasts: &Duration| (1..=MAX_SWITCH_SECONDS).contains(&lasts.as_secs());
    duration(text).filter(is_valid).ok_or_else(|| "give a duration such as 1h or 30m, at most 30d".to_owned())
}

const PATH: &str = "/api/v1/switches";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_names_target_effect_and_end() {
        let block = r#"{"target": "192.0.2.0/24", "effect": "block", "until": "2027-01-15T12:00:00Z"}"#;
        assert_eq!(summary(block).as_deref(), Ok("192.0.2.0/24: block until 2027-01-15T12:00:00Z"));
        let ended = r#"{"target": "class:bot", "effect": "off"}"#;
        assert_eq!(summary(ended).as_deref(), Ok("class:bot: switched off"));
        let maintenance = r#"{"target": "maintenance", "effect": "maintenance", "except": ["192.0.2.1/32"]}"#;
        assert_eq!(summary(maintenance).as_deref(), Ok("maintenance: on, except 192.0.2.1/32"));
        assert!(matches!(summary("{"), Err(CommandError::Failed(_))));
    }
}
