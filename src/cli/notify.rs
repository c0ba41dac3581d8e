//! `tidegate notify test`: sends a notification to each webhook of a configuration file.

use super::{CommandError, ConfigArg, environment};
use crate::service::notify::webhook_clients;
use clap::Subcommand;
use std::process::ExitCode;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_engine::clock::Clock;
use tidegate_notify::{Notification, WebhookClient};

/// Subcommands of `tidegate notify`.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum NotifyCommand {
    /// Sends a test notification to each webhook of the file, and says which arrived
    ///
    /// Each is sent one request, without another attempt. The gateway need not run.
    Test {
        #[command(flatten)]
        config: ConfigArg,
    },
}

/// Sends the test notifications. Fails if one is not accepted.
pub(super) fn run(command: &NotifyCommand) -> ExitCode {
    let NotifyCommand::Test { config } = command;
    let report = |error: CommandError| error.report();
    let clients = match clients(config) {
        Ok(clients) => clients,
        Err(error) => return report(error),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(CommandError::Failed(error.to_string())),
    };
    let notification = Notification::test(Clock::system().now());
    let mut errors = Vec::new();
    for client in clients {
        match runtime.block_on(client.send(&notification)) {
            Ok(()) => println!("{}: accepted", client.url()),
            Err(error) => errors.push(error.to_string()),
        }
    }
    match errors.is_empty() {
        true => ExitCode::SUCCESS,
        false => report(CommandError::Failed(errors.join("\n"))),
    }
}

fn clients(config: &ConfigArg) -> Result<Vec<WebhookClient>, CommandError> {
    let invalid = |errors: &dyn std::fmt::Display| CommandError::Usage(errors.to_string());
    let file = config.path()?;
    let settings = tidegate_config::read(&file, &environment(), &[], &OperatorTable::builtin_names())
        .map_err(|errors| invalid(&errors))?;
    let clients = webhook_clients(&settings).map_err(|errors| invalid(&errors))?;
    match clients.is_empty() {
        true => Err(CommandError::Usage(format!(
            "{}: no webhook; write notify: [{{ webhook: \"https://hooks.example/T000/B000\", format: slack }}]",
            file.display()
        ))),
        false => Ok(clients),
    }
}
