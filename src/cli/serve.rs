//! `tidegate serve`: runs the gateway until a signal stops it, or a new process takes over.

use super::{CommandError, ServeArgs, descriptors, environment, failed, print_errors, systemd};
use crate::service::{
    BUILD, ExternalAccess, HandOver, Inheritance, Predecessor, Service, ServiceError, SettingsSource,
};
use crate::telemetry::count_panics;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::str::FromStr;
use std::sync::Arc;
use tidegate_config::admin_address::AdminAddress;
use tidegate_config::settings::{AccessLog, Ledger, Listener, LogLevel};
use tidegate_config::{self as config, ConfigErrors, SettingPath, Settings};
use tidegate_crawlers::verify::OperatorTable;
use tidegate_engine::clock::Clock;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;

/// Runs the gateway. Returns when it has drained after SIGTERM, Ctrl-C, or a hand-over to a new process (SIGUSR2).
pub fn run(args: &ServeArgs) -> ExitCode {
    let names = OperatorTable::builtin_names();
    // Resolved once: a reload reads the file of the start.
    let file = match args.file.path() {
        Ok(file) => Some(file),
        Err(_) if args.origin.is_some() => None,
        Err(error) => return CommandError::from(error).report(),
    };
    // Read before the start, because the settings contain the log level.
    let settings = match read(file.as_deref(), None, args, &names) {
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
        Arc::new(move |names, text| read(file.as_deref(), text, &args, names))
    };
    // The path of this program, before another one takes its place.
    let program = std::env::current_exe();
    // Signal handlers are installed before the ready line: an earlier signal would kill the process.
    let (runtime, mut signals) = match listen_for_signals() {
        Ok(listening) => listening,
        Err(error) => return failed(&error),
    };
    let (mut inheritance, mut predecessor) = match Inheritance::receive() {
        Ok(received) => received,
        Err(error) => return failed(&error),
    };
    systemd::add_sockets(&mut inheritance.sockets, &settings);
    loop {
        let serves_again = inheritance.settings.is_some();
        let service = match start(inheritance, predecessor.as_ref(), &source) {
            Ok(service) => service,
            Err(code) => return code,
        };
        for note in service.warnings() {
            warn!("{note}");
        }
        let ready = ready_line(&service, &settings);
        match quiet_stdout {
            true => eprintln!("{ready}"),
            false => println!("{ready}"),
        }
        if let Some(predecessor) = predecessor.take() {
            service.follow(predecessor);
        }
        systemd::notify_ready();
        if serves_again {
            // The file may have changed since the settings were read. Logs the result.
            let _ = service.reload();
        }
        match serve(service, &runtime, &mut signals, &program) {
            None => return ExitCode::SUCCESS,
            Some(rest) => inheritance = rest,
        }
    }
}

/// Serves until a signal ends it, or a new process takes over. Returns what is left if that one has failed.
fn serve(
    mut service: Service,
    runtime: &Runtime,
    signals: &mut Signals,
    program: &io::Result<PathBuf>,
) -> Option<Inheritance> {
    loop {
        match runtime.block_on(run_until_signal(&service, signals)) {
            Stop::Ended => {
                info!("Draining");
                systemd::notify_stopping();
                service.shut_down();
                return None;
            }
            Stop::HandOver => {
                // A hand-over may take longer than the rest of the interval.
                systemd::notify_alive();
                match service.hand_over(new_process(program), systemd::notify_main_process) {
                    HandOver::Done => return None,
                    HandOver::Refused(serving, error) => {
                        error!("Upgrade failed, serving on: {error}");
                        service = *serving;
                    }
                    HandOver::Lost(rest, error) => {
                        error!("Upgrade failed, serving again with the settings of the start: {error}");
                        return Some(rest);
                    }
                }
            }
        }
    }
}

fn start(
    inheritance: Inheritance,
    predecessor: Option<&Predecessor>,
    source: &SettingsSource,
) -> Result<Service, ExitCode> {
    let (external, source) = (ExternalAccess::default(), Arc::clone(source));
    let service = Service::start_from(inheritance, predecessor, external, source, Clock::system(), random_seed());
    service.map_err(|error| match error {
        ServiceError::Settings(errors) => print_errors(&errors),
        ServiceError::Lists(errors) => print_errors(&errors),
        ServiceError::Certificates(errors) => print_errors(&errors),
        ServiceError::Origin(errors) | ServiceError::ErrorPages(errors) | ServiceError::NetworkDatabases(errors) => {
            print_errors(&errors)
        }
        error => failed(&error),
    })
}

/// Returns the command that starts this program again, with the same arguments.
fn new_process(program: &io::Result<PathBuf>) -> Command {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "tidegate".into());
    let mut command = Command::new(program.as_ref().map_or(name.as_ref(), |program| program.as_os_str()));
    command.args(arguments);
    command
}

/// Reason for which serving ends.
enum Stop {
    /// SIGTERM or SIGINT.
    Ended,
    /// SIGUSR2.
    HandOver,
}

/// Loads the settings of the file, or of `text` in its place.
fn read(
    file: Option<&Path>,
    text: Option<&str>,
    args: &ServeArgs,
    operators: &[&str],
) -> Result<Settings, ConfigErrors> {
    let options = [(SettingPath::ROOT.listen(), &args.listen), (SettingPath::ROOT.origin().url(), &args.origin)];
    let overrides: Vec<(SettingPath, String)> =
        options.into_iter().filter_map(|(path, value)| Some((path, value.clone()?))).collect();
    let text = match (text, file) {
        (Some(text), _) => text.to_owned(),
        (None, Some(file)) => config::read_text(file)?,
        (None, None) => String::new(),
    };
    config::load(file.unwrap_or(Path::new("(no file)")), &text, &environment(), &overrides, operators)
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
    let origin = settings.origin_urls();
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

/// Handles signals until one ends serving.
async fn run_until_signal(service: &Service, signals: &mut Signals) -> Stop {
    let Signals { terminate, interrupt, reload, reopen, hand_over } = signals;
    let mut watchdog = systemd::watchdog();
    loop {
        tokio::select! {
            _ = terminate.recv() => return Stop::Ended,
            _ = interrupt.recv() => return Stop::Ended,
            _ = hand_over.recv() => return Stop::HandOver,
            _ = reopen.recv() => service.reopen_access_log(),
            _ = reload.recv() => {
                systemd::notify_reloading();
                service.reopen_access_log();
                // Logs the result.
                let _ = service.reload();
                systemd::notify_ready();
            }
            () = watchdog.tick() => {}
        }
    }
}

/// Signals that the process handles.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    reload: Signal,
    reopen: Signal,
    hand_over: Signal,
}

fn listen_for_signals() -> io::Result<(Runtime, Signals)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = runtime.block_on(async { signals() })?;
    Ok((runtime, signals))
}

fn signals() -> io::Result<Signals> {
    Ok(Signals {
        terminate: signal(SignalKind::terminate())?,
        interrupt: signal(SignalKind::interrupt())?,
        reload: signal(SignalKind::hangup())?,
        reopen: signal(SignalKind::user_defined1())?,
        hand_over: signal(SignalKind::user_defined2())?,
    })
}

/// Returns an unpredictable seed, from the random keys of the standard library's hash maps.
pub(super) fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}
