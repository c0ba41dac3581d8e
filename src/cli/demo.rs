//! placeholder
use std::process::ExitCode;
/// placeholder
#[derive(Debug, Clone, clap::Args)]
pub struct DemoArgs {}
/// placeholder
pub fn run(_a: &DemoArgs) -> ExitCode {
    ExitCode::SUCCESS
}
