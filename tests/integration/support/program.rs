//! The real program in its own process.

use super::TIMEOUT;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use tempfile::TempDir;

/// A running program.
pub struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<Receiver<String>>,
    errors: Receiver<String>,
    error_lines: Vec<String>,
    _dir: Option<TempDir>,
}

/// Exit code, and output that was not read before.
pub struct ExitOutcome {
    pub code: i32,
    pub output: String,
    pub errors: String,
}

/// Runs the program until it exits.
pub fn run(arguments: &[&str], input: &[u8]) -> ExitOutcome {
    run_with_env(arguments, input, &[])
}

/// Like [`run`], with additional environment variables.
pub fn run_with_env(arguments: &[&str], input: &[u8], environment: &[(&str, &str)]) -> ExitOutcome {
    let mut program = Program::start_with_env(arguments, environment);
    program.write(input);
    program.wait_for_exit()
}

/// Runs the program in `dir` and in UTC: its output names files as `arguments` do, and is the same on every machine.
pub fn run_in(dir: &Path, arguments: &[&str]) -> ExitOutcome {
    let mut program = Program::spawn(dir, arguments, &[("TZ", "UTC")]);
    program.write(b"");
    program.wait_for_exit()
}

/// Returns the subcommands that a help text lists.
pub fn subcommands(help: &str) -> Vec<&str> {
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    commands.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect()
}

impl Program {
    /// Starts the program in its own directory, without a configuration file.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_with_env(arguments, &[])
    }

    /// Like [`Self::start`], with additional environment variables.
    pub fn start_with_env(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut program = Self::spawn(dir.path(), arguments, environment);
        program._dir = Some(dir);
        program
    }

    fn spawn(dir: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(arguments)
            .current_dir(dir)
            .env_remove("RUST_LOG")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("program was built");
        let input = child.stdin.take();
        let output = child.stdout.take().map(spawn_line_reader);
        let errors = child.stderr.take().map(spawn_line_reader).expect("stderr is piped");
        Self { child, input, output, errors, error_lines: Vec::new(), _dir: None }
    }

    /// Writes all input and closes it. A program may exit without reading it.
    pub fn write(&mut self, input: &[u8]) {
        let mut pipe = self.input.take().expect("input is written once");
        let input = input.to_vec();
        // In a thread of its own: the program may write more than its output pipe holds before it has read all input.
        std::thread::spawn(move || drop(pipe.write_all(&input)));
    }

    /// Closes the reader of the program's output.
    pub fn close_output(&mut self) {
        self.output = None;
    }

    /// Returns the next line of output.
    pub fn read_line(&mut self) -> String {
        let output = self.output.as_ref().expect("output is open");
        output.recv_timeout(TIMEOUT).unwrap_or_else(|_| panic!("no output: {:?}", self.errors.try_recv()))
    }

    /// Reads error lines up to one that contains `text`.
    pub fn wait_for_error(&mut self, text: &str) {
        loop {
            let line =
                self.errors.recv_timeout(TIMEOUT).unwrap_or_else(|_| panic!("no {text:?} in {:?}", self.error_lines));
            let is_match = line.contains(text);
            self.error_lines.push(line);
            if is_match {
                return;
            }
        }
    }

    /// Returns the error lines read so far.
    pub fn error_lines(&self) -> &[String] {
        &self.error_lines
    }

    /// Returns the process id.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -s {name}");
    }

    /// Kills the program with SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("process is running");
        self.child.wait().expect("process is a child");
    }

    /// Waits until the program exits.
    pub fn wait_for_exit(mut self) -> ExitOutcome {
        drop(self.input.take());
        let remaining = |lines: &Receiver<String>| {
            let lines = std::iter::from_fn(|| match lines.recv_timeout(TIMEOUT) {
                Ok(line) => Some(line + "\n"),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => None,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("the program does not exit"),
            });
            lines.collect::<String>()
        };
        let errors = remaining(&self.errors);
        let output = self.output.as_ref().map(remaining).unwrap_or_default();
        let code = self.child.wait().expect("process is a child").code().expect("process exited without a signal");
        ExitOutcome { code, output, errors }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the lines of a pipe as they arrive.
fn spawn_line_reader(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(&line)).into_owned();
            if sender.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
    receiver
}
