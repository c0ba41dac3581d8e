//! Words of people's devices, browsers and apps: one list, from which all rules read.

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use std::sync::LazyLock;

/// The list, by section.
const WORD_LIST: &str = include_str!("../../data/people-words.txt");

static WORDS: LazyLock<PeopleWords> = LazyLock::new(|| PeopleWords::parse(WORD_LIST));

/// Words of the list, by what they say.
struct PeopleWords {
    /// Words of platforms, devices, browsers and apps that count anywhere.
    all: AhoCorasick,
    /// Words that count at the start of a string.
    starts: Vec<String>,
    /// Words of platforms alone.
    platforms: AhoCorasick,
    /// Words of apps alone, that count anywhere, and at the start of a string.
    apps: AhoCorasick,
    app_starts: Vec<String>,
    /// Starts of names of platforms, devices and browsers.
    names: Vec<String>,
}

impl PeopleWords {
    fn parse(list: &str) -> Self {
        let section = |name: &str| {
            let (_, after) = list.split_once(name).expect("the built-in list has all sections");
            words(&after[..after.find("\n\n").unwrap_or(after.len())])
        };
        let (platforms, devices) = (section("\n# Platforms\n"), section("\n# Devices\n"));
        let (names, apps) = (section("\n# Names\n"), section("\n# Apps\n"));
        let at_start = |word: &String| word.strip_prefix('^').map(str::to_owned);
        let browsers = platforms.iter().chain(&devices);
        let names = browsers
            .clone()
            .chain(&names)
            // A word that ends with a space names a maker before its model, and other names may start with it.
            .filter(|word| !word.ends_with(' '))
            .map(|word| word.trim_start_matches('^').trim_end_matches(['/', ' ']).to_owned())
            .collect();
        Self {
            starts: browsers.filter_map(at_start).collect(),
            app_starts: apps.iter().filter_map(at_start).collect(),
            all: automaton(&[&platforms[..], &devices, &apps].concat()),
            platforms: automaton(&platforms),
            apps: automaton(&apps),
            names,
        }
    }
}

fn words(section: &str) -> Vec<String> {
    let lines = section.lines().filter(|line| !line.starts_with('#'));
    lines.flat_map(str::split_ascii_whitespace).map(|word| word.replace('+', " ")).collect()
}

/// Returns the automaton of the words that count anywhere.
fn automaton(words: &[String]) -> AhoCorasick {
    let mut builder = AhoCorasick::builder();
    builder.ascii_case_insensitive(true).kind(Some(AhoCorasickKind::ContiguousNFA));
    let built = builder.build(words.iter().filter(|word| !word.starts_with('^')));
    built.expect("a few hundred short words are far below the automaton's limits")
}

/// Returns whether the user agent has a word of a device, a browser or an app of people.
pub(super) fn names_people(agent: &[u8]) -> bool {
    let mut starts = WORDS.starts.iter().chain(&WORDS.app_starts);
    WORDS.all.is_match(agent) || starts.any(|word| starts_with(agent, word))
}

/// Returns whether the user agent names a platform of browsers or apps.
pub(super) fn names_platform(agent: &[u8]) -> bool {
    WORDS.platforms.is_match(agent)
}

/// Returns whether an app of people sends this: a player, a reader or a mail program, which adds its version and its site.
pub(super) fn names_app(agent: &[u8]) -> bool {
    WORDS.apps.is_match(agent) || WORDS.app_starts.iter().any(|word| starts_with(agent, word))
}

/// Returns whether a name starts as that of a platform, a device or a browser: browsers send these after `compatible;`, and some
/// as their only product.
pub(super) fn starts_as_browser(name: &[u8]) -> bool {
    WORDS.names.iter().any(|word| starts_with(name, word))
}

fn starts_with(text: &[u8], word: &str) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
}
