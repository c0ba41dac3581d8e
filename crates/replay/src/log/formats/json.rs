//! Lines of JSON, by the names of their fields.

use super::field::Meaning;
use super::record::FieldValues;
use super::value::Value;
use crate::log::LineError;
use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use tidegate_policy::bot_detection::HeadersSeen;

/// Names of a log of JSON: a tree, because values may be in objects.
#[derive(Clone, Debug, Default)]
pub(in crate::log) struct JsonNames {
    /// Meanings of the values, the first choice of a field first.
    meanings: Vec<Meaning>,
    root: NamedObject,
}

/// Names within an object.
#[derive(Clone, Debug, Default)]
struct NamedObject(Vec<(Box<str>, Member)>);

#[derive(Clone, Debug)]
enum Member {
    /// Indexes of the meanings of a value.
    Value(Vec<usize>),
    /// Kind of an event, which starts so for requests.
    Event(&'static str),
    Object(NamedObject),
    /// All request headers by their name, each as a list of its values. Other members are in the object.
    Headers(NamedObject),
}

impl JsonNames {
    /// Creates the names; each is a path with a dot between the name of an object and that of its member.
    pub(in crate::log) fn new<'a>(names: impl Iterator<Item = (&'a str, Meaning)>) -> Self {
        let mut all = Self::default();
        names.for_each(|(path, meaning)| all.add(path, meaning));
        all
    }

    /// Adds a name, behind the earlier ones of its field.
    pub(in crate::log) fn add(&mut self, path: &str, meaning: Meaning) {
        let index = self.meanings.len();
        self.meanings.push(meaning);
        self.root.add(path, Member::Value(vec![index]));
        if path.contains('.') {
            // The name of a member may itself have a dot.
            self.root.add_member(path, Member::Value(vec![index]));
        }
    }

    /// Says that the value of `name` starts with `prefix` in the lines of requests, if it is present.
    pub(in crate::log) fn with_event(mut self, name: &str, prefix: &'static str) -> Self {
        self.root.add_member(name, Member::Event(prefix));
        self
    }

    /// Says that the object at `path` has all request headers.
    pub(in crate::log) fn with_headers(mut self, path: &str) -> Self {
        self.root.mark_headers(path);
        self
    }

    /// Reads the values of a line.
    pub(in crate::log) fn read<'a>(&self, line: &'a [u8]) -> Result<FieldValues<'a>, LineError> {
        let mut values = ReadValues { values: vec![None; self.meanings.len()], headers: None, is_other_event: false };
        let mut json = serde_json::Deserializer::from_slice(line);
        let seed = ObjectSeed { names: &self.root, is_headers: false, values: &mut values };
        seed.deserialize(&mut json).and_then(|()| json.end()).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => LineError::UnknownJson,
            _ => LineError::Truncated,
        })?;
        if values.is_other_event {
            return Err(LineError::NotRequest);
        }
        let mut fields = FieldValues::with_headers(values.headers);
        for (meaning, value) in self.meanings.iter().zip(values.values) {
            value.into_iter().for_each(|value| fields.set(*meaning, value));
        }
        Ok(fields)
    }
}

impl NamedObject {
    fn add(&mut self, path: &str, member: Member) {
        match path.split_once('.') {
            None => self.add_member(path, member),
            Some((name, rest)) => {
                if self.member(name).is_none() {
                    self.add_member(name, Member::Object(Self::default()));
                }
                if let Some(Member::Object(object) | Member::Headers(object)) = self.member_mut(name) {
                    object.add(rest, member);
                }
            }
        }
    }

    fn add_member(&mut self, name: &str, member: Member) {
        match (self.member_mut(name), member) {
            (None, member) => self.0.push((name.into(), member)),
            (Some(Member::Value(known)), Member::Value(indexes)) => known.extend(indexes),
            _ => {}
        }
    }

    fn mark_headers(&mut self, path: &str) {
        let (name, rest) = path.split_once('.').unwrap_or((path, ""));
        let Some(Member::Object(object)) = self.member_mut(name) else { return };
        match rest {
            "" => {
                let object = std::mem::take(object);
                self.member_mut(name).into_iter().for_each(|member| *member = Member::Headers(object.clone()));
            }
            rest => object.mark_headers(rest),
        }
    }

    fn member(&self, name: &str) -> Option<&Member> {
        self.0.iter().find(|(known, _)| **known == *name).map(|(_, member)| member)
    }

    fn member_mut(&mut self, name: &str) -> Option<&mut Member> {
        self.0.iter_mut().find(|(known, _)| **known == *name).map(|(_, member)| member)
    }
}

/// Values of a line by the index of their meaning.
struct ReadValues<'a> {
    values: Vec<Option<Value<'a>>>,
    headers: Option<HeadersSeen>,
    is_other_event: bool,
}

/// Reads an object, and the members that have a name.
struct ObjectSeed<'a, 'b> {
    names: &'b NamedObject,
    is_headers: bool,
    values: &'b mut ReadValues<'a>,
}

