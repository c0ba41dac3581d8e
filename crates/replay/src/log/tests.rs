use super::native::{LogSequenceDomain, Sequence};
use super::*;
use proptest::prelude::*;
use std::io::{Cursor, Read};
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tidegate_access_log::sample::{sample_record, sample_with};
use tidegate_access_log::{LineWriter, RejectedRecord};
use tidegate_policy::Timestamp;

fn parse_line(text: &str) -> LogLine<'_> {
    LogLine::read(text.as_bytes()).expect("a line").expect("not empty")
}

fn merged_log(texts: &[&str], window: u64) -> MergedLog {
    let source = |(index, text): (usize, &&str)| {
        LogSource::new(format!("log {index}"), Box::new(Cursor::new(text.as_bytes().to_vec())))
    };
    MergedLog::new(texts.iter().enumerate().map(source).collect(), Duration::from_secs(window))
}

fn line_at(second: u32) -> String {
    format!("192.0.2.1 - - [07/Jun/2024:00:00:{second:02} +0000] \"GET /{second} HTTP/1.1\" 200 5 \"-\" \"x\"\n")
}

fn drain(mut merged: MergedLog) -> (Vec<(u64, usize, u64)>, MergedLog) {
    let mut lines = Vec::new();
    while let Some(OrderedLine { at, position, .. }) = merged.next_line().expect("a log in memory") {
        lines.push((at.seconds() % 60, position.file, position.number));
    }
    (lines, merged)
}

#[test]
fn client_and_host_are_found_before_the_time() {
    let suffix = "- - [07/Jun/2024:00:00:00 +0000] \"GET /a?b=1 HTTP/1.1\" 200 5 \"-\" \"x\"";
    for (prefix, client, host) in [
        ("192.0.2.1", "192.0.2.1", None),
        ("2001:db8::1", "2001:db8::1", None),
        ("::ffff:192.0.2.9", "192.0.2.9", None),
        ("Shop.example:8080 192.0.2.1", "192.0.2.1", Some("shop.example")),
        ("192.0.2.1, 10.0.0.1", "192.0.2.1", None),
    ] {
        let text = format!("{prefix} {suffix}");
        let parsed = parse_line(&text);
        assert_eq!(parsed.client, LoggedClient::Address(client.parse().expect("an address")), "{prefix}");
        assert_eq!(parsed.host.as_deref(), host, "{prefix}");
        assert_eq!(parsed.missing.contains(LogField::Host), host.is_none(), "{prefix}");
        assert_eq!(parsed.request.map(|request| request.path.into_owned()), Some("/a".to_owned()), "{prefix}");
    }
    let text = format!("Dialup-7.example.net {suffix}");
    let named = parse_line(&text);
    assert_eq!(named.client, LoggedClient::HostName("Dialup-7.example.net"));
    assert_eq!(named.client.address(), LoggedClient::HostName("dialup-7.EXAMPLE.net").address());
    assert!(named.missing.contains(LogField::Address));
}

#[test]
fn each_invalid_line_has_its_error_kind() {
    let long = "x".repeat(70_000);
    let prefix = "192.0.2.1 - - [07/Jun/2024:00:00:00 +0000] \"GET / HTTP/1.1\" ";
    for (text, expected) in [
        ("hello", LineError::UnknownFormat),
        ("{\"a\":1}", LineError::UnknownJson),
        ("{\"time\":\"2024-06-07T00:00:00Z\",\"settled", LineError::Truncated),
        ("192.0.2.1 - - [31/Jun/2024:00:00:00 +0000] \"GET / HTTP/1.1\" 200 5", LineError::InvalidTime),
        (&format!("{prefix}abc 5"), LineError::InvalidStatus),
        (&format!("{prefix}200 5 \"-\" \"unterm"), LineError::Truncated),
        (&format!("{prefix}200 5 \"{long}\" \"x\""), LineError::TooLong),
    ] {
        let (lines, merged) = drain(merged_log(&[&format!("{text}\n")], 60));
        let all: Vec<(u64, Option<LineError>)> = match LogLine::read(text.as_bytes()) {
            Err(error) => vec![(1, Some(error))],
            Ok(_) => merged.counts.invalid_lines.iter().map(|(kind, (count, _))| (*count, Some(*kind))).collect(),
        };
        assert_eq!(all, [(1, Some(expected))], "{}", &text[..text.len().min(80)]);
        assert!(lines.len() <= 1);
    }
}

