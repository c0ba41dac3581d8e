//! `tidegate quota`: shows what a running gate has left, and corrects what it counts as used.

use super::admin_client::AdminArgs;
use super::status::{self, Amount, View};
use super::{CommandError, environment, print, user};
use crate::policy::Units;
use clap::Subcommand;
use http::Method;
use serde::Deserialize;
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;

/// What can be asked of quotas.
#[derive(Clone, Debug, Subcommand)]
pub enum QuotaCommand {
    /// Shows every quota, or one: used, reserved, left, until when, and what each class has had.
    Show {
        /// Which quota.
        name: Option<String>,
        /// As the admin API tells it.
        #[arg(long)]
        json: bool,
        /// Which gate.
        #[command(flatten)]
        gate: AdminArgs,
    },
    /// Says what a quota has used in this window, where the gate's count is not what was really spent.
    Set {
        /// Which quota.
        name: String,
        /// Units, such as 1200 or 12.25, from 0 to the limit.
        #[arg(allow_negative_numbers = true)]
        used: String,
        /// As the admin API tells it.
        #[arg(long)]
        json: bool,
        /// Which gate.
        #[command(flatten)]
        gate: AdminArgs,
    },
    /// Makes all that was bought for this window available again.
    Reset {
        /// Which quota.
        name: String,
        /// As the admin API tells it.
        #[arg(long)]
        json: bool,
        /// Which gate.
        #[command(flatten)]
        gate: AdminArgs,
    },
}

/// What came of a correction.
#[derive(Deserialize)]
struct Corrected {
    name: String,
    from: Amount,
    to: Amount,
}

/// Asks or corrects a running gate.
pub fn run(command: &QuotaCommand) -> ExitCode {
    let result = match command {
        QuotaCommand::Show { name, json, gate } => show(gate, name.as_deref(), *json),
        QuotaCommand::Set { name, used, json, gate } => {
            let body = json!({ "used": used, "by": user::name(&environment()) });
            let said = gate.request(Method::PUT, &format!("{}/used", path(name)), &body.to_string());
            said.and_then(|said| if *json { Ok(said) } else { correction_line(&said, Some(used)) })
        }
        QuotaCommand::Reset { name, json, gate } => {
            let said = gate.request(
                Method::POST,
                &format!("{}/reset", path(name)),
                &json!({ "by": user::name(&environment()) }).to_string(),
            );
            said.and_then(|said| if *json { Ok(said) } else { correction_line(&said, None) })
        }
    };
    match result {
        Ok(text) => print(&format!("{}\n", text.trim_end())),
        Err(why) => why.report(),
    }
}

fn show(gate: &AdminArgs, name: Option<&str>, json: bool) -> Result<String, CommandError> {
    let said = gate.request(Method::GET, &name.map_or_else(|| PATH.to_owned(), path), "")?;
    if json {
        return Ok(said);
    }
    let read = match name {
        Some(_) => serde_json::from_str(&said).map(|quota| vec![quota]),
        None => serde_json::from_str(&said),
    };
    Ok(status::quotas(&parse_response(read)?, &View::for_stdout()))
}

/// A correction in a line: what is used now and was before, and why it is not what was asked for.
fn correction_line(said: &str, asked: Option<&str>) -> Result<String, CommandError> {
    let Corrected { name, from, to } = parse_response(serde_json::from_str(said))?;
    let mut text = format!("{name}: {to} used, {from} before");
    let asked: Option<Units> = asked.and_then(|asked| asked.parse().ok());
    if let Some(asked) = asked.filter(|asked| to.units() != Some(*asked)) {
        let _ = write!(text, "; not {asked}: the rest is reserved for requests under way");
    }
    Ok(text)
}

fn parse_response<T>(read: serde_json::Result<T>) -> Result<T, CommandError> {
    read.map_err(|error| {
        CommandError::Failed(format!("the gate's answer cannot be read: {error}; is it of this version?"))
    })
}

/// A name may hold anything where somebody mistyped it.
fn path(name: &str) -> String {
    let mut path = format!("{PATH}/");
    for byte in name.bytes() {
        match byte {
            plain if plain.is_ascii_alphanumeric() || matches!(plain, b'_' | b'-') => path.push(char::from(plain)),
            other => {
                let _ = write!(path, "%{other:02X}");
            }
        }
    }
    path
}

const PATH: &str = "/api/v1/quotas";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correction_says_what_was_what_is_and_why_it_is_not_what_was_asked_for() {
        let said = r#"{"name": "api", "from": 12.25, "to": 1200}"#;
        assert_eq!(correction_line(said, Some("1200")).as_deref(), Ok("api: 1,200 used, 12.25 before"));
        assert_eq!(correction_line(said, None).as_deref(), Ok("api: 1,200 used, 12.25 before"));
        let told = "api: 1,200 used, 12.25 before; not 1203: the rest is reserved for requests under way";
        assert_eq!(correction_line(said, Some("1203")).as_deref(), Ok(told));
        assert!(matches!(correction_line("[]", None), Err(CommandError::Failed(_))));
    }

    #[test]
    fn a_name_stays_one_part_of_the_path() {
        assert_eq!(path("places_api-2"), "/api/v1/quotas/places_api-2");
        assert_eq!(path("../state?a b"), "/api/v1/quotas/%2E%2E%2Fstate%3Fa%20b");
    }
}
