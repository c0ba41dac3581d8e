//! The last decisions of one worker, by id, so that "why was I refused?" has an answer for a while.

/// A ring of access-log lines. The oldest is overwritten.
#[derive(Debug)]
pub(super) struct DecisionRing {
    entries: Box<[RingEntry]>,
    next: usize,
    /// The lines, one behind the other and from the start again: a store that moves on steadily is one that the
    /// processor sees coming.
    text: Box<[u8]>,
    /// Bytes that were ever written, or left out where a line did not fit before the end.
    written: u64,
}

/// Where a line was put.
#[derive(Clone, Copy, Debug, Default)]
struct RingEntry {
    id: u64,
    /// As counted by [`DecisionRing::written`].
    start: u64,
    /// None is the length of no line.
    length: usize,
}

impl DecisionRing {
    /// Remembers up to `capacity` decisions; fewer where their lines are longer than is usual.
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let bytes = (capacity * TYPICAL_LINE_BYTES).max(LINE_BYTES_MAX);
        Self { entries: vec![RingEntry::default(); capacity].into(), next: 0, text: vec![0; bytes].into(), written: 0 }
    }

    /// Remembers the line of decision `id`, unless it is too long to be kept.
    pub(super) fn push(&mut self, id: u64, line: &[u8]) {
        if line.len() > LINE_BYTES_MAX {
            return;
        }
        let left = self.text.len() - self.position(self.written);
        if left < line.len() {
            self.written += left as u64;
        }
        let start = self.position(self.written);
        self.text[start..start + line.len()].copy_from_slice(line);
        self.entries[self.next] = RingEntry { id, start: self.written, length: line.len() };
        self.written += line.len() as u64;
        self.next = if self.next + 1 == self.entries.len() { 0 } else { self.next + 1 };
    }

    /// The line of decision `id`, if it is still there.
    pub(super) fn find(&self, id: u64) -> Option<&[u8]> {
        let kept = |entry: &&RingEntry| {
            entry.id == id && entry.length > 0 && self.written - entry.start <= self.text.len() as u64
        };
        self.entries.iter().find(kept).map(|entry| &self.text[self.position(entry.start)..][..entry.length])
    }

    fn position(&self, written: u64) -> usize {
        (written % self.text.len() as u64) as usize
    }
}

/// What a line usually takes at most: a ring of 1024 takes 1 MiB, whatever clients send.
const TYPICAL_LINE_BYTES: usize = 1024;

/// Longer lines are not kept: one of them would cost several others their place.
const LINE_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_oldest_decision_is_forgotten_first() {
        let mut recent = DecisionRing::new(2);
        assert_eq!(recent.find(0), None, "an id that nobody had");
        recent.push(1, b"one");
        recent.push(2, b"two");
        recent.push(3, b"three");
        assert_eq!([1, 2, 3].map(|id| recent.find(id)), [None, Some(&b"two"[..]), Some(&b"three"[..])]);
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_was_remembered(lengths in proptest::collection::vec(1..=LINE_BYTES_MAX, 1..40)) {
            let mut recent = DecisionRing::new(8);
            let line = |place: usize| vec![place as u8; lengths[place]];
            for last in 0..lengths.len() {
                recent.push(last as u64, &line(last));
                for place in 0..=last {
                    let (found, line) = (recent.find(place as u64), line(place));
                    prop_assert!(found.is_none_or(|found| *found == *line));
                    let behind: usize = lengths[place..=last].iter().sum();
                    prop_assert!(found.is_some() || last - place >= 8 || behind + LINE_BYTES_MAX > 8 * TYPICAL_LINE_BYTES);
                }
            }
        }
    }

    #[test]
    fn a_line_that_is_too_long_takes_nobodys_place() {
        let mut recent = DecisionRing::new(1);
        recent.push(1, b"one");
        recent.push(2, &[b'x'; LINE_BYTES_MAX + 1]);
        assert_eq!((recent.find(1), recent.find(2)), (Some(&b"one"[..]), None));
    }
}
