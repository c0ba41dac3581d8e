//! How a command reaches a running gate, and what its answer means for the exit code.

use super::{CommandError, ConfigArg, environment};
use crate::admin::{AdminClientError, AdminResponse, Client};
use crate::config;
use crate::policy::secret::Secret;
use clap::Args;
use http::{Method, StatusCode};
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Which gate, and the token that it wants.
#[derive(Clone, Debug, Default, Args)]
pub struct AdminArgs {
    #[command(flatten)]
    pub(super) file: ConfigArg,
    /// Its admin listener, such as 127.0.0.1:9090, without a look into any file.
    #[arg(long, value_name = "ADDR", conflicts_with = "config")]
    admin: Option<String>,
    /// A file with the admin token; without it, the variable TIDEGATE_ADMIN_TOKEN counts.
    #[arg(long, value_name = "FILE", requires = "admin", conflicts_with = "config")]
    token_file: Option<PathBuf>,
}

/// The listener and how to be let in, and what to say to those who are not.
struct AdminTarget {
    client: Client,
    remedy: String,
}

impl AdminArgs {
    /// Asks the gate; what it says, in JSON.
    pub fn request(&self, method: Method, path: &str, body: &str) -> Result<String, CommandError> {
        let AdminTarget { client, remedy } = self.target(&environment())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| CommandError::Failed(error.to_string()))?;
        match runtime.block_on(client.request(method, path, body)) {
            Ok(answer) => parse_response(answer, client.address(), &remedy),
            Err(error) => Err(CommandError::Failed(format!("{error}; {}", hint(&error)))),
        }
    }

    fn target(&self, environment: &[(String, String)]) -> Result<AdminTarget, CommandError> {
        match &self.admin {
            Some(written) => {
                let address = address(written).map_err(CommandError::Usage)?;
                let token = self.token(environment).map_err(CommandError::Usage)?;
                let remedy = "give the gate's own with --token-file FILE or in TIDEGATE_ADMIN_TOKEN".into();
                Ok(AdminTarget { client: Client::at(address).authorized(token), remedy })
            }
            None => self.target_from_config(environment).map_err(CommandError::Usage),
        }
    }

    /// What the gate's own file says, environment included, as `serve` would read it.
    fn target_from_config(&self, environment: &[(String, String)]) -> Result<AdminTarget, String> {
        let otherwise = "or say where it is with --admin ADDR";
        let (file, admin) = match self.file.path() {
            Ok(file) => {
                let read = config::read_admin(&file, environment);
                let admin = read.map_err(|mistakes| format!("{mistakes}, {otherwise}"))?;
                (file, admin)
            }
            Err(none) => {
                let nowhere = PathBuf::from("(no file)");
                let admin = config::admin(&nowhere, "", environment).ok().flatten();
                (nowhere, Some(admin.ok_or_else(|| format!("{none} with --config FILE, {otherwise}"))?))
            }
        };
        let admin = admin.ok_or_else(|| {
            let remedy = "remove the line, which leaves 127.0.0.1:9090, and restart the gateway";
            format!("{}: admin: found off; {remedy}, {otherwise}", file.display())
        })?;
        if admin.listen.port() == 0 {
            let wrong = "admin.listen: port 0 is whatever port was free";
            return Err(format!("{}: {wrong}; say with --admin ADDR which it was", file.display()));
        }
        let remedy = "admin.token of the file is not what the gate was started with: start it anew, or ask with \
                      --admin ADDR and its token";
        let token = admin.token.as_ref().and_then(Secret::authorization);
        Ok(AdminTarget {
            client: Client::at(reachable(admin.listen).to_string()).authorized(token),
            remedy: remedy.into(),
        })
    }

    fn token(&self, environment: &[(String, String)]) -> Result<Option<http::HeaderValue>, String> {
        let (source, text) = match &self.token_file {
            Some(file) => (format!("--token-file {}", file.display()), text_of(file)?),
            None => {
                let set = environment.iter().find(|(name, value)| name == TOKEN && !value.is_empty());
                let Some((_, value)) = set else { return Ok(None) };
                (TOKEN.to_owned(), value.clone())
            }
        };
        let token = text.trim_end_matches(['\r', '\n']);
        let plain = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        match Secret::new(token.to_owned()).authorization().filter(|_| plain) {
            Some(field) => Ok(Some(field)),
            None => Err(format!("{source}: is empty or holds spaces; write the token and nothing else")),
        }
    }
}

/// The JSON of an answer that says yes; what to do where it says no.
fn parse_response(answer: AdminResponse, address: &str, remedy: &str) -> Result<String, CommandError> {
    #[derive(Deserialize)]
    struct Problem {
        detail: String,
        r#type: Option<String>,
    }
    let AdminResponse { status, body } = answer;
    let json = serde_json::from_str::<serde_json::Value>(&body).is_ok();
    if status.is_success() && json {
        return Ok(body);
    }
    // Problems that clients are told have a type, those of the admin listener have none.
    match serde_json::from_str::<Problem>(&body).ok().filter(|problem| problem.r#type.is_none()) {
        Some(_) if status == StatusCode::UNAUTHORIZED => {
            Err(CommandError::Usage(format!("{address}: the admin token is missing or wrong; {remedy}")))
        }
        Some(Problem { detail, .. }) if status.is_client_error() => Err(CommandError::Usage(detail)),
        Some(Problem { detail, .. }) => Err(CommandError::Failed(format!("{address} answers {status}: {detail}"))),
        None => Err(CommandError::Failed(format!(
            "{address} answers {status}, and not as a gate does to its operators; is it the address of admin.listen?"
        ))),
    }
}

fn hint(error: &AdminClientError) -> &'static str {
    match error {
        AdminClientError::Unreachable { .. } => {
            "start it with `tidegate serve`, or say where its admin listener is with --admin ADDR"
        }
        AdminClientError::InvalidResponse { .. } => "is it the address of admin.listen?",
        AdminClientError::TimedOut { .. } => "the process may be stopped, or the machine out of breath",
    }
}

/// Host and port, with or without `http://`.
fn address(written: &str) -> Result<String, String> {
    let wrong = |what: &str| Err(format!("--admin: {what} in {written:?}; write it like 127.0.0.1:9090"));
    let text = written.strip_prefix("http://").unwrap_or(written);
    let text = text.strip_suffix('/').unwrap_or(text);
    if text.contains("://") {
        return wrong("nothing but http:// can be spoken");
    }
    match text.parse::<http::uri::Authority>() {
        Ok(authority) if text.contains('@') || authority.host().is_empty() => wrong("found no plain host"),
        Ok(authority) if authority.port_u16().is_none_or(|port| port == 0) => wrong("found no port"),
        Ok(authority) => Ok(authority.to_string()),
        Err(_) => wrong("found no host and port"),
    }
}

/// Where to ask who listens on every address.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let loopback: IpAddr = match listen {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(if listen.ip().is_unspecified() { loopback } else { listen.ip() }, listen.port())
}

fn text_of(file: &Path) -> Result<String, String> {
    let unread = |error| format!("--token-file {}: cannot be read: {error}; name a file of yours", file.display());
    std::fs::read_to_string(file).map_err(unread)
}

/// Holds the token where no file does.
const TOKEN: &str = "TIDEGATE_ADMIN_TOKEN";

#[cfg(test)]
mod tests;
