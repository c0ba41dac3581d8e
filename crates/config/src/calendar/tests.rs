use super::*;
use proptest::prelude::*;
use proptest::sample::select;

/// Zones with unusual transitions.
const ZONES: [&str; 14] = [
    "UTC",
    "America/Los_Angeles",
    "America/New_York",
    "Europe/Berlin",
    "America/Sao_Paulo",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Beirut",
    "Asia/Gaza",
    "America/Havana",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "America/Nuuk",
    "Pacific/Apia",
];

fn civil(unit: CalendarUnit, zone: &str, at: &str) -> CivilCalendar {
    CivilCalendar::new(unit, zone, at.parse().expect("valid time")).expect("known zone")
}

fn parse_timestamp(text: &str) -> Timestamp {
    timestamp(text.parse().expect("valid timestamp"))
}

fn length_hours(span: Span) -> f64 {
    span.end.saturating_duration_since(span.start).as_secs_f64() / 3600.0
}

/// Returns all clock changes of the zone between 1971 and 2037.
fn clock_changes(zone: &str) -> Vec<jiff::Timestamp> {
    let zone = TimeZoneDatabase::bundled().get(zone).expect("known zone");
    let (from, to) = ("1971-01-01T00:00Z".parse().expect("a time"), "2037-01-01T00:00Z".parse().expect("a time"));
    zone.following(from).map(|transition| transition.timestamp()).take_while(|&transition| transition < to).collect()
}

#[test]
fn a_pacific_day_begins_at_pacific_midnight() {
    let day = civil(CalendarUnit::Day, "America/Los_Angeles", "00:00").span(parse_timestamp("2026-11-21T09:14:03Z"));
    assert_eq!(
        day,
        Span { start: parse_timestamp("2026-11-21T08:00:00Z"), end: parse_timestamp("2026-11-22T08:00:00Z") }
    );
}

#[test]
fn dst_days_have_23_or_25_hours() {
    let day = |time| length_hours(civil(CalendarUnit::Day, "America/New_York", "00:00").span(parse_timestamp(time)));
    assert_eq!(day("2026-03-08T12:00:00Z"), 23.0);
    assert_eq!(day("2026-11-01T12:00:00Z"), 25.0);
    assert_eq!(day("2026-06-01T12:00:00Z"), 24.0);
}

#[test]
fn skipped_midnight_starts_the_day_after_the_gap() {
    let sao_paulo =
        civil(CalendarUnit::Day, "America/Sao_Paulo", "00:00").span(parse_timestamp("2018-11-04T12:00:00Z"));
    assert_eq!((sao_paulo.start, length_hours(sao_paulo)), (parse_timestamp("2018-11-04T03:00:00Z"), 23.0));
    let cairo = civil(CalendarUnit::Day, "Africa/Cairo", "00:00").span(parse_timestamp("2024-04-26T12:00:00Z"));
    assert_eq!((cairo.start, length_hours(cairo)), (parse_timestamp("2024-04-25T22:00:00Z"), 23.0));
}

#[test]
fn skipped_reset_time_moves_to_the_gap_end() {
    let night = civil(CalendarUnit::Day, "Europe/Berlin", "02:30").span(parse_timestamp("2026-03-29T12:00:00Z"));
    assert_eq!(
        (night.start, night.end),
        (parse_timestamp("2026-03-29T01:00:00Z"), parse_timestamp("2026-03-30T00:30:00Z"))
    );
}

#[test]
fn ambiguous_reset_time_uses_the_first_occurrence() {
    let night = civil(CalendarUnit::Day, "Europe/Berlin", "02:30").span(parse_timestamp("2026-10-25T12:00:00Z"));
    assert_eq!(night.start, parse_timestamp("2026-10-25T00:30:00Z"));
}

#[test]
fn skipped_date_has_no_window() {
    let days = civil(CalendarUnit::Day, "Pacific/Apia", "00:00");
    let last = days.span(parse_timestamp("2011-12-30T09:00:00Z"));
    let next = days.span(last.end);
    assert_eq!(
        (last.end, length_hours(last), length_hours(next)),
        (parse_timestamp("2011-12-30T10:00:00Z"), 24.0, 24.0)
    );
}

#[test]
fn weeks_start_monday_and_months_on_the_first() {
    let week = civil(CalendarUnit::Week, "UTC", "06:00").span(parse_timestamp("2026-11-23T05:59:59Z"));
    assert_eq!(
        (week.start, week.end),
        (parse_timestamp("2026-11-16T06:00:00Z"), parse_timestamp("2026-11-23T06:00:00Z"))
    );
    let month = civil(CalendarUnit::Month, "UTC", "00:00").span(parse_timestamp("2028-02-29T23:59:59Z"));
    assert_eq!(
        (month.start, month.end),
        (parse_timestamp("2028-02-01T00:00:00Z"), parse_timestamp("2028-03-01T00:00:00Z"))
    );
}

