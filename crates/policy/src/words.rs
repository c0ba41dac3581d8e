//! Words of the settings that user agents are searched for, all at once: a long user agent costs one pass, however many words
//! there are.

use aho_corasick::AhoCorasick;
use aho_corasick::packed::Searcher;
use std::fmt;
use std::ops::Deref;

/// Length of a user agent that is searched, in bytes. Longer ones are made up, and names stand in front.
pub const SEARCHED_LENGTH: usize = 1024;

/// Words to search for, case-insensitive.
#[derive(Clone, Default)]
pub struct Words {
    words: Vec<String>,
    /// `None` without words.
    automaton: Option<AhoCorasick>,
    /// Vectorized search for the words in lower case; `None` if there are too many of them, or the processor has no such search.
    searcher: Option<Searcher>,
}

impl Words {
    /// Creates the automaton of `words`. Returns `None` if they are too large for one.
    pub fn new(words: Vec<String>) -> Option<Self> {
        if words.is_empty() {
            return Some(Self::default());
        }
        let automaton = AhoCorasick::builder().ascii_case_insensitive(true).build(&words).ok()?;
        let searcher = Searcher::new(words.iter().map(|word| word.to_ascii_lowercase()));
        Some(Self { words, automaton: Some(automaton), searcher })
    }

    /// Returns the index of the first word that occurs in the beginning of `user_agent`.
    pub fn first_in(&self, user_agent: &[u8]) -> Option<usize> {
        let found = self.automaton.as_ref()?.find_overlapping_iter(beginning(user_agent));
        found.map(|found| found.pattern().as_usize()).min()
    }

    /// Returns true if a word occurs in the beginning of `user_agent`.
    pub fn occur_in(&self, user_agent: &[u8]) -> bool {
        let text = beginning(user_agent);
        let Some(searcher) = &self.searcher else {
            return self.automaton.as_ref().is_some_and(|automaton| automaton.is_match(text));
        };
        let mut lower_case = [0; SEARCHED_LENGTH];
        let lower_case = &mut lower_case[..text.len()];
        lower_case.copy_from_slice(text);
        lower_case.make_ascii_lowercase();
        searcher.find(lower_case).is_some()
    }
}

fn beginning(user_agent: &[u8]) -> &[u8] {
    &user_agent[..user_agent.len().min(SEARCHED_LENGTH)]
}

impl Deref for Words {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.words
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.words.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(words: &[&str]) -> Words {
        Words::new(words.iter().map(ToString::to_string).collect()).expect("few words")
    }

    #[test]
    fn first_word_of_the_list_wins_in_any_case_and_place() {
        let words = words(&["Monitor", "acmemonitor", "\u{fc}ber"]);
        for (user_agent, found) in [
            ("AcmeMonitor/1.0", Some(0)),
            ("ACMEMONITOR", Some(0)),
            ("the \u{fc}BER client", Some(2)),
            ("Mozilla/5.0", None),
            ("", None),
        ] {
            assert_eq!(words.first_in(user_agent.as_bytes()), found, "{user_agent}");
            assert_eq!(words.occur_in(user_agent.as_bytes()), found.is_some(), "{user_agent}");
        }
        assert_eq!(Words::default().first_in(b"anything"), None);
    }

    #[test]
    fn only_the_first_kilobyte_is_searched() {
        let words = words(&["monitor"]);
        let padded = |length: usize| [vec![b'x'; length], b"monitor".to_vec()].concat();
        assert_eq!(words.first_in(&padded(SEARCHED_LENGTH - 7)), Some(0));
        assert_eq!(words.first_in(&padded(SEARCHED_LENGTH - 6)), None);
    }

    proptest! {
        #[test]
        fn search_equals_a_comparison_at_each_position(list in proptest::collection::vec("[abAB]{1,3}", 0..6), text in "[abAB]{0,12}") {
            let contains = |word: &String| text.to_ascii_lowercase().contains(&word.to_ascii_lowercase());
            let expected = list.iter().position(contains);
            let words = Words::new(list).expect("few words");
            prop_assert_eq!(words.first_in(text.as_bytes()), expected);
            prop_assert_eq!(words.occur_in(text.as_bytes()), expected.is_some());
        }
    }
}
