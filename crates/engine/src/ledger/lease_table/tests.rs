use super::*;

const NOON: Timestamp = Timestamp::from_seconds(43_200);
const MINUTE: Duration = Duration::from_secs(60);
const LIMIT: Units = Units::from_whole(100);

const fn units(whole: u64) -> Units {
    Units::from_whole(whole)
}

fn span(start: Timestamp, length: Duration) -> Span {
    Span { start, end: start + length }
}

/// Returns the window of a minute after noon.
fn minute(number: u32) -> WindowKey {
    let start = NOON + MINUTE * number;
    WindowKey { id: start.0, span: Some(span(start, MINUTE)), lookback: 0 }
}

/// Returns the day, which overlaps all minutes.
fn day() -> WindowKey {
    WindowKey { id: 0, span: Some(span(Timestamp(0), Duration::from_secs(86_400))), lookback: 0 }
}

/// Returns a first-use window that this instance has not opened.
fn unopened(ordinal: u64) -> WindowKey {
    WindowKey { id: ordinal, span: None, lookback: 0 }
}

fn opened(ordinal: u64, start: Timestamp) -> WindowKey {
    WindowKey { span: Some(span(start, MINUTE)), ..unopened(ordinal) }
}

fn request(window: WindowKey, taken: u64, held: u64, wanted: u64) -> LeaseRequest {
    let [taken, held, wanted] = [taken, held, wanted].map(units);
    let expected_demand = Units::ZERO;
    LeaseRequest { quota: "api".into(), limit: LIMIT, window, taken, held, wanted, urgent: wanted, expected_demand }
}

/// Leases `wanted` units of a window of which the holder has none. Returns the units held.
fn lease(table: &mut LeaseTable, holder: Holder, window: WindowKey, wanted: u64) -> u64 {
    table.lease(holder, &request(window, 0, 0, wanted), NOON).held.floor()
}

/// Returns held and taken units of others, as a holder without units sees them.
fn others(table: &LeaseTable, window: WindowKey) -> (u64, u64) {
    let status = table.status(99, &request(window, 0, 0, 0), NOON);
    (status.held_by_others.floor(), status.taken_by_others.floor())
}

#[test]
fn holders_of_one_window_share_its_limit() {
    let mut table = LeaseTable::default();
    assert_eq!((lease(&mut table, 1, minute(0), 70), lease(&mut table, 2, minute(0), 70)), (70, 30));
    let kept = table.lease(1, &request(minute(0), 40, 70, 90), NOON);
    assert_eq!((kept.held, kept.held_by_others, kept.span), (units(70), units(30), minute(0).span));
    let returned = table.lease(1, &request(minute(0), 40, 70, 50), NOON);
    assert_eq!((returned.held, table.holding(1, "api", minute(0).id).taken), (units(50), units(40)));
    let lease = table.lease(2, &request(minute(0), 30, 30, 90), NOON);
    assert_eq!((lease.held, lease.held_by_others, lease.taken_by_others), (units(50), units(50), units(40)));
    assert_eq!(table.lease(3, &request(minute(0), 7, 0, 9), NOON).held, units(7), "what was taken is always held");
    let status = table.status(2, &request(minute(0), 30, 50, 90), NOON);
    assert_eq!((status.held, status.held_by_others, status.span), (units(50), units(57), minute(0).span));
}

#[test]
fn usage_of_overlapping_windows_counts_in_each() {
    let mut table = LeaseTable::default();
    lease(&mut table, 1, minute(0), 30);
    lease(&mut table, 1, minute(1), 20);
    assert_eq!(
        (others(&table, day()), others(&table, minute(1)), others(&table, minute(2))),
        ((50, 0), (20, 0), (0, 0))
    );
    assert_eq!(lease(&mut table, 1, day(), 100), 50, "the holder's own, too");
    assert_eq!(others(&table, unopened(0)), (80, 0), "a window that opens now overlaps the day and the first minute");
}

#[test]
fn unopened_window_overlaps_a_window_that_begins_now() {
    let mut table = LeaseTable::default();
    lease(&mut table, 1, minute(0), 30);
    assert_eq!(lease(&mut table, 2, unopened(0), 100), 70);
}

