//! Sends requests of commands to the admin listener of a running gateway, and maps its responses to exit codes.

use super::{CommandError, ConfigArg, environment};
use crate::admin::{AdminClient, AdminClientError, AdminResponse};
use clap::Args;
use http::{Method, StatusCode, Uri};
use serde::Deserialize;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate_config as config;
use tidegate_config::admin_address::AdminAddress;
use tidegate_policy::secret::Secret;
use tidegate_replay::terminal::printable_json;

/// Options that select the admin listener and its token.
#[derive(Clone, Debug, Default, Args)]
pub struct AdminArgs {
    #[command(flatten)]
    pub(super) file: ConfigArg,
    /// Address of the admin listener, such as 127.0.0.1:9090 or unix:/run/tidegate/admin.sock.
    ///
    /// Without this option, address and token are `admin.listen` and `admin.token` of --config FILE, of
    /// ./tidegate.yaml, or else of config/tidegate.yaml; without a file, 127.0.0.1:9090 and the variable
    /// TIDEGATE_ADMIN_TOKEN. Only the section `admin` of the file must be valid. `${...}` and TIDEGATE__ADMIN__LISTEN
    /// are applied as in `serve`.
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// File with the admin token for --admin (default: the variable TIDEGATE_ADMIN_TOKEN).
    #[arg(long, value_name = "FILE", requires = "admin")]
    token_file: Option<PathBuf>,
}

/// Client of the admin listener, and the hint for a rejected token.
struct AdminTarget {
    client: AdminClient,
    token_hint: String,
}

impl AdminArgs {
    /// Sends a request to the admin API and returns the JSON body of its response.
    pub fn request(&self, method: Method, path: &str, body: &str) -> Result<String, CommandError> {
        let target = self.target(&environment())?;
        Self::request_of(target, method, path, body)
    }

    /// Sends a request as [`Self::request`] does, and waits for up to `timeout`.
    pub fn request_within(
        &self,
        timeout: Duration,
        method: Method,
        path: &str,
        body: &str,
    ) -> Result<String, CommandError> {
        let AdminTarget { client, token_hint } = self.target(&environment())?;
        Self::request_of(AdminTarget { client: client.with_timeout(timeout), token_hint }, method, path, body)
    }

    fn request_of(target: AdminTarget, method: Method, path: &str, body: &str) -> Result<String, CommandError> {
        let AdminTarget { client, token_hint } = target;
        if let Err(error) = Uri::try_from(path) {
            return Err(CommandError::Usage(format!("command line: {error}; write it shorter")));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| CommandError::Failed(error.to_string()))?;
        match runtime.block_on(client.request(method, path, body)) {
            Ok(response) => parse_response(response, client.address(), &token_hint),
            Err(error) => Err(CommandError::Failed(format!("{error}; {}", hint(&error)))),
        }
    }

    fn target(&self, environment: &[(String, String)]) -> Result<AdminTarget, CommandError> {
        match &self.admin {
            Some(_) if self.file.config.is_some() => {
                Err(CommandError::Usage("command line: found --admin and --config; name one of them".into()))
            }
            Some(text) => {
                let address = parse_address(text).map_err(CommandError::Usage)?;
                let token = self.token(environment).map_err(CommandError::Usage)?;
                let token_hint = "set the gateway's token with --token-file FILE or TIDEGATE_ADMIN_TOKEN".into();
                Ok(AdminTarget { client: AdminClient::new(address).with_authorization(token), token_hint })
            }
            None => self.target_from_config(environment).map_err(CommandError::Usage),
        }
    }

    /// Returns the target from the configuration file, with the environment applied as in `serve`.
    fn target_from_config(&self, environment: &[(String, String)]) -> Result<AdminTarget, String> {
        let alternative = "or set the address with --admin ADDR";
        let (file, admin, token_hint, token_of_variable) = match self.file.path() {
            Ok(file) => {
                let result = config::read_admin(&file, environment);
                let admin = result.map_err(|errors| format!("{errors}, {alternative}"))?;
                let token_hint = "admin.token of the file differs from the token at the gateway's start; restart it, or \
                                  use --admin ADDR with that token";
                (file, admin, token_hint, None)
            }
            Err(error) => {
                let token_hint =
                    "there is no configuration here: name it with --config FILE, or set TIDEGATE_ADMIN_TOKEN";
                let placeholder = PathBuf::from("(no file)");
                let admin = config::load_admin(&placeholder, "", environment).ok().flatten();
                let admin = admin.ok_or_else(|| format!("{error} with --config FILE, {alternative}"))?;
                (placeholder, Some(admin), token_hint, self.token(environment)?)
            }
        };
        let admin = admin.ok_or_else(|| {
            let hint = "remove the line for the default 127.0.0.1:9090 and restart the gateway";
            format!("{}: admin: found off; {hint}, {alternative}", file.display())
        })?;
        if admin.listen.tcp().is_some_and(|address| address.port() == 0) {
            let message = "admin.listen: port 0 selects a free port at the start";
            return Err(format!("{}: {message}; set the actual address with --admin ADDR", file.display()));
        }
        let token = admin.token.as_ref().and_then(Secret::authorization).or(token_of_variable);
        Ok(AdminTarget {
            client: AdminClient::new(connect_address(admin.listen).to_string()).with_authorization(token),
            token_hint: token_hint.into(),
        })
    }

