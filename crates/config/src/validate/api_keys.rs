//! Validates that API keys are where they are needed.

use super::diagnostics::Diagnostics;
use crate::raw::File;
use crate::raw::classes::ApiKeyForm;
use crate::sections::quotas::Per;
use crate::setting_path::SettingPath;
use tidegate_policy::budget::CustomerSource;

/// Reports classes and quotas that need API keys, and a list that nothing uses.
pub(super) fn check_use(file: &File, customer: Option<&CustomerSource>, report: &mut Diagnostics) {
    let are_listed = report.is_set(&SettingPath::ROOT.api_keys());
    let hint = "write api_keys: { file: keys.yaml }, and create keys by: tidegate keys add NAME --class CLASS";
    let mut is_used = customer == Some(&CustomerSource::ApiKey);
    if is_used && !are_listed {
        let (name, _) = (file.quotas.0.iter().find(|(_, quota)| matches!(quota.per, Some(Per::ApiKey))))
            .expect("a quota names the customer");
        report.error(&SettingPath::of_quota(name).per(), "there are no API keys", hint);
    }
    if file.headers.usage && customer != Some(&CustomerSource::ApiKey) {
        let hint = "write per: api_key at a quota, or leave the key out";
        report.error(&SettingPath::ROOT.headers().usage(), "no customer of a listed key has a budget", hint);
    }
    for (index, class) in file.classes.iter().enumerate() {
        if matches!(class.when.api_key, Some(ApiKeyForm::Own)) {
            is_used = true;
            if !are_listed {
                report.error(&SettingPath::of_class(index).when().api_key(), "there are no API keys", hint);
            }
        }
    }
    if are_listed && !is_used {
        report.warning("api_keys: no class has the condition `api_key: own`, so that keys change nothing; write { name: customer, when: { api_key: own } }");
    }
}
