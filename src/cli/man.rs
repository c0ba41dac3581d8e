//! `tidegate man`: writes a man page for each command.

use super::failed;
use clap::Command;
use clap_mangen::Man;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Writes the pages of `command` and of all its subcommands into `dir`.
pub(super) fn run(command: Command, dir: &Path) -> ExitCode {
    let mut command = command.disable_help_subcommand(true);
    // Gives the subcommands the names of their pages, such as tidegate-quota-set.
    command.build();
    match fs::create_dir_all(dir).and_then(|()| write_pages(&command, dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&format_args!("{}: {error}", dir.display())),
    }
}

fn write_pages(command: &Command, dir: &Path) -> io::Result<()> {
    let page = Man::new(command.clone()).source(SOURCE).manual("Tidegate");
    page.generate_to(dir)?;
    command.get_subcommands().try_for_each(|subcommand| write_pages(subcommand, dir))
}

/// Footer of all pages. Only the main command has a version.
const SOURCE: &str = concat!("tidegate ", env!("CARGO_PKG_VERSION"));
