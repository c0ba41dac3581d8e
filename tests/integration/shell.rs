//! What shells and `man` read of the command line: completions and man pages of every command.

use crate::support::program::{run, subcommands};
use std::fs;
use std::process::Command;

#[test]
fn every_command_has_a_man_page() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let pages = dir.path().join("share/man/man1");
    for round in ["new directory", "existing pages"] {
        let outcome = run(&["man", &pages.display().to_string()], b"");
        assert_eq!((outcome.code, outcome.output.as_str(), outcome.errors.as_str()), (0, "", ""), "{round}");
    }
    let mut expected: Vec<String> = commands().iter().map(|command| format!("{}.1", command.join("-"))).collect();
    expected.sort();
    let mut written: Vec<String> = fs::read_dir(&pages)
        .expect("directory was created")
        .map(|entry| entry.expect("entry is readable").file_name().into_string().expect("names are ASCII"))
        .collect();
    written.sort();
    assert_eq!(written, expected);
    for name in written {
        let page = fs::read_to_string(pages.join(&name)).expect("page is readable");
        let title = format!(".TH {} 1", name.trim_end_matches(".1"));
        let is_complete =
            page.contains(&title) && page.contains(env!("CARGO_PKG_VERSION")) && page.contains(".SH NAME");
        assert!(is_complete, "{name}:\n{page}");
    }
}

#[test]
fn man_pages_need_a_directory() {
    let file = tempfile::NamedTempFile::new().expect("temporary file");
    let outcome = run(&["man", &file.path().display().to_string()], b"");
    assert_eq!((outcome.code, outcome.output.as_str()), (1, ""));
    assert!(outcome.errors.starts_with(&format!("tidegate: {}: ", file.path().display())), "{}", outcome.errors);
}

#[test]
fn every_shell_completes_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = completions(shell);
        for command in commands() {
            let name = command.last().expect("a command has a name");
            assert!(script.contains(name), "{shell}: {command:?}");
        }
    }
}

#[test]
fn bash_completes_commands_and_options() {
    let completed = |words: &[&str]| -> Vec<String> {
        let (last, before) = words.split_last().expect("a word to complete");
        let previous = before.last().expect("the program is the first word");
        let script = format!(
            "{}\nCOMP_WORDS=({}); COMP_CWORD={}; _tidegate tidegate '{last}' '{previous}'\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"",
            completions("bash"),
            words.join(" "),
            before.len()
        );
        let output = Command::new("bash").args(["-c", &script]).output().expect("bash runs ./test");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("completions are ASCII").lines().map(str::to_owned).collect()
    };
    assert_eq!(completed(&["tidegate", "quo"]), ["quota"]);
    assert_eq!(completed(&["tidegate", "quota", "re"]), ["reset"]);
    assert_eq!(completed(&["tidegate", "completions", "z"]), ["zsh"]);
    assert_eq!(completed(&["tidegate", "status", "--wa"]), ["--watch"]);
}

fn completions(shell: &str) -> String {
    let outcome = run(&["completions", shell], b"");
    assert_eq!((outcome.code, outcome.errors.as_str()), (0, ""), "{shell}");
    outcome.output
}

/// Returns all commands, each with its path, the program first.
fn commands() -> Vec<Vec<String>> {
    let mut commands = vec![vec!["tidegate".to_owned()]];
    let mut next = 0;
    while let Some(command) = commands.get(next).cloned() {
        let arguments: Vec<&str> = std::iter::once("help").chain(command.iter().skip(1).map(String::as_str)).collect();
        let help = run(&arguments, b"").output;
        commands.extend(subcommands(&help).into_iter().map(|name| [command.clone(), vec![name.to_owned()]].concat()));
        next += 1;
    }
    commands
}
