//! The last decisions of one worker, by id, so that "why was I refused?" has an answer for a while.

/// A ring of access-log lines. The oldest is overwritten.
#[derive(Debug)]
pub(super) struct Recent {
    ids: Box<[u64]>,
    lines: Box<[Vec<u8>]>,
    next: usize,
}

impl Recent {
    /// Remembers up to `capacity` decisions.
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self { ids: vec![0; capacity].into(), lines: vec![Vec::new(); capacity].into(), next: 0 }
    }

    /// Remembers the line of decision `id`, unless it is too long to be kept.
    pub(super) fn remember(&mut self, id: u64, line: &[u8]) {
        if line.len() > LINE_BYTES_MAX {
            return;
        }
        let slot = &mut self.lines[self.next];
        slot.clear();
        slot.extend_from_slice(line);
        self.ids[self.next] = id;
        self.next = (self.next + 1) % self.ids.len();
    }

    /// The line of decision `id`, if it is still there.
    pub(super) fn find(&self, id: u64) -> Option<&[u8]> {
        let found = |place: &usize| self.ids[*place] == id && !self.lines[*place].is_empty();
        (0..self.ids.len()).find(found).map(|place| self.lines[place].as_slice())
    }
}

/// Longer lines are not kept, so that a ring of 1024 never takes more than 4 MiB, whatever clients send.
const LINE_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_decision_is_forgotten_first() {
        let mut recent = Recent::new(2);
        assert_eq!(recent.find(0), None, "an id that nobody had");
        recent.remember(1, b"one");
        recent.remember(2, b"two");
        recent.remember(3, b"three");
        assert_eq!([1, 2, 3].map(|id| recent.find(id)), [None, Some(&b"two"[..]), Some(&b"three"[..])]);
    }

    #[test]
    fn a_line_that_is_too_long_takes_nobodys_place() {
        let mut recent = Recent::new(1);
        recent.remember(1, b"one");
        recent.remember(2, &[b'x'; LINE_BYTES_MAX + 1]);
        assert_eq!((recent.find(1), recent.find(2)), (Some(&b"one"[..]), None));
    }
}
