//! Explains a line of a log: the lines before it are replayed, and the decision on its request is explained.

use super::log_line::LogLineRef;
use super::{ExplainArgs, target};
use crate::cli::CommandError;
use crate::cli::progress::{Progress, ReadProgress};
use tidegate_replay::explain::{Environment, Explanation, explain, input_from_replay};
use tidegate_replay::log::{LogFiles, MergedLog};
use tidegate_replay::{PendingRequest, Policy, Replay};

/// A log that can be replayed up to one of its lines, repeatedly and under different policies.
pub(super) struct LogReplay<'a> {
    pub(super) args: &'a ExplainArgs,
    pub(super) line: &'a LogLineRef,
}

impl LogReplay<'_> {
    /// Explains the line's request under `policy`.
    pub(super) fn explain_with(&self, policy: &Policy) -> Result<Explanation, CommandError> {
        let Self { args, line } = self;
        let environment = Environment::from(policy);
        let used = target::parse_used_options(args, environment).map_err(CommandError::Usage)?;
        let used = |quota: &str| used.iter().rev().find(|(name, _)| name == quota).map(|(_, used)| *used);
        let explained = |pending: &PendingRequest<'_, '_>| {
            let dry_run = pending.dry_run();
            explain(&input_from_replay(pending, dry_run, environment, &pending.quotas()).override_used(used))
        };
        let assumption_args = args.assumption_args.clone().unwrap_or_default();
        let assumptions = assumption_args.assumptions(&[policy])?;
        let files = LogFiles::open_with(&line.files, &args.format.options())
            .map_err(|error| CommandError::Usage(error.to_string()))?;
        let (progress, reading) = (Progress::start(), ReadProgress::new(&files));
        let replay = Replay {
            files: files.sources.iter().map(|source| source.name.clone()).collect(),
            lines: MergedLog::new(files.sources, assumption_args.reorder_window),
            reorder_window: assumption_args.reorder_window,
            assumptions,
        };
        let on_progress = &mut |lines| progress.show(|elapsed| reading.render(lines, elapsed));
        let result =
            replay.run_until(line.position, policy.with_settings(policy.settings.clone()), explained, on_progress);
        progress.clear();
        // A client that obeys Retry-After may defer a request beyond the end of the log.
        let message = "never reached by the replay, because the client defers the request; leave out --retry-model";
        result?.ok_or_else(|| CommandError::Usage(format!("{}: {message}", line.name())))
    }
}