impl<'de> DeserializeSeed<'de> for ObjectSeed<'de, '_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ObjectSeed<'de, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object of an access log")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if self.is_headers {
            self.values.headers = Some(HeadersSeen::INSPECTED);
        }
        while let Some(Name(name)) = map.next_key()? {
            if self.is_headers
                && let Some(header) = HeadersSeen::from_name(&name.to_ascii_lowercase())
            {
                self.values.headers = self.values.headers.map(|headers| headers.with(header, true));
            }
            match self.names.member(&name) {
                None => drop(map.next_value::<IgnoredAny>()?),
                Some(Member::Value(indexes)) => {
                    let JsonValue(read) = map.next_value()?;
                    for index in indexes {
                        let slot = &mut self.values.values[*index];
                        // A second value of a name, which readers of JSON take at will, may be one of the client.
                        if slot.is_some() {
                            return Err(de::Error::custom("a name occurs twice"));
                        }
                        slot.clone_from(&read);
                    }
                }
                Some(Member::Event(prefix)) => {
                    let JsonValue(kind) = map.next_value()?;
                    let kind = kind.as_ref().and_then(Value::text);
                    self.values.is_other_event = kind.is_some_and(|kind| !kind.starts_with(prefix.as_bytes()));
                }
                Some(Member::Object(names)) => {
                    map.next_value_seed(ObjectSeed { names, is_headers: false, values: &mut *self.values })?;
                }
                Some(Member::Headers(names)) => {
                    map.next_value_seed(ObjectSeed { names, is_headers: true, values: &mut *self.values })?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Name of a member, borrowed if it has no escapes.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// A value of any type; `None` if it is null. Of a list the texts are joined, of an object it is known that it exists.
struct JsonValue<'a>(Option<Value<'a>>);

impl<'de> de::Deserialize<'de> for JsonValue<'de> {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = JsonValue<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value of an access log")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<JsonValue<'de>, E> {
        Ok(JsonValue(Some(Value::Text(Cow::Borrowed(text.as_bytes())))))
    }

    fn visit_str<E>(self, text: &str) -> Result<JsonValue<'de>, E> {
        Ok(JsonValue(Some(Value::Text(Cow::Owned(text.as_bytes().to_vec())))))
    }

    fn visit_u64<E>(self, number: u64) -> Result<JsonValue<'de>, E> {
        Ok(JsonValue(Some(Value::Integer(number))))
    }

    fn visit_i64<E>(self, number: i64) -> Result<JsonValue<'de>, E> {
        Ok(JsonValue(Some(Value::Number(number as f64))))
    }

    fn visit_f64<E>(self, number: f64) -> Result<JsonValue<'de>, E> {
        Ok(JsonValue(Some(Value::Number(number))))
    }

    fn visit_bool<E>(self, value: bool) -> Result<JsonValue<'de>, E> {
        let text: &'static [u8] = if value { b"true" } else { b"false" };
        Ok(JsonValue(Some(Value::Text(Cow::Borrowed(text)))))
    }

    fn visit_unit<E>(self) -> Result<JsonValue<'de>, E> {
        Ok(JsonValue(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<JsonValue<'de>, A::Error> {
        let mut joined: Option<Cow<'de, [u8]>> = None;
        while let Some(JsonValue(value)) = seq.next_element()? {
            let Some(Value::Text(text)) = value else { continue };
            joined = Some(match joined {
                None => text,
                Some(before) => Cow::Owned([&*before, b", ", &*text].concat()),
            });
        }
        Ok(JsonValue(joined.map(Value::Text)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonValue<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(JsonValue(Some(Value::Integer(1))))
    }
}

/// Returns the values of an object, and of the objects in it, each with its path.
pub(in crate::log) fn values(line: &[u8]) -> Vec<(String, Value<'static>)> {
    let Ok(object) = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(line) else {
        return Vec::new();
    };
    let mut values = Vec::new();
    add_values(object, "", &mut values);
    values
}

fn add_values(
    object: serde_json::Map<String, serde_json::Value>,
    prefix: &str,
    values: &mut Vec<(String, Value<'static>)>,
) {
    for (name, value) in object {
        let path = format!("{prefix}{name}");
        match value {
            serde_json::Value::Object(inner) if prefix.matches('.').count() < MAX_DEPTH => {
                add_values(inner, &format!("{path}."), values);
            }
            serde_json::Value::Number(number) => {
                let float = || Value::Number(number.as_f64().unwrap_or_default());
                values.push((path, number.as_u64().map_or_else(float, Value::Integer)));
            }
            serde_json::Value::String(text) => values.push((path, Value::Text(text.into_bytes().into()))),
            _ => values.push((path, Value::Text(Cow::Borrowed(b"")))),
        }
    }
}

/// Depth of the objects in which names are looked for.
const MAX_DEPTH: usize = 2;