#[test]
fn hourly_windows_split_at_repeated_and_shifted_hours() {
    let hour = |zone, time| civil(CalendarUnit::Hour, zone, "00:15").span(parse_timestamp(time));
    let repeated = hour("Europe/Berlin", "2026-10-25T00:30:00Z");
    assert_eq!(
        (repeated.start, repeated.end),
        (parse_timestamp("2026-10-25T00:15:00Z"), parse_timestamp("2026-10-25T01:15:00Z"))
    );
    let cut = hour("Australia/Lord_Howe", "2026-10-03T15:20:00Z");
    assert_eq!(
        (cut.start, cut.end),
        (parse_timestamp("2026-10-03T14:45:00Z"), parse_timestamp("2026-10-03T15:30:00Z"))
    );
}

#[test]
fn an_unknown_zone_is_refused() {
    assert_eq!(CivilCalendar::new(CalendarUnit::Day, "Mars/Olympus", Time::midnight()).err(), Some(UnknownZone));
}

#[test]
fn debug_output_names_unit_zone_and_start() {
    assert_eq!(
        format!("{:?}", civil(CalendarUnit::Day, "america/los_angeles", "00:00")),
        "day of America/Los_Angeles, from 00:00"
    );
}

fn unit() -> impl Strategy<Value = CalendarUnit> {
    select(vec![CalendarUnit::Hour, CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month])
}

/// Times within three days of a clock change.
fn time_near_clock_change() -> impl Strategy<Value = (&'static str, Timestamp)> {
    (select(ZONES.to_vec()), any::<prop::sample::Index>(), -3 * 86_400i64..3 * 86_400, 0u64..1_000_000_000).prop_map(
        |(zone, index, seconds, nanoseconds)| {
            let transitions = clock_changes(zone);
            let transition = if transitions.is_empty() {
                jiff::Timestamp::from_second(1_000_000_000).expect("in range")
            } else {
                transitions[index.index(transitions.len())]
            };
            let second = u64::try_from(transition.as_second() + seconds).expect("after 1970");
            (zone, Timestamp(second * 1_000_000_000 + nanoseconds))
        },
    )
}

fn length_bounds(unit: CalendarUnit) -> (f64, f64) {
    match unit {
        CalendarUnit::Hour => (0.0, 1.0),
        CalendarUnit::Day => (0.0, 48.0),
        CalendarUnit::Week => (143.0, 169.0),
        CalendarUnit::Month => (28.0 * 24.0 - 25.0, 31.0 * 24.0 + 1.0),
    }
}

proptest! {
    #[test]
    fn windows_tile_time_and_contain_their_moments((zone, time) in time_near_clock_change(), unit in unit(), hour in 0i8..24, minute in 0i8..60) {
        let calendar = CivilCalendar::new(unit, zone, Time::constant(hour, minute, 0, 0)).expect("known zone");
        let span = calendar.span(time);
        prop_assert!(span.contains(time), "{calendar:?}: {span:?}");
        prop_assert_eq!(calendar.span(span.start), span);
        prop_assert_eq!(calendar.span(Timestamp(span.end.0 - 1)), span);
        prop_assert_eq!(calendar.span(span.end).start, span.end);
        prop_assert_eq!(calendar.span(Timestamp(span.start.0 - 1)).end, span.start);
        let (min, max) = length_bounds(unit);
        prop_assert!(length_hours(span) > min && length_hours(span) <= max, "{calendar:?}: {} hours", length_hours(span));
    }

    #[test]
    fn window_starts_at_reset_time_or_gap_end((zone, time) in time_near_clock_change(), hour in 0i8..24, minute in 0i8..60) {
        let reset_time = Time::constant(hour, minute, 0, 0);
        let calendar = CivilCalendar::new(CalendarUnit::Day, zone, reset_time).expect("known zone");
        let start = jiff::Timestamp::from_nanosecond(i128::from(calendar.span(time).start.0)).expect("in range");
        let local = calendar.zone.to_datetime(start);
        let is_transition = clock_changes(zone).contains(&start);
        prop_assert!(local.time() == reset_time || is_transition, "{calendar:?} began when the clocks showed {local}");
        let before = calendar.zone.to_datetime(start - SignedDuration::from_secs(1));
        prop_assert!(before < local, "the first of two: {before} then {local}");
    }
}

#[test]
fn windows_tile_every_clock_change_of_every_zone() {
    for zone in ZONES {
        for unit in [CalendarUnit::Hour, CalendarUnit::Day] {
            let calendar = civil(unit, zone, "00:00");
            for transition in clock_changes(zone) {
                let mut span = calendar.span(timestamp(transition) - Duration::from_secs(2 * 86_400));
                while span.start < timestamp(transition) + Duration::from_secs(86_400) {
                    let next = calendar.span(span.end);
                    assert_eq!(next.start, span.end, "{calendar:?} around {transition}");
                    span = next;
                }
            }
        }
    }
}