    fn token(&self, environment: &[(String, String)]) -> Result<Option<http::HeaderValue>, String> {
        let (source, text) = match &self.token_file {
            Some(file) => (format!("--token-file {}", file.display()), read_token_file(file)?),
            None => {
                let variable = environment.iter().find(|(name, value)| name == TOKEN_VARIABLE && !value.is_empty());
                let Some((_, value)) = variable else { return Ok(None) };
                (TOKEN_VARIABLE.to_owned(), value.clone())
            }
        };
        let token = text.trim_end_matches(['\r', '\n']);
        let is_printable = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        match Secret::new(token.to_owned()).authorization().filter(|_| is_printable) {
            Some(field) => Ok(Some(field)),
            None => Err(format!("{source}: empty or with spaces; write only the token")),
        }
    }
}

/// Returns the body of a successful JSON response, which changes nothing in a terminal; otherwise an error with a hint.
fn parse_response(response: AdminResponse, address: &str, token_hint: &str) -> Result<String, CommandError> {
    #[derive(Deserialize)]
    struct AdminProblem {
        detail: String,
        r#type: Option<String>,
    }
    let AdminResponse { status, body } = response;
    let is_json = serde_json::from_str::<serde_json::Value>(&body).is_ok();
    if status.is_success() && is_json {
        return Ok(printable_json(&body));
    }
    // Problem documents for clients have a type, those of the admin listener have none.
    match serde_json::from_str::<AdminProblem>(&body).ok().filter(|problem| problem.r#type.is_none()) {
        Some(_) if status == StatusCode::UNAUTHORIZED => {
            Err(CommandError::Usage(format!("{address}: the admin token is missing or wrong; {token_hint}")))
        }
        Some(AdminProblem { detail, .. }) if status.is_client_error() => Err(CommandError::Usage(detail)),
        Some(AdminProblem { detail, .. }) => {
            Err(CommandError::Failed(format!("{address} returned {status}: {detail}")))
        }
        None => Err(CommandError::Failed(format!(
            "{address} returned {status}, which is not an admin API response; check admin.listen"
        ))),
    }
}

fn hint(error: &AdminClientError) -> &'static str {
    match error {
        AdminClientError::Unreachable { .. } => {
            "start the gateway with `tidegate serve`, or set the address of its admin listener with --admin ADDR"
        }
        AdminClientError::InvalidResponse { .. } => "check admin.listen",
        AdminClientError::TimedOut { .. } => "the gateway may be stopped or overloaded",
    }
}

/// Parses `HOST:PORT`, with or without `http://`, or `unix:/path`.
fn parse_address(argument: &str) -> Result<String, String> {
    if let Ok(address @ AdminAddress::Unix(_)) = argument.parse() {
        return Ok(address.to_string());
    }
    let invalid = |problem: &str| {
        Err(format!(
            "--admin: {problem} in {argument:?}; write it like 127.0.0.1:9090 or unix:/run/tidegate/admin.sock"
        ))
    };
    let text = argument.strip_prefix("http://").unwrap_or(argument);
    let text = text.strip_suffix('/').unwrap_or(text);
    if text.contains("://") {
        return invalid("unsupported scheme");
    }
    match text.parse::<http::uri::Authority>() {
        Ok(authority) if text.contains('@') || authority.host().is_empty() => invalid("found no valid host"),
        Ok(authority) if authority.port_u16().is_none_or(|port| port == 0) => invalid("found no port"),
        Ok(authority) => Ok(authority.to_string()),
        Err(_) => invalid("found no host and port"),
    }
}

/// Returns the address to connect to: loopback if the listener is bound to all addresses.
fn connect_address(listen: AdminAddress) -> AdminAddress {
    let AdminAddress::Tcp(listen) = listen else { return listen };
    let loopback: IpAddr = match listen {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let ip = if listen.ip().is_unspecified() { loopback } else { listen.ip() };
    AdminAddress::Tcp(SocketAddr::new(ip, listen.port()))
}

fn read_token_file(file: &Path) -> Result<String, String> {
    let describe =
        |error: io::Error| format!("--token-file {}: cannot be read: {error}; set a readable file", file.display());
    let mut text = String::new();
    // It may be a pipe.
    let length = File::open(file).and_then(|file| file.take(MAX_TOKEN_FILE_BYTES + 1).read_to_string(&mut text));
    match length.map_err(describe)? as u64 {
        0..=MAX_TOKEN_FILE_BYTES => Ok(text),
        _ => Err(describe(io::Error::from(io::ErrorKind::FileTooLarge))),
    }
}

/// Maximum size of a file with a token, in bytes.
const MAX_TOKEN_FILE_BYTES: u64 = 64 << 10;

/// Environment variable with the token.
const TOKEN_VARIABLE: &str = "TIDEGATE_ADMIN_TOKEN";

#[cfg(test)]
mod tests;
