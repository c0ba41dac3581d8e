//! Usage by guarded crawlers.

use super::*;
use crate::crawler_guard::CrawlerGuard;
use crate::tier::Share;

#[test]
fn guard_budget_is_that_of_one_window_length() {
    let guard = CrawlerGuard { admit_interval: Duration::ZERO, max_refused_for: Duration::ZERO, budget: Share::ALL };
    let sliding = Window::Sliding { length: Duration::from_secs(300), sub_windows: 5 };
    for window in [Window::Fixed { length: DAY }, sliding] {
        let length = window.nominal_length();
        let quota = Quota { window, ..fixtures::quota("api", 100) };
        let mut state = QuotaState::new(&quota, &[CLASS], Units::from_whole(1), false, NOON + DAY);
        let mut guard_state_after = |elapsed: Duration, operator: u16| {
            state.advance_to(NOON + DAY + elapsed);
            let known = state.guard_state(CLASS, guard, OperatorId(operator), false);
            state.record_guard_admit(CLASS, OperatorId(operator), Units::from_whole(3));
            (known.spent, known.window_elapsed.ratio(), known.last_admitted)
        };
        let (start, quarter) = (NOON + DAY, length / 4);
        assert_eq!(guard_state_after(Duration::ZERO, 1), (Units::ZERO, 0.0, Timestamp::default()));
        assert_eq!(
            guard_state_after(quarter, 2),
            (Units::from_whole(3), 0.25, Timestamp::default()),
            "another operator"
        );
        assert_eq!(guard_state_after(quarter * 2, 1), (Units::from_whole(6), 0.5, start));
        assert_eq!(guard_state_after(quarter * 3, 2), (Units::from_whole(9), 0.75, start + quarter));
        assert_eq!(guard_state_after(length, 1), (Units::ZERO, 0.0, start + quarter * 2));
        assert_eq!(state.class(CLASS).guard_admitted, Units::from_whole(15));
    }
}
