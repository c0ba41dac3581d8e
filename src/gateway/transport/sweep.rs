//! Work in progress that a worker's tick looks at.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use tidegate_policy::Timestamp;

/// Something that can stall.
pub(in crate::gateway) trait Sweep {
    /// Acts on a stall since the last tick. Returns false once nothing is left to sweep.
    fn sweep(self: Rc<Self>, now: Timestamp, min_rate: u64) -> bool;
}

/// All of them on one worker.
#[derive(Default)]
pub(in crate::gateway) struct SweepList(RefCell<Vec<Weak<dyn Sweep>>>);

impl SweepList {
    pub(in crate::gateway) fn add(&self, item: &Rc<impl Sweep + 'static>) {
        let item: Weak<dyn Sweep> = Rc::downgrade(item) as Weak<dyn Sweep>;
        self.0.borrow_mut().push(item);
    }

    /// Sweeps all; `min_rate` is the least rate of clients, in bytes per second.
    pub(in crate::gateway) fn sweep(&self, now: Timestamp, min_rate: u64) {
        self.0.borrow_mut().retain(|item| item.upgrade().is_some_and(|item| item.sweep(now, min_rate)));
    }
}
