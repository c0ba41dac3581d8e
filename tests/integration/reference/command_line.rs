//! CLI.md, from the help of the program.

use super::assert_current;
use crate::support::program::{run, subcommands};

#[test]
fn command_document_is_current() {
    let mut text = INTRODUCTION.to_owned();
    write_help(&mut text, &[]);
    assert_current("CLI.md", "Command line", &format!("{}\n", text.trim_end()));
}

#[test]
fn long_help_lines_are_wrapped_below_their_text() {
    let line = format!("  --log <FILE>  {} end", "word ".repeat(19).trim_end());
    let wrapped = wrap(&line);
    assert_eq!(wrapped.lines().count(), 2);
    assert!(wrapped.lines().all(|line| line.chars().count() <= WIDTH), "{wrapped}");
    assert!(wrapped.ends_with("\n                word word end"), "{wrapped}");
}

/// Appends the help of a command and of its subcommands.
fn write_help(text: &mut String, command: &[&str]) {
    let arguments: Vec<&str> = std::iter::once("help").chain(command.iter().copied()).collect();
    let outcome = run(&arguments, b"");
    assert_eq!((outcome.code, outcome.errors.as_str()), (0, ""), "{arguments:?}");
    let help: Vec<String> = outcome.output.trim_end().lines().map(wrap).collect();
    let name = ["tidegate"].iter().chain(command).copied().collect::<Vec<_>>().join(" ");
    let level = "#".repeat(command.len() + 2 - usize::from(!command.is_empty()));
    *text += &format!("{level} {name}\n\n```text\n{}\n```\n\n", help.join("\n"));
    for subcommand in subcommands(&outcome.output) {
        let path: Vec<&str> = command.iter().copied().chain([subcommand]).collect();
        write_help(text, &path);
    }
}

/// Wraps a line of help at a fixed width. Further lines start below the text of the line, after the name of an option
/// or value.
fn wrap(line: &str) -> String {
    let line = line.trim_end();
    let start = line.len() - line.trim_start().len();
    let gap = line[start..].match_indices("  ").next().map(|(gap, _)| start + gap);
    let column = gap.map_or(start, |gap| line.len() - line[gap..].trim_start().len());
    let (head, body) = line.split_at(column);
    let (mut lines, mut current) = (Vec::new(), head.to_owned());
    for word in body.split(' ') {
        let is_first = current.trim().is_empty() || current.len() == head.len();
        if !is_first && current.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(std::mem::replace(&mut current, " ".repeat(column)));
            current += word;
        } else {
            if !is_first {
                current.push(' ');
            }
            current += word;
        }
    }
    lines.push(current);
    lines.join("\n")
}

/// Width of the text blocks.
const WIDTH: usize = 100;

const INTRODUCTION: &str = "\
This page is the output of `tidegate help` and `tidegate help COMMAND` of every command, at a width of 100 columns. The
[tutorial](../TUTORIAL.md) shows the commands in use.

";
