//! The command that sets and removes DNS records, by which an ACME server validates a domain (DNS-01).
//!
//! A command is bounded in time and output, one runs at a time, and what it leaves behind is ended with it. No shell reads its
//! arguments.

use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::Mutex;

/// Maximum time of a command: name servers of some providers take minutes to publish a record.
const MAX_TIME: Duration = Duration::from_secs(5 * 60);
/// Maximum bytes of its output. Those of a usual command are a few lines.
const MAX_OUTPUT: usize = 1 << 20;
/// Bytes of the output whose last line an error shows.
const MAX_TAIL: usize = 200;

/// Command that sets and removes DNS records.
#[derive(Clone, Debug)]
pub struct DnsHook {
    program: PathBuf,
    arguments: Vec<String>,
    turn: HookTurn,
}

/// Lets one command run at a time: those of all certificates have one.
#[derive(Clone, Debug, Default)]
pub struct HookTurn(Arc<Mutex<()>>);

/// TXT record by which a server validates a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DnsRecord {
    /// Name, without a last dot: `_acme-challenge.example.com`.
    pub(super) name: String,
    /// Text.
    pub(super) value: String,
}

/// What a command is to do with a record.
#[derive(Clone, Copy, Debug)]
pub(super) enum HookAction {
    Set,
    Remove,
}

/// How a command ended.
enum HookEnd {
    Exited(ExitStatus),
    TooLate,
    TooMuchOutput,
}

/// Ends the processes of a group when dropped.
struct ProcessGroup(Pid);

/// The last bytes of an output, and its size.
#[derive(Default)]
struct OutputTail {
    bytes: Vec<u8>,
    size: usize,
}

impl DnsHook {
    /// Finds the program: a path, or a name in `PATH`. Returns an error if it cannot be executed.
    pub fn find(program: &Path, arguments: &[String], turn: &HookTurn) -> Result<Self, String> {
        let found = if program.components().count() > 1 {
            check_executable(program)?;
            program.to_owned()
        } else {
            let directories = std::env::var_os("PATH").unwrap_or_default();
            let mut candidates = std::env::split_paths(&directories).map(|directory| directory.join(program));
            candidates.find(|candidate| check_executable(candidate).is_ok()).ok_or_else(|| {
                let name = program.display();
                format!("found no program {name} in PATH; write its path, and arguments as further items of the list")
            })?
        };
        Ok(Self { program: found, arguments: arguments.to_vec(), turn: turn.clone() })
    }

    /// Runs the command for one record. Returns why it has failed.
    pub(super) async fn run(&self, action: HookAction, record: &DnsRecord) -> Result<(), String> {
        let _turn = self.turn.0.lock().await;
        let mut tail = OutputTail::default();
        let problem = match self.run_once(action, record, &mut tail).await {
            Ok(HookEnd::Exited(status)) if status.success() => return Ok(()),
            Ok(HookEnd::Exited(status)) => format!("{status}; run it by hand as the user of the gateway"),
            Ok(HookEnd::TooLate) => {
                format!("ended after {} s; let it end once the record is published", MAX_TIME.as_secs())
            }
            Ok(HookEnd::TooMuchOutput) => format!("ended because it has printed more than {MAX_OUTPUT} bytes"),
            Err(error) => format!("cannot run: {error}"),
        };
        let said = tail.last_line().map(|line| format!("; it printed: {line}")).unwrap_or_default();
        Err(format!("{} {} {}: {problem}{said}", self.program.display(), action.argument(), record.name))
    }

    async fn run_once(&self, action: HookAction, record: &DnsRecord, tail: &mut OutputTail) -> io::Result<HookEnd> {
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).args([action.argument(), &record.name, &record.value]);
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).process_group(0);
        for name in own_variables() {
            command.env_remove(name);
        }
        let mut child = command.spawn()?;
        // The copies of the command would keep the pipe open.
        drop(command);
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).map(ProcessGroup);
        let mut waiting = tokio::task::spawn_blocking(move || child.wait());
        let mut rest = reader.try_clone()?;
        // Neither this nor `rest` blocks.
        let mut output = pipe::Receiver::from_owned_fd(reader.into())?;
        let (mut buffer, mut is_open) = ([0; 4096], true);
        let deadline = tokio::time::sleep(MAX_TIME);
        tokio::pin!(deadline);
        let end = loop {
            tokio::select! {
                status = &mut waiting => break HookEnd::Exited(status.map_err(io::Error::other)??),
                () = &mut deadline => break HookEnd::TooLate,
                read = output.read(&mut buffer), if is_open => match read? {
                    0 => is_open = false,
                    size => {
                        tail.push(&buffer[..size]);
                        if tail.size > MAX_OUTPUT {
                            break HookEnd::TooMuchOutput;
                        }
                    }
                },
            }
        };
        drop(group);
        if !matches!(end, HookEnd::Exited(_)) {
            let _ = waiting.await;
        }
        while tail.size <= MAX_OUTPUT
            && let Ok(size @ 1..) = rest.read(&mut buffer)
        {
            tail.push(&buffer[..size]);
        }
        Ok(end)
    }
}

/// Returns the names of variables that concern the gateway alone: its settings, among them its secrets, and what systemd has
/// told it.
fn own_variables() -> impl Iterator<Item = OsString> {
    let is_own = |name: &OsString| {
        let name = name.as_encoded_bytes();
        [&b"TIDEGATE_"[..], b"NOTIFY_SOCKET", b"LISTEN_", b"WATCHDOG_"].iter().any(|own| name.starts_with(own))
    };
    std::env::vars_os().map(|(name, _)| name).filter(is_own)
}

