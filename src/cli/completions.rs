//! `tidegate completions`: prints what a shell needs to complete commands, options and files.

use clap_complete::Shell;

/// Returns the completions of `command` in the language of `shell`.
pub(super) fn completions(mut command: clap::Command, shell: Shell) -> String {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
