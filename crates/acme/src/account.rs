//! Account at an ACME server: a key, and the URL by which the server knows it.

use super::client::AcmeClient;
use super::error::OrderError;
use instant_acme::{Account, NewAccount};
use std::path::Path;
use tidegate_engine::files;

/// A key and two URLs.
const MAX_FILE_BYTES: usize = 64 * 1024;

/// Opens the account in `file`, or creates one and writes it there.
pub(super) async fn open(
    file: &Path,
    directory: &str,
    contact: Option<&str>,
    client: &AcmeClient,
) -> Result<Account, OrderError> {
    let unusable = |error: &dyn std::fmt::Display| OrderError::local(format_args!("{}: {error}", file.display()));
    let builder = Account::builder_with_http(Box::new(client.clone()));
    if let Some(content) = files::read_if_exists(file, MAX_FILE_BYTES).map_err(|error| unusable(&error))? {
        let credentials = serde_json::from_slice(&content);
        // A damaged file stays for a person to look at: without its key, certificates could not be revoked.
        let credentials = credentials
            .map_err(|error| unusable(&format_args!("{error}; remove the file to create another account")))?;
        let opened = builder.from_credentials(credentials).await;
        return opened.map_err(|error| OrderError::of_first_request(directory, &error));
    }
    let contact: Vec<&str> = contact.into_iter().collect();
    let account = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
    let created = builder.create(&account, directory.to_owned(), None).await;
    let (account, credentials) = created.map_err(|error| OrderError::of_first_request(directory, &error))?;
    let content = serde_json::to_vec(&credentials).map_err(|error| unusable(&error))?;
    files::replace(file, &content).map_err(|error| unusable(&error))?;
    Ok(account)
}
