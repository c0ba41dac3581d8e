//! Panics: counted and logged. Each ends one task, such as a connection or an HTTP/2 stream; the others continue.

use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::error;

/// Number of panics of the process, to which a panic hook belongs.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Counts and logs all panics from now on, with their backtraces if `RUST_BACKTRACE` is set.
pub fn count_panics() {
    let report = take_hook();
    set_hook(Box::new(move |panic: &PanicHookInfo<'_>| {
        COUNT.fetch_add(1, Ordering::Relaxed);
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        error!(%place, "Panic at {place}: a connection or task has ended, all others continue. Please report this");
        report(panic);
    }));
}

/// Returns the number of panics since [`count_panics`].
pub(super) fn panic_count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_of_tasks_are_counted_and_end_no_other() {
        count_panics();
        let before = panic_count();
        let runtime = tokio::runtime::Builder::new_current_thread().build_local(Default::default()).expect("a runtime");
        runtime.block_on(async {
            let ended = tokio::task::spawn_local(async { panic!("expected by this test") }).await;
            assert!(ended.expect_err("the task has panicked").is_panic());
            assert_eq!(tokio::task::spawn_local(async { 1 }).await.expect("no panic"), 1);
        });
        assert!(panic_count() > before);
    }
}
