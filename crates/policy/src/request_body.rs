//! What the JSON body of a request says, as far as routes ask for it.

use super::name_pattern::NamePattern;
use std::fmt::Write;
use std::sync::Arc;

/// Condition of a route on one value in the JSON body of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonCondition {
    /// Path of the value, such as `params.name`.
    pub path: String,
    /// Patterns of the value, of which one must match.
    pub values: Vec<NamePattern>,
    /// Condition as text, such as `params.name=search|fetch`, which names it in the log.
    pub text: Arc<str>,
}

/// Conditions that the JSON body of a request meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonMatch {
    /// Texts of the conditions that the body meets.
    Met(Vec<Arc<str>>),
    /// The body may meet any condition: it is not one JSON object that all parsers read in the same way.
    Unreadable,
}

impl JsonCondition {
    /// Returns the condition that the value at `path` matches one of `values`.
    pub fn new(path: String, values: Vec<NamePattern>) -> Self {
        let mut text = path.clone();
        for (index, value) in values.iter().enumerate() {
            let _ = write!(text, "{}{value}", if index == 0 { '=' } else { '|' });
        }
        Self { path, values, text: text.into() }
    }

    /// Returns true if a value meets the condition.
    pub fn matches(&self, value: &str) -> bool {
        self.values.iter().any(|pattern| pattern.matches(value))
    }
}

impl JsonMatch {
    /// Word of the log for [`Self::Unreadable`]. The text of a condition has an equals sign.
    const UNREADABLE: &str = "unreadable";

    /// Returns the words of the log.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        let (met, word) = match self {
            Self::Met(met) => (met.as_slice(), None),
            Self::Unreadable => (&[][..], Some(Self::UNREADABLE)),
        };
        met.iter().map(AsRef::as_ref).chain(word)
    }

    /// Returns what the words of the log say.
    pub fn from_words<'a>(words: impl Iterator<Item = &'a str>) -> Self {
        let met: Vec<Arc<str>> = words.map(Arc::from).collect();
        if met.iter().any(|word| &**word == Self::UNREADABLE) { Self::Unreadable } else { Self::Met(met) }
    }

    /// Returns true if the body certainly meets a condition.
    pub fn meets(&self, condition: &JsonCondition) -> bool {
        matches!(self, Self::Met(met) if met.contains(&condition.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(path: &str, values: &[&str]) -> JsonCondition {
        JsonCondition::new(path.to_owned(), values.iter().map(|value| value.parse().expect("a pattern")).collect())
    }

    #[test]
    fn one_of_the_values_is_enough() {
        let condition = condition("params.name", &["search", "fetch_*"]);
        assert_eq!(&*condition.text, "params.name=search|fetch_*");
        assert!(["search", "Search", "fetch_page"].iter().all(|value| condition.matches(value)));
        assert!(["", "research", "fetch"].iter().all(|value| !condition.matches(value)));
    }

    #[test]
    fn words_of_the_log_say_what_was_met() {
        let (method, name) = (condition("method", &["a"]), condition("name", &["unreadable"]));
        for matched in [
            JsonMatch::Met(vec![]),
            JsonMatch::Met(vec![method.text.clone(), name.text.clone()]),
            JsonMatch::Unreadable,
        ] {
            assert_eq!(JsonMatch::from_words(matched.words()), matched);
        }
        assert!(JsonMatch::Met(vec![method.text.clone()]).meets(&method));
        assert!(!JsonMatch::Met(vec![method.text.clone()]).meets(&name) && !JsonMatch::Unreadable.meets(&method));
    }
}
