//! The laws of the fuzz targets, over their corpora and a fixed number of made-up inputs: the same in every run.

#[path = "../../fuzz/laws.rs"]
mod laws;

use std::path::Path;

/// Inputs made of each corpus.
const MADE_UP: usize = 2000;
/// What is made up is no longer: it should find corners, not limits.
const LONGEST: usize = 4096;

#[test]
fn robots_txt_holds_its_laws() {
    each("robots", laws::robots);
}

#[test]
fn forwarded_headers_hold_their_laws() {
    each("forwarded", laws::forwarded);
}

#[test]
fn lists_of_networks_hold_their_laws() {
    each("ranges", laws::ranges);
}

#[test]
fn signed_fields_hold_their_laws() {
    each("signatures", laws::signatures);
}

#[test]
fn paths_hold_their_laws() {
    each("paths", laws::paths);
}

/// Asks the law of every file of the corpus, and of what is made up from them; tells the input that breaks it.
fn each(target: &str, law: fn(&[u8])) {
    let corpus = corpus(target);
    assert!(corpus.len() >= 20, "{target} has {} files", corpus.len());
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let made_up: Vec<Vec<u8>> = (0..MADE_UP).map(|_| make_up(&corpus, &mut chance)).collect();
    for input in corpus.iter().chain(&made_up) {
        let held = std::panic::catch_unwind(|| law(input));
        assert!(held.is_ok(), "{target} breaks its law on \"{}\"", input.escape_ascii());
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let entries = std::fs::read_dir(folder).expect("a folder of the checkout");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).expect("a readable file")).collect()
}

/// One file of the corpus, changed in one to four places.
fn make_up(corpus: &[Vec<u8>], chance: &mut Chance) -> Vec<u8> {
    let mut input = corpus[chance.below(corpus.len())].clone();
    for _ in 0..=chance.below(4) {
        let (start, end) = chance.span(input.len());
        match chance.below(6) {
            0 if !input.is_empty() => input[start.min(end - 1)] ^= 1 << chance.below(8),
            1 => input.insert(start, chance.below(256) as u8),
            2 => drop(input.drain(start..end)),
            3 => input.truncate(end),
            4 => {
                let repeated = input[start..end].repeat(1 + chance.below(8));
                input.splice(end..end, repeated);
            }
            _ => {
                let other = &corpus[chance.below(corpus.len())];
                let (from, to) = chance.span(other.len());
                input.splice(start..end, other[from..to].iter().copied());
            }
        }
        input.truncate(LONGEST);
    }
    input
}

/// Numbers that look like chance and are the same in every run (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    /// A stretch of `length`; of at least one where there is one.
    fn span(&mut self, length: usize) -> (usize, usize) {
        let start = self.below(length + 1).min(length.saturating_sub(1));
        (start, length.min(start + 1 + self.below(length.max(1))))
    }
}
