//! Runs every command of `docs/TUTORIAL.md`, in order, and compares its output with the one in the document.
//!
//! `cargo test --test integration tutorial:: -- --nocapture` prints the current output.

use crate::support::origin::Origin;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn tutorial_commands_print_the_shown_output() {
    for program in ["curl", "python3"] {
        let status = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        assert!(status.is_ok_and(|status| status.success()), "{program} is not installed; run ./test");
    }
    let steps = parse_steps(include_str!("../../docs/TUTORIAL.md"));
    assert!(steps.len() > 10);
    let outputs = TutorialShell::new().run(&steps);
    steps.iter().zip(&outputs).for_each(|(step, output)| println!("$ {}\n{output}", step.command));
    for (step, output) in steps.iter().zip(&outputs) {
        assert!(!output.contains("it failed"), "$ {}\n{output}", step.command);
        assert!(
            output_matches(&step.expected_output, output),
            "$ {}\n{output}\n--- expected\n{}",
            step.command,
            step.expected_output.join("\n")
        );
    }
}

#[test]
fn ellipsis_matches_any_lines() {
    let expected = ["a", "...", "d"];
    assert!(output_matches(&expected, "a\nb\nc\nd\n") && output_matches(&expected, "a\nd\n"));
    assert!(
        !output_matches(&expected, "a\nb\n")
            && !output_matches(&expected, "b\nd\n")
            && !output_matches(&["a"], "a\nb\n")
    );
}

/// A command, and its output in the document.
struct TutorialStep<'a> {
    command: &'a str,
    expected_output: Vec<&'a str>,
}

/// Returns the commands in blocks marked `console`: lines after `$ `. The following lines are their output.
fn parse_steps(text: &str) -> Vec<TutorialStep<'_>> {
    let mut steps: Vec<TutorialStep<'_>> = Vec::new();
    for block in text.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap_or_default().lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(TutorialStep { command, expected_output: Vec::new() }),
                (None, Some(step)) => step.expected_output.push(line),
                (None, None) => panic!("a block begins with a command: {line}"),
            }
        }
    }
    steps
}

/// Returns true if the lines match the expected ones. If none are expected, any output matches.
fn output_matches(expected: &[&str], output: &str) -> bool {
    let output: Vec<&str> = output.lines().map(str::trim_end).collect();
    expected.is_empty() || lines_match(expected, &output)
}

fn lines_match(expected: &[&str], output: &[&str]) -> bool {
    match (expected, output) {
        ([], []) => true,
        (["...", rest @ ..], _) => (0..=output.len()).any(|skipped| lines_match(rest, &output[skipped..])),
        ([line, expected @ ..], [output_line, output @ ..]) => {
            line.trim_end() == *output_line && lines_match(expected, output)
        }
        _ => false,
    }
}

/// A temporary directory in which the commands run, with free ports in place of those in the document.
struct TutorialShell {
    dir: tempfile::TempDir,
    addresses: [(&'static str, String); 3],
}

impl TutorialShell {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        fs::create_dir(dir.path().join("bin")).expect("directory is empty");
        let program = Path::new(env!("CARGO_BIN_EXE_tidegate"));
        std::os::unix::fs::symlink(program, dir.path().join("bin/tidegate")).expect("directory is empty");
        let [origin, gateway, admin] = [(); 3].map(|()| Origin::free_address().port().to_string());
        Self { dir, addresses: [("3000", origin), ("8080", gateway), ("9090", admin)] }
    }

    /// Runs all commands in one shell and returns the output of each.
    fn run(&self, steps: &[TutorialStep<'_>]) -> Vec<String> {
        let substitute = |text: &str| {
            self.addresses.iter().fold(text.to_owned(), |text, (documented, actual)| text.replace(documented, actual))
        };
        let mut script = "exec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\n".to_owned();
        for step in steps {
            let command = substitute(step.command);
            script += &match command.ends_with('&') {
                true => format!("{command}\nprintf '{OUTPUT_SEPARATOR}'\n"),
                false => format!("{command} || echo \"it failed: $?\"\nprintf '{OUTPUT_SEPARATOR}'\n"),
            };
        }
        let [_, gateway, admin] = &self.addresses;
        let path = format!("{}/bin:{}", self.dir.path().display(), std::env::var("PATH").unwrap_or_default());
        // An unoptimized build on a busy machine takes minutes.
        let output = Command::new("timeout")
            .args(["900", "bash", "-c", &script])
            .current_dir(self.dir.path())
            .env("PATH", path)
            .env("TIDEGATE__LISTEN", format!("127.0.0.1:{}", gateway.1))
            .env("TIDEGATE__ADMIN__LISTEN", format!("127.0.0.1:{}", admin.1))
            .env("TIDEGATE__ORIGIN__URL", substitute("http://127.0.0.1:3000"))
            .env("TZ", "UTC")
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .output()
            .expect("shell is installed");
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        let read = |text: &str| {
            self.addresses
                .iter()
                .fold(text.to_owned(), |text, (documented, actual)| text.replace(actual.as_str(), documented))
        };
        let outputs: Vec<String> = output.split(OUTPUT_SEPARATOR).map(read).collect();
        assert_eq!(outputs.len(), steps.len() + 1, "the shell exited early: {outputs:?}");
        outputs
    }
}

const OUTPUT_SEPARATOR: &str = "@@ next @@";
