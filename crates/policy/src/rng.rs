//! Seeded random numbers: the same seed always gives the same sequence.

use super::hash::mix;

/// A SplitMix64 generator for simulations and tests; not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Returns the generator of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the generator of the stream `name`. Streams are independent: a change of one does not affect the others.
    pub fn from_seed(seed: u64, name: &str) -> Self {
        Self::new(name.bytes().fold(seed ^ INCREMENT, |hash, byte| mix(hash ^ u64::from(byte))))
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(INCREMENT);
        mix(self.0)
    }

    /// Returns a number in [0, `bound`), or 0 if `bound` is 0.
    pub fn gen_below(&mut self, bound: u64) -> u64 {
        // The high half of the product is uniform enough: the error is below 2^-40 for all bounds used here.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number in [0, 1).
    pub fn gen_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns true with the given probability.
    pub fn gen_bool(&mut self, probability: f64) -> bool {
        self.gen_f64() < probability
    }

    /// Returns a random element of `items`, which must not be empty.
    pub fn choose<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.gen_below(items.len() as u64) as usize]
    }

    /// Returns an exponentially distributed value.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.gen_f64()).ln()
    }
}

/// Increment of SplitMix64: the golden ratio, times 2^64.
const INCREMENT: u64 = 0x9E37_79B9_7F4A_7C15;

/// Returns the number in [0, 1] that belongs to a decision id, for jitter. A replay derives the same number from the id
/// in the log.
pub fn ratio_from_id(id: u64) -> f64 {
    f64::from((id >> 32) as u32) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn same_seed_and_name_give_the_same_sequence() {
        let draw = |seed, name| {
            let mut rng = Rng::from_seed(seed, name);
            [rng.next_u64(), rng.gen_below(1000), rng.next_u64()]
        };
        assert_eq!(draw(1, "bingbot"), draw(1, "bingbot"));
        assert_ne!(draw(1, "bingbot"), draw(2, "bingbot"));
        assert_ne!(draw(1, "bingbot"), draw(1, "people"));
    }

    #[test]
    fn random_numbers_fill_their_bounds_evenly() {
        let mut rng = Rng::from_seed(7, "bounds");
        let mut counts = [0u32; 10];
        for _ in 0..10_000 {
            counts[rng.gen_below(10) as usize] += 1;
            assert!((0.0..1.0).contains(&rng.gen_f64()));
            assert!(rng.exponential(2.0) >= 0.0);
        }
        assert!(counts.iter().all(|&count| (850..1150).contains(&count)), "{counts:?}");
    }

    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut rng = Rng::new(1_234_567);
        assert_eq!([rng.next_u64(), rng.next_u64()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn every_bit_of_the_seed_and_every_letter_of_the_name_select_another_stream() {
        let first = |seed: u64, name: char| Rng::from_seed(seed, &name.to_string()).next_u64();
        let of_seeds: BTreeSet<u64> = (0..64).map(|bit| first(1 << bit, 'a')).collect();
        let of_names: BTreeSet<u64> = ('a'..='z').map(|name| first(1, name)).collect();
        assert_eq!((of_seeds.len(), of_names.len()), (64, 26));
    }

    #[test]
    fn draws_have_the_given_probability_and_mean() {
        let mut rng = Rng::from_seed(7, "means");
        let draws: u32 = (0..10_000).map(|_| u32::from(rng.gen_bool(0.2))).sum();
        assert!((1900..2100).contains(&draws), "{draws}");
        let total: f64 = (0..10_000).map(|_| rng.exponential(2.0)).sum();
        assert!((19_000.0..21_000.0).contains(&total), "{total}");
        assert!(!rng.gen_bool(0.0) && rng.gen_bool(1.0));
    }

    #[test]
    fn ratio_of_an_id_is_its_upper_half() {
        for (id, ratio) in [(0, 0.0), (u64::from(u32::MAX), 0.0), (u64::MAX, 1.0), (u64::MAX << 32, 1.0)] {
            assert_eq!(ratio_from_id(id), ratio, "{id:x}");
        }
        assert!((ratio_from_id(1 << 63) - 0.5).abs() < 1e-9);
    }
}
