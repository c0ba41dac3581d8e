//! Invariants of the fuzz targets, over their corpora and a fixed number of mutated inputs. Every run uses the same
//! inputs.

#[path = "../../crates/config/fuzz/invariants.rs"]
mod config;
#[path = "../../crates/crawlers/fuzz/invariants.rs"]
mod crawlers;
#[path = "../../crates/engine/fuzz/invariants.rs"]
mod engine;
#[path = "../../crates/http1/fuzz/invariants.rs"]
mod http1;
#[path = "../../crates/http-cache/fuzz/invariants.rs"]
mod http_cache;
#[path = "../../crates/policy/fuzz/invariants.rs"]
pub(crate) mod policy;
#[path = "../../crates/replay/fuzz/invariants.rs"]
mod replay;

use std::path::Path;

/// Number of mutated inputs of each corpus.
const MUTATED_INPUTS: usize = 2000;
/// Maximum length of a mutated input, in bytes. Mutation searches for edge cases, not for limits.
const MAX_INPUT_LENGTH: usize = 4096;

#[test]
fn request_head_invariants_hold() {
    check_corpus("http1", "request_head", http1::request_head);
}

#[test]
fn chunked_body_invariants_hold() {
    check_corpus("http1", "chunked", http1::chunked);
}

#[test]
fn framing_invariants_hold() {
    for corpus in ["framing", "request_head"] {
        check_corpus("http1", corpus, http1::framing);
    }
}

#[test]
fn response_head_invariants_hold() {
    check_corpus("http1", "response_head", http1::response_head);
}

#[test]
fn cache_invariants_hold() {
    check_corpus("http-cache", "cache", http_cache::cache);
}

#[test]
fn path_invariants_hold() {
    check_corpus("policy", "paths", policy::paths);
}

#[test]
fn charges_cover_what_models_of_origins_spend() {
    check_corpus("policy", "charges", policy::charges);
}

#[test]
fn forwarded_header_invariants_hold() {
    check_corpus("policy", "forwarded", policy::forwarded);
}

#[test]
fn cookie_invariants_hold() {
    check_corpus("policy", "cookies", policy::cookies);
}

#[test]
fn query_invariants_hold() {
    check_corpus("policy", "queries", policy::queries);
}

#[test]
fn robots_txt_invariants_hold() {
    check_corpus("crawlers", "robots", crawlers::robots);
}

#[test]
fn network_list_invariants_hold() {
    check_corpus("crawlers", "ranges", crawlers::ranges);
}

#[test]
fn signature_field_invariants_hold() {
    check_corpus("crawlers", "signatures", crawlers::signatures);
}

#[test]
fn log_line_invariants_hold() {
    check_corpus("replay", "log_lines", replay::log_lines);
}

#[test]
fn native_log_line_invariants_hold() {
    check_corpus("replay", "native_lines", replay::native_lines);
}

#[test]
fn config_file_invariants_hold() {
    check_corpus("config", "yaml", config::yaml);
}

#[test]
fn ledger_file_invariants_hold() {
    check_corpus("engine", "ledger_files", engine::ledger_files);
}

/// Checks the invariant on every file of the corpus and on mutations of these. Panics with the input that violates it.
fn check_corpus(package: &str, target: &str, invariant: fn(&[u8])) {
    let corpus = read_corpus(package, target);
    assert!(corpus.len() >= 20, "{target} has {} files", corpus.len());
    let mut rng = MutationRng(0x9e37_79b9_7f4a_7c15);
    let mutated: Vec<Vec<u8>> = (0..MUTATED_INPUTS).map(|_| mutate_input(&corpus, &mut rng)).collect();
    for input in corpus.iter().chain(&mutated) {
        let result = std::panic::catch_unwind(|| invariant(input));
        assert!(result.is_ok(), "{target} violates its invariant on \"{}\"", input.escape_ascii());
    }
}

fn read_corpus(package: &str, target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("crates/{package}/fuzz/corpus/{target}"));
    let entries = std::fs::read_dir(dir).expect("corpus directory exists");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("readable directory").path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).expect("a readable file")).collect()
}

/// Returns a file of the corpus with one to four mutations.
fn mutate_input(corpus: &[Vec<u8>], rng: &mut MutationRng) -> Vec<u8> {
    let mut input = corpus[rng.gen_below(corpus.len())].clone();
    for _ in 0..=rng.gen_below(4) {
        let (start, end) = rng.gen_range(input.len());
        match rng.gen_below(6) {
            0 if !input.is_empty() => input[start.min(end - 1)] ^= 1 << rng.gen_below(8),
            1 => input.insert(start, rng.gen_below(256) as u8),
            2 => drop(input.drain(start..end)),
            3 => input.truncate(end),
            4 => {
                let repeated = input[start..end].repeat(1 + rng.gen_below(8));
                input.splice(end..end, repeated);
            }
            _ => {
                let other = &corpus[rng.gen_below(corpus.len())];
                let (from, to) = rng.gen_range(other.len());
                input.splice(start..end, other[from..to].iter().copied());
            }
        }
        input.truncate(MAX_INPUT_LENGTH);
    }
    input
}

/// Deterministic pseudo-random number generator (xorshift).
struct MutationRng(u64);

impl MutationRng {
    fn gen_below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    /// Returns a range within `length`; not empty if `length` is not 0.
    fn gen_range(&mut self, length: usize) -> (usize, usize) {
        let start = self.gen_below(length + 1).min(length.saturating_sub(1));
        (start, length.min(start + 1 + self.gen_below(length.max(1))))
    }
}
