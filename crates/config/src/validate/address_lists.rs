//! Validates `address_lists`: the names of the lists and the paths of their files. `address_list_files` reads the
//! files.

use super::diagnostics::Diagnostics;
use crate::raw::address_lists::AddressListFile;
use crate::serde_forms::NamedMap;
use crate::setting_path::SettingPath;
use crate::settings::AddressList;
use tidegate_policy::address_lists::AddressLists;

pub(super) fn lists(raw: &NamedMap<AddressListFile>, report: &mut Diagnostics) -> Vec<AddressList> {
    let path = SettingPath::ROOT.address_lists();
    report.check_len(&path, "lists", raw.0.len(), AddressLists::MAX_LISTS, "merge some");
    let list = |(name, raw_list): &(String, AddressListFile)| {
        let path = path.entry(name);
        report.check_name(&path, name);
        let path = path.file();
        let named_at = format!("{}: {path}", report.location_of(&path));
        if raw_list.file.is_none() {
            report.error(&path, "missing", "name a file such as ./hosting.txt");
        }
        AddressList {
            name: name.clone(),
            file: raw_list.file.as_ref().map(|file| file.0.as_str()).unwrap_or_default().into(),
            location: named_at,
        }
    };
    raw.0.iter().map(list).collect()
}
