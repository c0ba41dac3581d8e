//! The real program as a process of its own.

use super::TIMEOUT;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use tempfile::TempDir;

/// A running program.
pub struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<Receiver<String>>,
    errors: Receiver<String>,
    told: Vec<String>,
    _folder: TempDir,
}

/// How it ended, and what it said that nobody had read before.
pub struct Ended {
    pub code: i32,
    pub output: String,
    pub errors: String,
}

/// Runs the program to its end.
pub fn run(arguments: &[&str], input: &[u8]) -> Ended {
    run_with(arguments, input, &[])
}

/// The same with more in its environment.
pub fn run_with(arguments: &[&str], input: &[u8], environment: &[(&str, &str)]) -> Ended {
    let mut program = Program::start_with(arguments, environment);
    program.write(input);
    program.end()
}

impl Program {
    /// Starts it in a folder of its own, where there is no file it could take for its own.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[])
    }

    /// The same with more in its environment.
    pub fn start_with(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder of its own");
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(arguments)
            .current_dir(folder.path())
            .env_remove("RUST_LOG")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it was built");
        let input = child.stdin.take();
        let output = child.stdout.take().map(lines);
        let errors = child.stderr.take().map(lines).expect("it is piped");
        Self { child, input, output, errors, told: Vec::new(), _folder: folder }
    }

    /// Sends it all of its input. A program that ends without reading it is no surprise.
    pub fn write(&mut self, input: &[u8]) {
        let mut pipe = self.input.take().expect("its input is written once");
        let input = input.to_vec();
        // Apart, because it may say more than the pipe back holds before it has read everything.
        std::thread::spawn(move || drop(pipe.write_all(&input)));
    }

    /// Leaves its output to nobody.
    pub fn close_output(&mut self) {
        self.output = None;
    }

    /// The next line of its output.
    pub fn line(&mut self) -> String {
        let output = self.output.as_ref().expect("its output is read");
        output.recv_timeout(TIMEOUT).unwrap_or_else(|_| panic!("it says nothing: {:?}", self.errors.try_recv()))
    }

    /// Reads its errors up to a line that holds `text`.
    pub fn error_line(&mut self, text: &str) {
        loop {
            let line = self.errors.recv_timeout(TIMEOUT).unwrap_or_else(|_| panic!("no {text:?} in {:?}", self.told));
            let found = line.contains(text);
            self.told.push(line);
            if found {
                return;
            }
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal by name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -s {name}");
    }

    /// Kills it, as the system does when memory runs out: it gets no chance to do anything.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is ours");
    }

    /// Waits for its end.
    pub fn end(mut self) -> Ended {
        drop(self.input.take());
        let rest = |lines: &Receiver<String>| {
            let lines = std::iter::from_fn(|| match lines.recv_timeout(TIMEOUT) {
                Ok(line) => Some(line + "\n"),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => None,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("it does not end"),
            });
            lines.collect::<String>()
        };
        let errors = rest(&self.errors);
        let output = self.output.as_ref().map(rest).unwrap_or_default();
        let code = self.child.wait().expect("it is ours").code().expect("no signal ended it");
        Ended { code, output, errors }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a pipe as they come.
fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
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
