//! `tidegate serve`: runs the gateway until a signal stops it.

use super::{CommandError, ServeArgs, descriptors, environment, failed, print_errors};
use crate::service::{BUILD, Service, ServiceError, SettingsSource};
use crate::telemetry::count_panics;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;
use tidegate_config::admin_address::AdminAddress;
use tidegate_config::settings::{AccessLog, Ledger, Listener, LogLevel};
use tidegate_config::{self as config, ConfigErrors, SettingPath, Settings};
use tidegate_engine::clock::Clock;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;

/// Runs the gateway. Returns when it has drained after SIGTERM or Ctrl-C.
pub fn run(args: &ServeArgs) -> ExitCode {
    let operators = tidegate_crawlers::verify::OperatorTable::builtin();
    let names: Vec<&str> = operators.names().collect();
    // Resolved once: a reload reads the file of the start.
    let file = match args.file.path() {
        Ok(file) => Some(file),
        Err(_) if args.origin.is_some() => None,
        Err(error) => return CommandError::from(error).report(),
    };
    // Read before the start, because the settings contain the log level.
    let settings = match read(file.as_deref(), args, &names) {
        Ok(settings) => settings,
        Err(errors) => return print_errors(&errors),
    };
    log_to_stderr(settings.log.level);
    count_panics();
    if let Some(warning) = descriptors::raise_limit(&settings) {
        warn!("{warning}");
    }
    let quiet_stdout = settings.log.access == AccessLog::Stdout;

    let source: SettingsSource = {
        let args = args.clone();
        Box::new(move |names| read(file.as_deref(), &args, names))
    };
    // Signal handlers are installed before the ready line: an earlier signal would kill the process.
    let (runtime, signals) = match listen_for_signals() {
        Ok(listening) => listening,
        Err(error) => return failed(&error),
    };
    let service = match Service::start(source, Clock::system(), random_seed()) {
        Ok(service) => service,
        Err(ServiceError::Settings(errors)) => return print_errors(&errors),
        Err(ServiceError::Lists(errors)) => return print_errors(&errors),
        Err(error) => return failed(&error),
    };
    for note in service.warnings() {
        info!("{note}");
    }
    let ready = ready_line(&service, &settings);
    match quiet_stdout {
        true => eprintln!("{ready}"),
        false => println!("{ready}"),
    }
    runtime.block_on(run_until_signal(&service, signals));
    service.shut_down();
    ExitCode::SUCCESS
}

fn read(file: Option<&Path>, args: &ServeArgs, operators: &[&str]) -> Result<Settings, ConfigErrors> {
    let options = [(SettingPath::ROOT.listen(), &args.listen), (SettingPath::ROOT.origin().url(), &args.origin)];
    let overrides: Vec<(SettingPath, String)> =
        options.into_iter().filter_map(|(path, value)| Some((path, value.clone()?))).collect();
    match file {
        None => config::load(Path::new("(no file)"), "", &environment(), &overrides, operators),
        Some(file) => config::read(file, &environment(), &overrides, operators),
    }
}

fn ready_line(service: &Service, settings: &Settings) -> String {
    let schemes = settings.listen.iter().map(Listener::scheme);
    let listen: Vec<String> =
        schemes.zip(service.listen()).map(|(scheme, address)| format!("{scheme}://{address}")).collect();
    let admin = service.admin().map(|address| match address {
        AdminAddress::Tcp(address) => format!(", admin on http://{address}"),
        AdminAddress::Unix(_) => format!(", admin on {address}"),
    });
    let admin = admin.unwrap_or_default();
    let proxies = service.forward_auth().map(|address| format!(", answering proxies on http://{address}"));
    let proxies = proxies.unwrap_or_default();
    let state = match &settings.ledger {
        Ledger::Memory => String::new(),
        Ledger::File | Ledger::Redis(_) => format!(", state in {}", settings.state_dir.display()),
    };
    let origin = settings.origin.urls();
    let listen = listen.join(", ");
    format!("tidegate {} ready: listening on {listen}, forwarding to {origin}{proxies}{admin}{state}", BUILD.0)
}

fn log_to_stderr(level: LogLevel) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level.name()));
    // Changes by administrators are logged at every level.
    let filter = filter.add_directive(Directive::from_str("audit=info").expect("a directive"));
    let colors = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(colors).init();
}

/// Handles signals until SIGTERM or SIGINT.
async fn run_until_signal(service: &Service, [mut terminate, mut interrupt, mut reload, mut reopen]: [Signal; 4]) {
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = reopen.recv() => service.reopen_access_log(),
            _ = reload.recv() => {
                service.reopen_access_log();
                // Logs the result.
                let _ = service.reload();
            }
        }
    }
    info!("Draining");
}

fn listen_for_signals() -> io::Result<(Runtime, [Signal; 4])> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = runtime.block_on(async { signals() })?;
    Ok((runtime, signals))
}

fn signals() -> io::Result<[Signal; 4]> {
    Ok([
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
        signal(SignalKind::hangup())?,
        signal(SignalKind::user_defined1())?,
    ])
}

/// Returns an unpredictable seed, from the random keys of the standard library's hash maps.
pub(super) fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}
