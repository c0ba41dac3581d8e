//! Errors of the command line, in the form of all errors: one line with the place, what is wrong, and a hint.

use super::print_errors;
use std::process::ExitCode;

/// Prints help and versions on standard output, and errors on standard error; returns the exit code.
pub(super) fn report(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A closed pipe is not a failure.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    print_errors(&error_line(&error.render().to_string()))
}

/// Returns the error of `rendered`, clap's paragraphs, as one line: the message, then the tips or where to find help.
fn error_line(rendered: &str) -> String {
    let joined = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let paragraphs: Vec<String> = rendered.split("\n\n").map(joined).collect();
    let part = |prefix: &str| paragraphs.iter().find_map(|paragraph| paragraph.strip_prefix(prefix));
    let message = part("error: ").unwrap_or("a subcommand is missing");
    let hint = part("tip: ").map(str::to_owned).unwrap_or_else(|| {
        let usage = part("Usage: ").unwrap_or("tidegate");
        let command: Vec<&str> = usage.split(' ').take_while(|word| !word.starts_with(['[', '<', '-'])).collect();
        format!("see {} --help", command.join(" "))
    });
    format!("command line: {message}; {hint}")
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::*;
    use clap::Parser;

    #[test]
    fn errors_have_one_line_with_a_hint() {
        let line = |arguments: &[&str]| {
            let error = Cli::try_parse_from([&["tidegate"], arguments].concat()).expect_err("invalid");
            error_line(&error.render().to_string())
        };
        insta::assert_snapshot!(
            [
                &["statsu"][..],
                &["status", "--jsn"],
                &["replay"],
                &["demo", "--seconds", "0"],
                &["quota", "set", "pages"],
                &["quota"],
                &["frobnicate"],
            ]
            .map(line)
            .join("\n")
        );
    }
}