#[test]
fn byte_order_mark_is_skipped() {
    let text = "\u{feff}one\r\ntwo\n";
    let mut source = LogSource::new("log".into(), Box::new(Cursor::new(text.as_bytes().to_vec())));
    for line in ["one", "two"] {
        let numbered = source.next_line().expect("a log in memory").expect("a line");
        assert_eq!(numbered.text.ok(), Some(line.as_bytes()));
    }
}

#[test]
fn year_beyond_the_timestamp_range_is_an_error() {
    for year in ["2600", "9999"] {
        let text = format!("192.0.2.1 - - [01/Jun/{year}:00:00:00 +0000] \"GET / HTTP/1.1\" 200 1");
        assert!(LogLine::read(text.as_bytes()).is_err(), "{year}");
    }
}

#[test]
fn standard_input_is_read_once() {
    let error = LogFiles::open(&["-".into(), "-".into()]).err().expect("standard input is rejected the second time");
    assert!(error.to_string().contains("named twice"), "{error}");
}

#[test]
fn lines_are_ordered_by_time_within_the_window() {
    let log = [line_at(1), line_at(5), line_at(3), line_at(4), line_at(20), line_at(2), line_at(21)].concat();
    let (order, merged) = drain(merged_log(&[&log], 10));
    assert_eq!(
        order.iter().map(|(at, _, number)| (*at, *number)).collect::<Vec<_>>(),
        [(1, 1), (3, 3), (4, 4), (5, 2), (5, 6), (20, 5), (21, 7)]
    );
    assert_eq!((merged.counts.lines, merged.counts.out_of_order, merged.counts.late), (7, 2, 1));
}

#[test]
fn several_files_become_one_log() {
    let logs = [
        [line_at(1), line_at(4), line_at(7)].concat(),
        [line_at(2), line_at(5), line_at(8)].concat(),
        [line_at(3), line_at(6)].concat(),
    ];
    let (order, _) = drain(merged_log(&[&logs[0], &logs[1], &logs[2]], 2));
    assert_eq!(order.iter().map(|(at, ..)| *at).collect::<Vec<_>>(), (1..9).collect::<Vec<_>>());
}

#[test]
fn native_log_lines_round_trip() {
    let record = sample_with(|it| {
        it.request.path = "/item/\"42\"";
        it.request.query = Some("q=a\\b");
        it.request.user_agent = "caf\u{e9} \u{1}".as_bytes();
        it.request.host = b"Shop.Example:8080";
        it.decision.bucket_sequence = Some(7);
    });
    let mut text = Vec::new();
    LineWriter::starting_at(Timestamp::from_seconds(1)).write_json(&mut text, &record);
    let text = text.trim_ascii_end();
    let parsed = LogLine::read(text).expect("a line").expect("not empty");
    assert_eq!(
        (parsed.at, parsed.client),
        (record.admitted_at.truncate_to_micros(), LoggedClient::Address(record.client.address))
    );
    assert_eq!(format::read_time(text), Some(parsed.at));
    let request = parsed.request.expect("a request");
    assert_eq!((&*request.path, request.query.as_deref()), (record.request.path, record.request.query));
    assert_eq!(parsed.host.as_deref(), Some("shop.example"));
    assert_eq!(parsed.user_agent.as_deref(), Some(record.request.user_agent));
    assert_eq!(parsed.missing, MissingFields::NONE);
    let native = parsed.native.expect("native fields");
    assert_eq!(
        (native.id, native.headers_seen, native.kind),
        (record.id, record.client.headers_seen, record.client.kind.name())
    );
    let (account, charge) = (&native.quotas[0], &record.units.charges[0]);
    assert_eq!((&*account.quota, account.cost, account.charged), (charge.quota_name, charge.cost, charge.charged));
    assert_eq!((account.sequence, account.settle_sequence), (charge.sequence, Some(charge.settle_sequence)));
    let sequences: Vec<(LogSequenceDomain, Sequence)> = native::decision_sequences(text).collect();
    let quota = LogSequenceDomain::Quota(format!("\"{}\"", charge.quota_name).into_bytes().into());
    let run = 1_000_000;
    assert_eq!(native.started_us, run);
    assert_eq!(sequences, [(quota, (run, charge.sequence)), (LogSequenceDomain::Buckets(7), (run, 7))]);
}