fn check_executable(program: &Path) -> Result<(), String> {
    let name = program.display();
    match program.metadata() {
        Err(error) => Err(format!("{name}: {error}; write the path of a program, or a name in PATH")),
        Ok(metadata) if !metadata.is_file() => Err(format!("{name} is not a file; write the path of a program")),
        Ok(metadata) if metadata.permissions().mode() & 0o111 == 0 => {
            Err(format!("{name} is not executable; run chmod +x {name}"))
        }
        Ok(_) => Ok(()),
    }
}

impl HookAction {
    fn argument(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Remove => "remove",
        }
    }
}

impl OutputTail {
    fn push(&mut self, bytes: &[u8]) {
        self.size += bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.bytes.drain(..self.bytes.len().saturating_sub(MAX_TAIL));
    }

    /// Returns the last line that is not empty.
    fn last_line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
        Some(line.to_owned())
    }
}

impl fmt::Display for DnsRecord {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "TXT {} {:?}", self.name, self.value)
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // Usually, none is left.
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn hook(program: &str, arguments: &[&str]) -> DnsHook {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        DnsHook::find(Path::new(program), &arguments, &HookTurn::default()).expect("a program")
    }

    fn script(text: &str) -> DnsHook {
        hook("sh", &["-c", text, "hook"])
    }

    fn record() -> DnsRecord {
        DnsRecord { name: "_acme-challenge.example.com".to_owned(), value: "a b; $(c) *".to_owned() }
    }

    #[tokio::test]
    async fn command_is_called_with_action_name_and_value_and_no_shell_reads_them() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let file = dir.path().join("called");
        let hook = script(&format!("printf '%s\\n' \"$@\" >>'{}'", file.display()));
        hook.run(HookAction::Set, &record()).await.expect("the command succeeds");
        hook.run(HookAction::Remove, &record()).await.expect("the command succeeds");
        let name = "_acme-challenge.example.com";
        let called = fs::read_to_string(file).expect("the command has run");
        assert_eq!(called, format!("set\n{name}\na b; $(c) *\nremove\n{name}\na b; $(c) *\n"));
    }

    #[tokio::test]
    async fn failure_says_what_the_command_has_printed_last() {
        let error = script("echo first; echo no such zone >&2; echo; exit 3").run(HookAction::Set, &record()).await;
        let error = error.expect_err("the command fails");
        assert!(error.ends_with(
            "/sh set _acme-challenge.example.com: exit status: 3; run it by hand as the user of the gateway; it printed: no such zone"
        ), "{error}");
    }

    #[tokio::test]
    async fn megabytes_of_output_end_the_command_and_are_not_kept() {
        let mut tail = OutputTail::default();
        let end = script("exec yes").run_once(HookAction::Set, &record(), &mut tail).await.expect("the command starts");
        assert!(matches!(end, HookEnd::TooMuchOutput));
        assert!(tail.size <= MAX_OUTPUT + 4096 && tail.bytes.capacity() <= 2 * (MAX_TAIL + 4096), "{}", tail.size);
        let error = script("exec yes").run(HookAction::Set, &record()).await.expect_err("the command is ended");
        assert!(error.contains("it has printed more than 1048576 bytes; it printed: y"), "{error}");
    }

    /// Ends what the command has started, too: the pipe is at its end once no process holds it.
    #[tokio::test(start_paused = true)]
    async fn command_that_hangs_is_ended_with_all_that_it_has_started() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&path).status().is_ok_and(|status| status.success()));
        let text = format!("exec 7>'{}'; echo >&7; sleep 1000000 & wait", path.display());
        let running = tokio::spawn(async move { script(&text).run(HookAction::Set, &record()).await });
        let mut pipe = tokio::task::spawn_blocking(|| {
            let mut pipe = fs::File::open(path).expect("the command has opened it");
            pipe.read_exact(&mut [0]).expect("the command runs");
            pipe
        })
        .await
        .expect("no panic");
        tokio::time::advance(MAX_TIME).await;
        let error = running.await.expect("no panic").expect_err("the command is ended");
        assert!(error.contains("ended after 300 s; let it end once the record is published"), "{error}");
        assert_eq!(pipe.read_to_end(&mut Vec::new()).expect("a pipe"), 0);
    }

    #[tokio::test]
    async fn process_that_a_command_leaves_behind_is_ended() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&path).status().is_ok_and(|status| status.success()));
        let hook = script(&format!("exec 7>'{}'; sleep 1000000 &", path.display()));
        let reading = tokio::task::spawn_blocking(|| fs::read(path).expect("a pipe"));
        hook.run(HookAction::Set, &record()).await.expect("the command succeeds");
        assert!(reading.await.expect("no panic").is_empty());
    }

    #[test]
    fn program_that_cannot_be_executed_is_named_with_what_would_do() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let file = dir.path().join("hook");
        fs::write(&file, "").expect("file can be written");
        let error = |program: &Path| DnsHook::find(program, &[], &HookTurn::default()).expect_err("no program");
        assert!(error(&file).contains("is not executable; run chmod +x /"), "{}", error(&file));
        assert!(error(dir.path()).contains("is not a file"), "{}", error(dir.path()));
        let missing = error(&dir.path().join("none"));
        assert!(missing.contains("No such file or directory") && missing.contains("write the path"), "{missing}");
        let missing = error(Path::new("no program of this name"));
        assert!(missing.contains("in PATH; write its path, and arguments as further items"), "{missing}");
    }
}