#[test]
fn first_use_window_ends_for_instances_that_did_not_open_it() {
    let mut table = LeaseTable::default();
    table.lease(1, &request(opened(0, NOON), 1, 10, 10), NOON);
    let lease_at = |table: &mut LeaseTable, window, seconds| {
        let lease = table.lease(2, &request(window, 0, 0, 5), NOON + Duration::from_secs(seconds));
        (lease.held, lease.span)
    };
    assert_eq!(lease_at(&mut table, unopened(0), 59), (units(5), Some(span(NOON, MINUTE))));
    assert_eq!(lease_at(&mut table, unopened(0), 60), (Units::ZERO, Some(span(NOON, MINUTE))));
    assert_eq!(lease_at(&mut table, opened(0, NOON), 61).0, units(5), "a late cost of an instance that knows it");
}

#[test]
fn window_starts_at_the_earliest_reported_start() {
    let mut table = LeaseTable::default();
    let mut span_after = |seconds: Option<(u64, u64)>| {
        let reported =
            seconds.map(|(start, length)| span(NOON + Duration::from_secs(start), Duration::from_secs(length)));
        table.lease(1, &request(WindowKey { span: reported, ..unopened(0) }, 0, 0, 1), NOON);
        let known = table.span("api", 0);
        known.map(|known| (known.start.saturating_duration_since(NOON).as_secs(), known.length().as_secs()))
    };
    let reports = [None, Some((50, 60)), None, Some((70, 60)), Some((20, 60)), Some((30, 90))];
    let spans = [None, Some((50, 60)), Some((50, 60)), Some((50, 60)), Some((20, 60)), Some((20, 90))];
    assert_eq!(reports.map(&mut span_after), spans);
}

#[test]
fn correction_replaces_all_but_the_usage_of_live_holders() {
    let mut table = LeaseTable::default();
    table.close(3, &request(minute(0), 30, 30, 30));
    table.close(3, &request(minute(5), 11, 11, 11));
    table.lease(2, &request(minute(0), 5, 8, 8), NOON);
    let own = request(minute(0), 10, 20, 20);
    table.lease(1, &own, NOON);
    for (used, manual) in [(50, 35), (15, 0), (20, 5), (3, 0)] {
        table.correct(1, &own, units(used), NOON);
        assert_eq!(others(&table, minute(0)), (20 + 8 + manual, 10 + 5 + manual), "corrected to {used}");
        assert_eq!(table.holding(1, "api", minute(0).id), Holding { held: units(20), taken: units(10) });
    }
    assert_eq!(others(&table, minute(5)), (11, 11), "another window");
    table.correct(1, &request(day(), 0, 0, 0), units(40), NOON);
    assert_eq!(others(&table, day()), (20 + 8 + 25, 40), "overlapping windows are corrected with it");
}

#[test]
fn correction_reopens_windows_that_may_have_been_evicted() {
    let mut table = with_evicted_windows(minute);
    table.correct(1, &request(minute(0), 0, 0, 0), units(40), NOON);
    assert_eq!(lease(&mut table, 1, minute(0), 100), 60);
}

/// Returns a table of which the first of twelve windows were evicted.
fn with_evicted_windows(window: impl Fn(u32) -> WindowKey) -> LeaseTable {
    let mut table = LeaseTable::default();
    for number in 0..12 {
        let request = request(window(number), 2, 2, 2);
        table.lease(1, &request, NOON);
        table.evict_old(&[request]);
    }
    table
}

fn stored(table: &LeaseTable, window: impl Fn(u32) -> WindowKey) -> Vec<u32> {
    (0..12).filter(|&number| table.contains("api", window(number).id)).collect()
}

#[test]
fn oldest_windows_are_evicted_and_count_as_used_up() {
    let mut table = with_evicted_windows(minute);
    assert_eq!(stored(&table, minute), (4..12).collect::<Vec<_>>());
    let status = table.status(1, &request(minute(3), 7, 0, 50), NOON);
    let lease = table.lease(1, &request(minute(3), 7, 0, 50), NOON);
    assert_eq!(lease, status);
    assert_eq!((lease.held, lease.held_by_others, lease.taken_by_others), (units(7), units(93), units(93)));
    assert_eq!(lease.span, None, "its span is not disputed");
    table.close(1, &request(minute(3), 7, 7, 7));
    assert!(!table.contains("api", minute(3).id) && !table.contains("other", minute(4).id));
    assert_eq!(table.lease(1, &request(minute(4), 2, 2, 9), NOON).held, units(9), "stored");
    assert_eq!(table.lease(1, &request(minute(12), 0, 0, 9), NOON).held, units(9), "new");
}

