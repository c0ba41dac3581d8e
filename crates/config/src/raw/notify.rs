//! Raw section `notify`.

use crate::scalars::FilePath;
use crate::section::{any, section};
use crate::serde_forms::{OneOrMany, SecretText};
use crate::settings::{NotificationEvent, NotificationFormat};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

section! {
    /// Webhook that is sent notifications.
    pub(crate) struct WebhookKeys {
        /// URL that notifications are sent to with POST: https://, or http:// to a receiver of your own. Its path may be a
        /// secret, and is never logged. Required.
        webhook: Option<SecretText>;
        /// Form of a notification: json, an object with the event and its figures; slack, an object with `text`, which Slack,
        /// Mattermost, Rocket.Chat and Google Chat show; text, plain text, which ntfy shows.
        format: NotificationFormat = NotificationFormat::Json => NotificationFormat, any;
        /// Events that are sent: all, one, or a list. docs/OPERATIONS.md says when each one is sent. Default all.
        events("on"): Events;
        /// daily: a summary of each day, sent after its end in the time zone of the system. Default none.
        summary: Option<Summary>;
        /// PEM file with the authorities that sign the certificate of the receiver, or with exactly that certificate. The path
        /// starts at the directory of this file. Default: the public authorities.
        ca: Option<FilePath>;
    }
}

/// Events that a webhook is sent.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Events(OneOrMany<EventWord>);

/// An event, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct EventWord(Option<NotificationEvent>);

const ALL: &str = "all";

/// Words of `on`.
const WORDS: [&str; NotificationEvent::ALL.len() + 1] = {
    let mut words = [ALL; NotificationEvent::ALL.len() + 1];
    let mut index = 0;
    while index < NotificationEvent::ALL.len() {
        words[index + 1] = NotificationEvent::ALL[index].name();
        index += 1;
    }
    words
};

/// Summary that a webhook is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Summary {
    Daily,
}

impl Events {
    /// Returns true if the event is named, not only one of all.
    pub(crate) fn names(&self, event: NotificationEvent) -> bool {
        let Self(OneOrMany(words)) = self;
        words.iter().any(|EventWord(word)| *word == Some(event))
    }

    /// Returns the events, each once; all if none is named.
    pub(crate) fn resolve(&self) -> Vec<NotificationEvent> {
        let Self(OneOrMany(words)) = self;
        let is_sent = |event: &NotificationEvent| {
            words.is_empty() || words.iter().any(|EventWord(word)| word.is_none_or(|word| word == *event))
        };
        NotificationEvent::ALL.into_iter().filter(is_sent).collect()
    }
}

impl<'de> Deserialize<'de> for EventWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let event = NotificationEvent::ALL.into_iter().find(|event| event.name() == word);
        match event.is_some() || word == ALL {
            true => Ok(Self(event)),
            false => Err(D::Error::unknown_variant(&word, &WORDS)),
        }
    }
}

impl JsonSchema for EventWord {
    fn schema_name() -> Cow<'static, str> {
        "NotificationEvent".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": WORDS })
    }
}
