//! Validates `notify`.

use super::diagnostics::Diagnostics;
use crate::authority;
use crate::raw::notify as raw;
use crate::setting_path::SettingPath;
use crate::settings::{Webhook, WebhookUrl, default_port};
use tidegate_policy::secret::Secret;

/// More receivers than an operator reads.
const MAX_WEBHOOKS: usize = 16;

const EXAMPLE: &str = "write it like https://hooks.example/services/T000/B000";

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

/// Parses a URL. The error does not show it, because it may hold a secret.
fn parse_url(text: &str) -> Result<WebhookUrl, &'static str> {
    let (is_tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        _ => return Err("not an https:// or http:// URL"),
    };
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("has a character other than visible ASCII");
    }
    if rest.contains('#') {
        return Err("has a fragment (#), which is never sent");
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    if authority.contains('@') {
        return Err("has a user before the host, which is not sent");
    }
    let (host, port) = authority::parse(authority).map_err(|_| "has no valid host and port")?;
    let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
    Ok(WebhookUrl { is_tls, host, port: port.unwrap_or(default_port(is_tls)), target: Secret::new(target) })
}
