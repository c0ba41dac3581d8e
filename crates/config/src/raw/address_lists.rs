//! Raw section `address_lists`.

use crate::scalars::FilePath;
use schemars::JsonSchema;
use serde::Deserialize;

/// A list of networks in a file.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "keys with values; write { file: ./hosting.txt }")]
pub(crate) struct AddressListFile {
    /// File with one address or network per line, IPv4 or IPv6; host bits are ignored, `#` or `;` starts a comment, and
    /// columns after the first are ignored (Spamhaus DROP, FireHOL, CSV, geofeeds, the Tor exit list). Or the JSON of a
    /// cloud (AWS, Google, Azure, Oracle, Cloudflare, Fastly, GitHub). The gateway reads it every five seconds. If it becomes invalid or is missing while the gateway runs, the previous
    /// version stays in use; `tidegate status` and the log report it, and `tidegate_address_list_stale` is 1. An empty
    /// file takes effect if it is still empty at the next read, because many editors truncate a file before writing it.
    /// Required.
    pub file: Option<FilePath>,
}
