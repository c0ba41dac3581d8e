//! Raw section `ledger`: a word, or the keys of Redis.

use crate::scalars::FilePath;
use crate::section::{any, section};
use crate::serde_forms::{SecretText, word_or_keys};
use crate::settings::LedgerFailureMode;

/// Storage of quota usage.
#[derive(Clone, Default)]
pub(crate) enum Ledger {
    #[default]
    File,
    Memory,
    Shared(SharedLedger),
}

section! {
    /// A ledger shared by several instances.
    pub(crate) struct SharedLedger {
        /// Redis or Valkey server through which the instances share each quota. Required.
        redis: Option<Redis>;
    }
}

word_or_keys! {
    Ledger, "a ledger; use file, memory or { redis: { url: redis://HOST } }":
    "file" => Self::File,
    "memory" => Self::Memory,
    SharedLedger => Self::Shared
}

section! {
    /// A Redis or Valkey server shared by several instances.
    pub(crate) struct Redis {
        /// URL of the server; never shown. Required.
        ///
        /// - `redis://host`, `redis://:password@host:6379/0` or `redis://user:password@host`; default port 6379, default
        ///   database 0. The host may be any node of a cluster.
        /// - `rediss://...`: over TLS.
        /// - `unix:///run/redis.sock` or `unix://user:password@/run/redis.sock?db=0`: a Unix socket.
        /// - `redis+sentinel://user:password@host,host:26379/primary/0`: the primary that one of the Sentinels names; default
        ///   port 26379. With `rediss+sentinel://`, the Sentinels are asked over TLS, too.
        ///
        /// `valkey` is the same as `redis`. Write % in a user or password as %25.
        url: Option<SecretText>;
        /// File with the authorities that the server's certificate may be from, in PEM, or with that certificate
        /// itself; relative to the directory of this file. Default: the public authorities.
        ca: Option<FilePath>;
        /// Prefix of the Redis keys: up to 64 of a-z, 0-9, `_`, `.` and `-`. Instances with the same prefix share their
        /// quotas. The state of a quota is the hash `{PREFIX:QUOTA}:leases`; it expires a week after its last window
        /// has ended.
        prefix: String = "tidegate".to_owned() => String, any;
        /// Secret with which certificates by ACME are encrypted in Redis: at least 16 characters, the same for all
        /// instances. Without it, instances answer each other's challenges, but each orders a certificate of its own.
        /// Default: none.
        certificate_secret: Option<SecretText>;
        /// Behavior if Redis is unreachable and the lease of the instance is used up: refuse costed requests, or use
        /// the fallback units (fallback).
        ///
        /// With `fallback`, every response of Redis reserves fallback units for this instance: half of the remaining
        /// units divided by the instances seen in the last minute; nothing below 1 % of the limit. The instance uses
        /// them while Redis does not respond. No other instance can use them, so the limit holds. An instance that
        /// crashes wastes them.
        failure_mode: LedgerFailureMode = LedgerFailureMode::Refuse => LedgerFailureMode, any;
    }
}
