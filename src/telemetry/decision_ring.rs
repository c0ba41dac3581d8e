//! Ring of the last decisions of one worker, by id, for `tidegate explain` and the admin API.

use std::collections::HashMap;

/// A ring of access log lines; the oldest line is overwritten.
#[derive(Debug)]
pub(super) struct DecisionRing {
    entries: Box<[RingEntry]>,
    next: usize,
    /// The lines, back to back, wrapping at the end. The processor prefetches sequential writes.
    text: Box<[u8]>,
    /// Total number of bytes written, plus bytes skipped because a line did not fit before the end.
    written: u64,
}

/// Position of a line in the ring.
#[derive(Clone, Copy, Debug, Default)]
struct RingEntry {
    id: u64,
    /// Position of the first byte, as counted by [`DecisionRing::written`].
    start: u64,
    /// Length in bytes; 0 for an unused entry.
    length: usize,
}

impl DecisionRing {
    /// Creates a ring of up to `capacity` decisions; fewer if their lines are longer than [`TYPICAL_LINE_BYTES`].
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let bytes = (capacity * TYPICAL_LINE_BYTES).max(MAX_LINE_BYTES);
        Self { entries: vec![RingEntry::default(); capacity].into(), next: 0, text: vec![0; bytes].into(), written: 0 }
    }

    /// Stores the line of decision `id`, unless it is longer than [`MAX_LINE_BYTES`].
    pub(super) fn push(&mut self, id: u64, line: &[u8]) {
        if line.len() > MAX_LINE_BYTES {
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

    /// Returns the last line of decision `id`, or `None` if it was overwritten.
    pub(super) fn find(&self, id: u64) -> Option<&[u8]> {
        let lines = self.stored().filter(|entry| entry.id == id);
        lines.max_by_key(|entry| entry.start).map(|entry| self.line(entry))
    }

    /// Returns the last line of each decision that was not overwritten, in no order.
    pub(super) fn lines(&self) -> impl Iterator<Item = &[u8]> {
        let mut last: HashMap<u64, &RingEntry> = HashMap::new();
        for entry in self.stored() {
            let known = last.entry(entry.id).or_insert(entry);
            if known.start < entry.start {
                *known = entry;
            }
        }
        last.into_values().map(|entry| self.line(entry))
    }

    fn stored(&self) -> impl Iterator<Item = &RingEntry> {
        let oldest = self.written.saturating_sub(self.text.len() as u64);
        self.entries.iter().filter(move |entry| entry.length > 0 && entry.start >= oldest)
    }

    fn line(&self, entry: &RingEntry) -> &[u8] {
        &self.text[self.position(entry.start)..][..entry.length]
    }

    fn position(&self, written: u64) -> usize {
        (written % self.text.len() as u64) as usize
    }
}

/// Typical maximum length of a line. A ring of 1,024 decisions takes 1 MiB, whatever clients send.
const TYPICAL_LINE_BYTES: usize = 1024;

/// Longer lines are not stored, because each would replace several others.
const MAX_LINE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn oldest_decision_is_evicted_first() {
        let mut ring = DecisionRing::new(2);
        assert_eq!(ring.find(0), None, "an unused id");
        ring.push(1, b"one");
        ring.push(2, b"two");
        ring.push(3, b"three");
        assert_eq!([1, 2, 3].map(|id| ring.find(id)), [None, Some(&b"two"[..]), Some(&b"three"[..])]);
    }

    proptest! {
        #[test]
        fn found_lines_equal_the_stored_lines(lengths in proptest::collection::vec(1..=MAX_LINE_BYTES, 1..40)) {
            let mut ring = DecisionRing::new(8);
            let line = |index: usize| vec![index as u8; lengths[index]];
            for last in 0..lengths.len() {
                ring.push(last as u64, &line(last));
                for index in 0..=last {
                    let (found, line) = (ring.find(index as u64), line(index));
                    prop_assert!(found.is_none_or(|found| *found == *line));
                    prop_assert_eq!(found.is_some(), ring.lines().any(|stored| *stored == *line));
                    let bytes_since: usize = lengths[index..=last].iter().sum();
                    prop_assert!(
                        found.is_some() || last - index >= 8 || bytes_since + MAX_LINE_BYTES > 8 * TYPICAL_LINE_BYTES
                    );
                }
            }
        }
    }

    #[test]
    fn later_line_of_a_decision_replaces_the_earlier_one() {
        let mut ring = DecisionRing::new(3);
        [(0, "a"), (1, "pending"), (2, "b"), (1, "settled")]
            .iter()
            .for_each(|(id, line)| ring.push(*id, line.as_bytes()));
        assert_eq!(ring.find(1), Some(&b"settled"[..]));
        let mut lines: Vec<_> = ring.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, [&b"b"[..], b"settled"]);
    }

    #[test]
    fn oversized_line_evicts_nothing() {
        let mut ring = DecisionRing::new(1);
        ring.push(1, b"one");
        ring.push(2, &[b'x'; MAX_LINE_BYTES + 1]);
        assert_eq!((ring.find(1), ring.find(2)), (Some(&b"one"[..]), None));
    }
}
