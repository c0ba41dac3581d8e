//! Raw section `log`.

use crate::scalars::{FilePath, Size};
use crate::section::{any, at_least, positive, section};
use crate::serde_forms::{OneOrMany, word_or_keys};
use crate::settings::LogLevel;
use schemars::JsonSchema;
use serde::Deserialize;

const MIB: u64 = 1 << 20;

section! {
    /// Access log and log level.
    pub(crate) struct Log {
        /// Access log, one line per request: off, stdout, or { path, format }. `off` disables it. It is written in
        /// batches. Default the file access.log in state_dir.
        access: Option<Access>;
        /// Log level on standard error: error, warn, info, debug or trace. What administrators do (target audit) is logged
        /// at every level.
        level: LogLevel = LogLevel::Info => LogLevel, any;
        /// Names of query parameters whose values the access log shows as [redacted], in any letter case: one, or a list.
        /// This includes the query of the Referer. Replays cannot match routes by these values. Default none.
        redact: Vec<String> = Vec::new() => OneOrMany<String>, any;
    }
}

section! {
    /// Access log in a file.
    pub(crate) struct AccessFile {
        /// File that lines are appended to; it can be reopened with SIGUSR1 or SIGHUP. Required.
        path: Option<FilePath>;
        /// Format of the lines: json, which can be replayed, or combined, the format of Apache and nginx for programs that read
        /// no other. combined lacks the host, the class, costs, the decision and fractions of seconds: a replay of it is one
        /// of another server's log. Default json.
        format: Format;
        /// Size above which the file is renamed to FILE.1, FILE.1 to FILE.2 and so on, and a new one begun; at least 1MiB.
        /// Default none: another program such as logrotate does it.
        max_size: Option<u64> = None => Size, at_least(MIB, 100 * MIB);
        /// Number of earlier files that max_size keeps, at least 1.
        keep: u32 = 4 => u32, positive;
    }
}

/// Destination of the access log.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    Off,
    Stdout,
    File(AccessFile),
}

/// Format of the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    #[default]
    Json,
    Combined,
}

word_or_keys! {
    Access, "an access log; use off, stdout or { path: FILE }":
    "off" => Self::Off,
    "stdout" => Self::Stdout,
    AccessFile => Self::File
}
