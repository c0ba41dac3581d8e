//! Validates `notify`.

use super::diagnostics::Diagnostics;
use super::receiver_url::parse_url;
use crate::raw::notify as raw;
use crate::setting_path::SettingPath;
use crate::settings::{NotificationEvent, Webhook};
use tidegate_policy::quota::Quota;

/// More receivers than an operator reads.
const MAX_WEBHOOKS: usize = 16;

const EXAMPLE: &str = "write it like https://hooks.example/services/T000/B000";

/// Reports events of quotas that never happen, because each quota has a budget for each key.
pub(super) fn check_quota_events(raw: &[raw::WebhookKeys], quotas: &[Quota], report: &mut Diagnostics) {
    let Some(first) = quotas.first().filter(|_| quotas.iter().all(|quota| quota.budget.is_some())) else { return };
    let of_quotas = [NotificationEvent::Quota80, NotificationEvent::Quota95, NotificationEvent::QuotaSpent];
    for (index, webhook) in raw.iter().enumerate() {
        let Some(event) = of_quotas.into_iter().find(|event| webhook.events.names(*event)) else { continue };
        let message = format!("each quota has a budget for each key, so that {} never happens", event.name());
        let hint = "leave it out, or define a quota without `per`; `tidegate usage` shows who has used up a budget";
        let path = SettingPath::ROOT.notify().index(index).on();
        report.contradiction(&path, &[SettingPath::of_quota(&first.name).per()], message, hint);
    }
}

pub(super) fn webhooks(raw: &[raw::WebhookKeys], report: &mut Diagnostics) -> Vec<Webhook> {
    let path = SettingPath::ROOT.notify();
    report.check_len(&path, "webhooks", raw.len(), MAX_WEBHOOKS, "let one receiver pass them on");
    let webhooks = raw.iter().enumerate().filter_map(|(index, webhook)| {
        let path = path.index(index);
        let url_path = path.webhook();
        let Some(url) = &webhook.webhook else {
            report.error(&url_path, "missing", format!("name the URL of the receiver: {EXAMPLE}"));
            return None;
        };
        match parse_url(url.0.expose_secret()) {
            Ok(url) => {
                if webhook.ca.is_some() && !url.is_tls {
                    report.error(
                        &path.ca(),
                        "the webhook has no https://",
                        "leave it out, or write https:// in the URL",
                    );
                }
                Some(Webhook {
                    url,
                    format: webhook.format,
                    events: webhook.events.resolve(),
                    has_summary: webhook.summary.is_some(),
                    authority: webhook.ca.as_ref().map(|file| report.beside_file(file)),
                })
            }
            Err(problem) => {
                report.error(&url_path, problem, EXAMPLE);
                None
            }
        }
    });
    webhooks.collect()
}
