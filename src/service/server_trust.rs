//! Servers outside of the data plane that the gateway trusts: an ACME server, and that of a shared ledger.

use std::fmt;
use std::path::Path;
use tidegate_engine::files;
use tidegate_tls::ServerTrust;

/// Maximum length of a file with authorities.
const MAX_FILE_BYTES: usize = 4 << 20;

/// Returns trust in the authorities, or in the server itself, that `file` names. An error names the place in the settings.
pub(super) fn read(file: &Path, location: &str) -> Result<ServerTrust, String> {
    let error = |reason: &dyn fmt::Display, hint: &str| format!("{location}: {} {reason}; {hint}", file.display());
    let pem = files::read(file, MAX_FILE_BYTES).map_err(|reason| {
        error(&format_args!("cannot be read: {reason}"), "write the path of a file that the gateway may read")
    })?;
    ServerTrust::from_pem(&pem).map_err(|reason| error(&reason, "write the authorities of the server in PEM"))
}
