//! A notification as the body of a request.

use crate::notification::Notification;
use bytes::Bytes;
use serde_json::json;
use tidegate_access_log::rfc3339;
use tidegate_config::settings::NotificationFormat;

/// Maximum length of a text, in characters: what receivers show, and more than the gateway writes itself.
const MAX_TEXT: usize = 3000;

/// Returns the content type and the body. `host` is the name of this machine.
pub(super) fn write(notification: &Notification, format: NotificationFormat, host: &str) -> (&'static str, Bytes) {
    let text = printable(&notification.text);
    let headline = || format!("Tidegate on {host}: {text}");
    match format {
        NotificationFormat::Json => {
            let document = json!({
                "event": notification.kind.name(),
                "subject": notification.subject,
                "time": rfc3339(notification.at),
                "host": host,
                "text": text,
                "figures": notification.figures,
            });
            ("application/json", document.to_string().into())
        }
        NotificationFormat::Slack => {
            ("application/json", json!({ "text": escape_slack(&headline()) }).to_string().into())
        }
        NotificationFormat::Text => ("text/plain; charset=utf-8", headline().into()),
    }
}

/// Returns a text without control characters but line breaks, cut to its maximum length: paths and errors come from outside.
fn printable(text: &str) -> String {
    let plain = |letter: char| if letter.is_control() && letter != '\n' { ' ' } else { letter };
    text.chars().map(plain).take(MAX_TEXT).collect()
}

/// Escapes the characters that begin links and mentions, such as `<!channel>`.
fn escape_slack(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::NotificationKind;
    use std::collections::BTreeMap;
    use tidegate_config::settings::NotificationEvent;
    use tidegate_policy::Timestamp;

    fn notification(text: &str) -> Notification {
        Notification {
            kind: NotificationKind::Event(NotificationEvent::OriginDown),
            subject: "origin".into(),
            at: Timestamp::from_seconds(1_700_000_000),
            text: text.into(),
            figures: BTreeMap::from([("failures", json!(3))]),
        }
    }

    #[test]
    fn each_format_has_its_body() {
        let notification = notification("The origin does not respond.");
        let body = |format| String::from_utf8(write(&notification, format, "gate1").1.to_vec()).expect("text");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&body(NotificationFormat::Json)).expect("JSON"),
            json!({
                "event": "origin_down", "subject": "origin", "time": "2023-11-14T22:13:20Z", "host": "gate1",
                "text": "The origin does not respond.", "figures": { "failures": 3 },
            })
        );
        assert_eq!(body(NotificationFormat::Slack), r#"{"text":"Tidegate on gate1: The origin does not respond."}"#);
        assert_eq!(body(NotificationFormat::Text), "Tidegate on gate1: The origin does not respond.");
    }

    #[test]
    fn text_from_outside_mentions_nobody_and_is_bounded() {
        let hostile = format!("/a\n<!channel> <https://evil.example|log in> & \u{1b}[31m{}", "x".repeat(10_000));
        let (_, body) = write(&notification(&hostile), NotificationFormat::Slack, "gate1");
        let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        let text = body["text"].as_str().expect("text");
        assert!(!text.contains(['<', '>', '\u{1b}']), "{text}");
        assert!(text.chars().count() < 3200, "{}", text.len());
    }
}
