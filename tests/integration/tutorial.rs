//! The walk through `docs/TUTORIAL.md`: every command in it is run, in order, and says what is shown there.
//!
//! `cargo test --test integration tutorial:: -- --nocapture` prints what they say now.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn every_command_of_the_tutorial_says_what_is_shown() {
    for program in ["curl", "python3"] {
        let asked = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        assert!(asked.is_ok_and(|status| status.success()), "{program} is not installed; ./test installs it");
    }
    let steps = steps(include_str!("../../docs/TUTORIAL.md"));
    assert!(steps.len() > 10);
    let told = Desk::new().run(&steps);
    for (step, told) in steps.iter().zip(told) {
        println!("$ {}\n{told}", step.command);
        assert!(!told.contains("it failed"), "$ {}\n{told}", step.command);
        assert!(fits(&step.shown, &told), "$ {}\n{told}\n--- but shown is\n{}", step.command, step.shown.join("\n"));
    }
}

#[test]
fn dots_stand_for_any_lines() {
    let shown = ["a", "...", "d"];
    assert!(fits(&shown, "a\nb\nc\nd\n") && fits(&shown, "a\nd\n"));
    assert!(!fits(&shown, "a\nb\n") && !fits(&shown, "b\nd\n") && !fits(&["a"], "a\nb\n"));
}

/// One command, and what stands below it.
struct Step<'a> {
    command: &'a str,
    shown: Vec<&'a str>,
}

/// The commands in blocks marked `console`: lines after `$ `. What follows is what they say.
fn steps(text: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for block in text.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap_or_default().lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step { command, shown: Vec::new() }),
                (None, Some(step)) => step.shown.push(line),
                (None, None) => panic!("a block begins with a command: {line}"),
            }
        }
    }
    steps
}

/// True when the lines are those that are shown. Where nothing is shown, anything may be said.
fn fits(shown: &[&str], told: &str) -> bool {
    let told: Vec<&str> = told.lines().map(str::trim_end).collect();
    shown.is_empty() || lines_fit(shown, &told)
}

fn lines_fit(shown: &[&str], told: &[&str]) -> bool {
    match (shown, told) {
        ([], []) => true,
        (["...", rest @ ..], _) => (0..=told.len()).any(|skipped| lines_fit(rest, &told[skipped..])),
        ([line, shown @ ..], [said, told @ ..]) => line.trim_end() == *said && lines_fit(shown, told),
        _ => false,
    }
}

/// A folder to do it in, with addresses that nobody else has instead of those that are written.
struct Desk {
    folder: tempfile::TempDir,
    addresses: [(&'static str, String); 3],
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder of its own");
        fs::create_dir(folder.path().join("bin")).expect("it is empty");
        let program = Path::new(env!("CARGO_BIN_EXE_tidegate"));
        std::os::unix::fs::symlink(program, folder.path().join("bin/tidegate")).expect("it is empty");
        // Held together, so that they differ.
        let free = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let [site, gate, admin] = free.map(|port| port.local_addr().expect("it is bound").port().to_string());
        Self { folder, addresses: [("3000", site), ("8080", gate), ("9090", admin)] }
    }

    /// Runs all of them in one shell; returns what each says.
    fn run(&self, steps: &[Step<'_>]) -> Vec<String> {
        let written = |text: &str| {
            self.addresses.iter().fold(text.to_owned(), |text, (written, ours)| text.replace(written, ours))
        };
        let mut script = "exec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\n".to_owned();
        for step in steps {
            let command = written(step.command);
            script += &match command.ends_with('&') {
                true => format!("{command}\nprintf '{MARK}'\n"),
                false => format!("{command} || echo \"it failed: $?\"\nprintf '{MARK}'\n"),
            };
        }
        let [_, gate, admin] = &self.addresses;
        let path = format!("{}/bin:{}", self.folder.path().display(), std::env::var("PATH").unwrap_or_default());
        let told = Command::new("timeout")
            .args(["120", "bash", "-c", &script])
            .current_dir(self.folder.path())
            .env("PATH", path)
            .env("TIDEGATE__LISTEN", format!("127.0.0.1:{}", gate.1))
            .env("TIDEGATE__ADMIN__LISTEN", format!("127.0.0.1:{}", admin.1))
            .env("TIDEGATE__ORIGIN__URL", written("http://127.0.0.1:3000"))
            .env("TZ", "UTC")
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .output()
            .expect("a shell");
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        let read = |text: &str| {
            self.addresses.iter().fold(text.to_owned(), |text, (written, ours)| text.replace(ours.as_str(), written))
        };
        let told: Vec<String> = told.split(MARK).map(read).collect();
        assert_eq!(told.len(), steps.len() + 1, "it was ended: {told:?}");
        told
    }
}

const MARK: &str = "@@ next @@";
