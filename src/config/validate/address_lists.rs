//! The operator's address lists: their names, and where their files are. What stands in the files is read elsewhere.

use super::diagnostics::Diagnostics;
use crate::config::raw::address_lists::List;
use crate::config::serde_forms::NamedMap;
use crate::config::settings::AddressList;
use crate::policy::address_lists::AddressLists;

pub(super) fn lists(raw: &NamedMap<List>, report: &mut Diagnostics) -> Vec<AddressList> {
    if raw.0.len() > AddressLists::MAX_LISTS {
        report.error(
            "lists",
            format!("found {} lists, at most {} fit", raw.0.len(), AddressLists::MAX_LISTS),
            "merge some",
        );
    }
    let list = |(name, written): &(String, List)| {
        let path = format!("lists.{name}");
        report.name(&path, name);
        let path = format!("{path}.file");
        let named_at = format!("{}: {path}", report.location_of(&path));
        let file = written.file.clone().unwrap_or_default();
        if file.is_empty() {
            report.error(&path, "missing", "name a file such as ./hosting.txt");
        }
        AddressList { name: name.clone(), file: file.into(), named_at }
    };
    raw.0.iter().map(list).collect()
}
