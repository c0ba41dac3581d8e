//! The account of one quota: what is settled, what is promised, and where each class stands on its ladder.

use super::Slot;
use crate::policy::quota::Quota;
use crate::policy::tier::Shedding;
use crate::policy::window::{Span, Window};
use crate::policy::{Timestamp, Units};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// Where units come from. Asked under a lock on every decision: it answers from memory and never waits.
pub trait Ledger: Send + Sync {
    /// What an earlier life of this gate has already spent of the quota's `span`.
    fn spent_before(&self, quota: &str, span: Span) -> Units;

    /// How much of `span` may be spent in all, at most `limit`.
    fn granted(&self, quota: &str, span: Span, limit: Units) -> Units;
}

/// One quota's account.
pub(super) struct Account {
    name: String,
    number: usize,
    ledger: Arc<dyn Ledger>,
    book: Mutex<Book>,
}

/// What the account's lock guards.
pub(super) struct Book {
    window: Window,
    limit: Units,
    enforce: bool,
    latest: Timestamp,
    pub(super) span: Span,
    pub(super) settled: Units,
    pub(super) reserved: Units,
    /// Decisions made on this account, in order.
    pub(super) turn: u64,
    /// What the origin said was spent beyond what could be booked.
    pub(super) overrun: Units,
    by_class: Vec<ClassBook>,
}

/// One class in one account.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClassBook {
    pub(super) shedding: Shedding,
    /// Units charged since the process began.
    pub(super) charged: Units,
}

impl Account {
    pub(super) fn open(number: usize, quota: &Quota, ledger: Arc<dyn Ledger>, now: Timestamp) -> Self {
        let span = quota.window.span(now);
        let book = Book {
            window: quota.window.clone(),
            limit: quota.limit,
            enforce: quota.enforce,
            latest: now,
            span,
            settled: ledger.spent_before(&quota.name, span),
            reserved: Units::ZERO,
            turn: 0,
            overrun: Units::ZERO,
            by_class: Vec::new(),
        };
        Self { name: quota.name.clone(), number, ledger, book: Mutex::new(book) }
    }

    /// Goes on under changed rules. What is spent stays spent, whatever becomes of the window; what is promised counts
    /// as spent where the window now begins at another moment.
    pub(super) fn follow(&self, quota: &Quota, now: Timestamp) {
        let mut book = self.at(now);
        book.window = quota.window.clone();
        book.limit = quota.limit;
        book.enforce = quota.enforce;
        let span = quota.window.span(book.latest);
        if span.start != book.span.start {
            book.settled = book.taken();
            book.reserved = Units::ZERO;
        }
        book.span = span;
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Its place in the order in which accounts are locked.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// The account's book as of `now`: a window that has ended is closed and the next one opened.
    pub(super) fn at(&self, now: Timestamp) -> MutexGuard<'_, Book> {
        let mut book = self.book.lock();
        book.latest = book.latest.max(now);
        if book.latest >= book.span.end {
            book.span = book.window.span(book.latest);
            book.settled = self.ledger.spent_before(&self.name, book.span);
            book.reserved = Units::ZERO;
            for class in &mut book.by_class {
                class.shedding.tier = 0;
            }
        }
        book
    }

    /// What may be taken in all in the book's present window.
    pub(super) fn granted(&self, book: &Book) -> Units {
        self.ledger.granted(&self.name, book.span, book.limit).min(book.limit)
    }

    /// Replaces a reservation of `expected`, made in the window that began at `opened`, by `actual`.
    ///
    /// A window that has ended since is closed: the charge was its own and weighs on no other. What the origin says
    /// it spent beyond the limit cannot be undone; it is kept apart as overrun, so that the books stay within it.
    pub(super) fn settle(&self, opened: Timestamp, class: Slot, expected: Units, actual: Units) -> Units {
        let mut book = self.book.lock();
        book.class(class).charged = book.class(class).charged.plus(actual);
        if book.span.start != opened {
            return book.taken();
        }
        book.reserved = book.reserved.minus(expected);
        let room = if book.enforce { book.limit.minus(book.taken()) } else { Units::MAX };
        book.settled = book.settled.plus(actual.min(room));
        book.overrun = book.overrun.plus(actual.minus(room));
        book.taken()
    }

    /// Takes back a reservation of which nothing was spent.
    pub(super) fn release(&self, opened: Timestamp, expected: Units) {
        let mut book = self.book.lock();
        if book.span.start == opened {
            book.reserved = book.reserved.minus(expected);
        }
    }

    /// Corrects what is settled by hand; returns what it was and what it is now.
    pub(super) fn set_used(&self, used: Units, now: Timestamp) -> (Units, Units) {
        let mut book = self.at(now);
        let before = book.settled;
        book.settled = if book.enforce { used.min(book.limit.minus(book.reserved)) } else { used };
        (before, book.settled)
    }
}

impl Book {
    /// Settled and reserved together.
    pub(super) fn taken(&self) -> Units {
        self.settled.plus(self.reserved)
    }

    /// Units that were bought for the window.
    pub(super) fn limit(&self) -> Units {
        self.limit
    }

    /// What is kept for one class.
    pub(super) fn class(&mut self, class: Slot) -> &mut ClassBook {
        let place = usize::from(class);
        if place >= self.by_class.len() {
            self.by_class.resize(place + 1, ClassBook::default());
        }
        &mut self.by_class[place]
    }

    /// What is kept for each class, by slot.
    pub(super) fn classes(&self) -> &[ClassBook] {
        &self.by_class
    }
}
