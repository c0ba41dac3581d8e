//! The `tidegate` command. Everything it does lives in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate::cli::run()
}