#[test]
fn rejected_requests_in_the_log_of_the_gateway_have_no_request_to_decide_on() {
    let sample = sample_record();
    let (at, id, address, request) = (sample.admitted_at, sample.id, sample.client.address, sample.request);
    let rejected = RejectedRecord { at, id, address, request, status: 400, bytes: 7, problem: "two \"hosts\"" };
    let (mut text, mut lines) = (Vec::new(), LineWriter::starting_at(Timestamp::from_seconds(1)));
    lines.write_rejected_json(&mut text, &rejected);
    lines.write_json(&mut text, &sample);
    let parts: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end).collect();
    let parsed = LogLine::read(parts[0]).expect("a line").expect("not empty");
    assert_eq!((parsed.at, parsed.client), (at.truncate_to_micros(), LoggedClient::Address(address)));
    assert_eq!((parsed.status, parsed.bytes, parsed.request, parsed.native.is_none()), (400, 7, None, true));
    assert_eq!(format::read_time(parts[0]), Some(parsed.at));
    let format = file_format::FileFormat::detect(parts.into_iter(), &LogOptions::default());
    assert_eq!(format.describe(), "Tidegate");
}

#[test]
fn same_time_requests_follow_their_sequence_numbers() {
    let line = |microsecond: u32, sequences: &str| {
        format!(
            "{{\"time\":\"2026-11-21T09:14:03.{microsecond:06}Z\",\"settled\":\"\",\"seq\":{{{sequences}}},\"bucket_seq\":null}}\n"
        )
    };
    let log = [
        line(5, r#""api":3"#),
        line(1, r#""api":2,"search":9"#),
        line(2, r#""search":8"#),
        line(3, r#""api":1"#),
        line(4, ""),
    ];
    let (order, _) = drain(merged_log(&[&log.concat()], 60));
    let line_numbers: Vec<u64> = order.iter().map(|(.., number)| *number).collect();
    assert_eq!(line_numbers, [4, 3, 2, 5, 1], "search 8 and api 1 precede api 2 with search 9");
    // An hour between equal numbers means a restart of the gateway.
    let restarted = [line(1, r#""api":2"#), line(2, r#""api":1"#).replace("T09", "T10")].concat();
    let (order, _) = drain(merged_log(&[&restarted], 60));
    assert_eq!(order.iter().map(|(.., number)| *number).collect::<Vec<_>>(), [1, 2]);
    // The process start time separates restarts within a moment.
    let of_run =
        |run: &str, line: String| line.replace("\"settled\":\"\"", &format!("\"settled\":\"\",\"started_us\":{run}"));
    let restarted = [of_run("7", line(1, r#""api":2"#)), of_run("8", line(2, r#""api":1"#))].concat();
    let (order, _) = drain(merged_log(&[&restarted], 60));
    assert_eq!(order.iter().map(|(.., number)| *number).collect::<Vec<_>>(), [1, 2]);
}

proptest! {
    #[test]
    fn every_line_of_any_file_is_counted_once(
        bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'"'), Just(b'['), Just(b']'), Just(b' '), any::<u8>()], 0..400),
        window in 0..100_u64,
    ) {
        let source = LogSource::new("noise".into(), Box::new(Cursor::new(bytes.clone())));
        let mut merged = MergedLog::new(vec![source], Duration::from_secs(window));
        let mut count = 0;
        while let Some(next) = merged.next_line().expect("a log in memory") {
            let _ = LogLine::read(next.text);
            count += 1;
        }
        let counts = &merged.counts;
        let lines = bytes.split(|byte| *byte == b'\n').count() - usize::from(bytes.last().is_none_or(|last| *last == b'\n'));
        prop_assert_eq!(counts.lines, lines as u64);
        prop_assert_eq!(count + counts.empty + counts.invalid_lines.values().map(|(count, _)| count).sum::<u64>(), counts.lines);
    }

    #[test]
    fn any_log_is_read_in_time_order(seconds in proptest::collection::vec(0..60_u32, 0..60), window in 0..30_u64) {
        let log: String = seconds.iter().map(|second| line_at(*second)).collect();
        let (order, merged) = drain(merged_log(&[&log], window));
        prop_assert!(order.is_sorted_by_key(|(at, ..)| *at));
        prop_assert_eq!(order.len(), seconds.len());
        let furthest = seconds.iter().enumerate().map(|(index, second)| seconds[..index].iter().max().map_or(0, |latest| latest.saturating_sub(*second)));
        if furthest.max().is_none_or(|furthest| u64::from(furthest) < window) {
            prop_assert_eq!(merged.counts.late, 0);
        }
    }
}

/// Lines of two files, more than are read ahead at once, some of them invalid or empty.
fn long_logs() -> [String; 2] {
    let line = |number: u32| match number % 97 {
        0 => "\n".to_owned(),
        1 => format!("192.0.2.1 - - [07/Jun/2024:00:{:02}:00 +0000] \"GET / HTTP/1.1\" abc 5\n", number / 100),
        _ => format!(
            "192.0.2.1 - - [07/Jun/2024:00:{:02}:{:02} +0000] \"GET /{number} HTTP/1.1\" 200 5\n",
            number / 100,
            number % 50
        ),
    };
    [(0..5000).map(line).collect(), (1000..5999).map(line).collect()]
}

#[test]
fn lines_read_ahead_are_those_read_one_by_one() {
    let logs = long_logs();
    let merged = || merged_log(&[&logs[0], &logs[1]], 60);
    let mut one_by_one = merged();
    let (mut expected, mut invalid) = (Vec::new(), Vec::new());
    while let Some(OrderedLine { at, position, text }) = one_by_one.next_line().expect("a log in memory") {
        match LogLine::read(text) {
            Ok(line) => {
                expected.extend(line.map(|line| (at, position, line.request.map(|request| request.path.into_owned()))));
            }
            Err(_) => invalid.push(position),
        }
    }
    let (mut lines, mut watched) = (Vec::new(), Vec::new());
    let flow = merged().try_for_each(&mut |count| watched.push(count), |next, line| {
        lines.push((next.at, next.position, line.request.as_ref().map(|request| request.path.to_string())));
        ControlFlow::<()>::Continue(())
    });
    let ControlFlow::Continue(ahead) = flow.expect("a log in memory") else { panic!("no line breaks") };
    assert_eq!(lines, expected);
    let [(LineError::InvalidStatus, (count, first))] = ahead.counts.invalid_lines.into_iter().collect::<Vec<_>>()[..]
    else {
        panic!("one kind of invalid lines");
    };
    assert_eq!((count, Some(first)), (invalid.len() as u64, invalid.iter().min().copied()));
    assert!(watched.len() > 4 && watched.is_sorted(), "{watched:?}");
}

/// Time after which a wait is a failure.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn first_invalid_line_is_that_of_the_file() {
    let invalid = |second| line_at(second).replace(" 200 ", " abc ");
    let log = merged_log(&[&[invalid(30), invalid(10)].concat()], 60)
        .for_each(|_, _| {})
        .unwrap_or_else(|error| panic!("{error}"));
    let first = LinePosition { file: 0, number: 1 };
    assert_eq!(log.counts.invalid_lines.get(&LineError::InvalidStatus), Some(&(2, first)));
}

#[test]
fn thread_that_reads_ahead_ends_after_a_break() {
    /// Lines without an end. The channel is closed when this reader is dropped.
    struct Endless(Cursor<Vec<u8>>, #[expect(dead_code, reason = "closed when dropped")] Sender<()>);
    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.0.position() == self.0.get_ref().len() as u64 {
                self.0.set_position(0);
            }
            self.0.read(buffer)
        }
    }
    let (open, closed) = channel();
    let endless = LogSource::new("-".into(), Box::new(Endless(Cursor::new(line_at(1).into_bytes()), open)));
    let flow = MergedLog::new(vec![endless], Duration::ZERO).try_for_each(&mut |_| {}, |_, _| ControlFlow::Break(()));
    assert!(flow.expect("lines in memory").is_break());
    assert_eq!(closed.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
}

#[test]
fn lines_of_a_pipe_that_stays_open_are_used_at_once() {
    /// A pipe: its text, and then a wait until it is closed.
    struct Pipe(Cursor<Vec<u8>>, Receiver<()>);
    impl Read for Pipe {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let read = self.0.read(buffer)?;
            if read == 0 {
                // Fails after a time, so that a wait for more fails the test.
                let is_closed = matches!(self.1.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
                return if is_closed { Ok(0) } else { Err(std::io::Error::other("the pipe stays open")) };
            }
            Ok(read)
        }
    }
    let (_open, is_closed) = channel();
    let log = long_logs().concat();
    let last = log.lines().count() as u64;
    let pipe = LogSource::new("-".into(), Box::new(Pipe(Cursor::new(log.into_bytes()), is_closed)));
    let flow =
        MergedLog::new(vec![pipe], Duration::ZERO).try_for_each(&mut |_| {}, |next, _| match next.position.number {
            number if number == last => ControlFlow::Break(number),
            _ => ControlFlow::Continue(()),
        });
    assert_eq!(flow.expect("a log in memory").break_value(), Some(last));
}

#[test]
fn error_of_a_file_ends_reading_ahead() {
    struct Failing;
    impl std::io::Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("disk failed"))
        }
    }
    let stream = Cursor::new(line_at(1).into_bytes()).chain(Failing);
    let merged = MergedLog::new(vec![LogSource::new("a.log".into(), Box::new(stream))], Duration::from_secs(60));
    let error = merged.for_each(|_, _| {}).map(drop).expect_err("the file cannot be read");
    assert!(error.to_string().contains("disk failed"), "{error}");
}