#[test]
fn windows_that_a_request_needs_are_kept() {
    let sliding = |number| WindowKey { lookback: 9, ..minute(number) };
    assert_eq!(stored(&with_evicted_windows(sliding), sliding), (1..12).collect::<Vec<_>>(), "one more than overlap");
    let mut table = LeaseTable::default();
    for number in 0..12 {
        let requests = [request(minute(0), 2, 2, 2), request(minute(number), 2, 2, 2)];
        for request in &requests {
            table.lease(1, request, NOON);
        }
        table.evict_old(&requests);
    }
    assert_eq!(stored(&table, minute), [0, 5, 6, 7, 8, 9, 10, 11]);
}

#[test]
fn stored_part_of_a_sliding_window_is_used_up_if_one_that_it_overlaps_may_be_evicted() {
    let mut table = with_evicted_windows(minute);
    let held = |table: &mut LeaseTable, number, lookback| {
        table.lease(1, &request(WindowKey { lookback, ..minute(number) }, 2, 2, 9), NOON).held
    };
    assert_eq!([4, 5].map(|number| held(&mut table, number, 1)), [units(2), units(9)]);
    assert_eq!(held(&mut table, 4, 0), units(9));
}

#[test]
fn first_use_window_before_the_stored_ones_has_ended() {
    let at = |ordinal: u32| opened(u64::from(ordinal), NOON + MINUTE * ordinal);
    let mut table = with_evicted_windows(at);
    assert_eq!(stored(&table, at), (4..12).collect::<Vec<_>>());
    let ended = table.lease(2, &request(unopened(3), 7, 0, 50), NOON + MINUTE * 20);
    assert_eq!((ended.held, ended.held_by_others), (units(7), units(93)));
    assert!(ended.span.is_some_and(|span| span.end <= NOON), "{ended:?}");
    assert!(!table.contains("api", 3));
    assert_eq!(table.lease(2, &request(unopened(12), 0, 0, 50), NOON + MINUTE * 20).held, units(50), "the next one");
    assert_eq!(table.lease(1, &request(at(2), 0, 0, 9), NOON).held, units(9), "an instance that knows when it opened");
    assert_eq!(lease(&mut table, 1, minute(0), 50), 50, "windows of another kind are not used up");
}

#[test]
fn first_use_windows_are_independent_of_evicted_windows_of_another_kind() {
    let mut table = with_evicted_windows(minute);
    assert_eq!(table.lease(1, &request(unopened(0), 0, 0, 9), NOON + MINUTE * 60).held, units(9));
    assert_eq!(table.lease(1, &request(opened(1, NOON), 0, 0, 9), NOON).held, units(9));
}

#[test]
fn crashed_holder_leaves_what_it_may_have_taken() {
    let mut table = LeaseTable::default();
    for (window, held) in [(minute(0), 10), (unopened(4), 20), (opened(3, NOON), 30), (unopened(5), 40)] {
        table.lease(1, &request(window, 0, held, held), NOON + MINUTE * 30);
    }
    table.lease(2, &request(minute(0), 1, 3, 3), NOON);
    let later = NOON + MINUTE * 30;
    table.retire_holder(1, later, |quota, id, holding| {
        assert_eq!(quota, "api");
        if id == 5 { Units::ZERO } else { Units::from_milli(holding.held.milli() / 2) }
    });
    assert_eq!(others(&table, minute(0)), (5 + 3 + 15, 5 + 1 + 15), "the first-use window overlaps the minute");
    let previous = |id| table.holding(PREVIOUS_INCARNATIONS, "api", id);
    assert_eq!((previous(0).held, previous(0).taken), (units(15), units(15)), "renumbered from 0");
    assert_eq!(previous(1).taken, units(10));
    assert_eq!(table.span("api", 1).map(|span| span.start), Some(later), "opened now if it may have been used");
    assert!(!table.contains("api", 2), "a window without usage is not open");
}
