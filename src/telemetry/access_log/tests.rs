use super::*;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::Sender;

const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn a_writer_that_stands_still_costs_lines_but_never_holds_a_worker_up() {
    let (gate, gates) = mpsc::sync_channel::<()>(0);
    let (wrote, written) = mpsc::channel();
    let mut sink = Some(Gated { gates, wrote });
    let log = AccessLog::start_with(move || Ok(Box::new(sink.take().expect("opened once")))).expect("it starts");
    let mut buffer = log.buffer();

    let buffers = 3 * QUEUE_LENGTH as u64;
    (0..buffers).for_each(|_| {
        append(&mut buffer, b"a line\n");
        buffer.flush();
    });
    let dropped = log.dropped();
    assert!(dropped >= buffers - QUEUE_LENGTH as u64 - 1, "{dropped} dropped");

    drop(gate);
    assert!(log.close(PATIENCE), "what was queued is written");
    drop(log);
    assert_eq!(written.iter().filter(|&byte| byte == b'\n').count() as u64, buffers - dropped);
}

#[test]
fn a_clean_end_writes_everything_to_a_file_that_only_the_group_may_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("new/access.log");
    let log = AccessLog::start(LogTarget::File(path.clone())).expect("it starts");
    let mut buffers = [log.buffer(), log.buffer()];
    for _ in 0..5000 {
        buffers.iter_mut().for_each(|buffer| append(buffer, b"one line of some length\n"));
    }
    buffers.iter_mut().for_each(LogBuffer::flush);
    assert!(log.close(PATIENCE));
    let text = std::fs::read_to_string(&path).expect("the log");
    assert_eq!((text.lines().count(), log.dropped()), (10_000, 0));
    assert!(text.lines().all(|line| line == "one line of some length"), "no line is torn");
    assert_eq!(std::fs::metadata(&path).expect("the log").permissions().mode() & 0o777 & !0o640, 0);
}

#[test]
fn after_the_file_was_moved_away_lines_go_to_a_new_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, moved) = (directory.path().join("access.log"), directory.path().join("access.log.1"));
    let log = AccessLog::start(LogTarget::File(path.clone())).expect("it starts");
    let mut buffer = log.buffer();
    append(&mut buffer, b"before\n");
    std::fs::rename(&path, &moved).expect("renamed");
    log.reopen();
    append(&mut buffer, b"after\n");
    buffer.flush();
    assert!(log.close(PATIENCE));
    assert_eq!(
        std::fs::read_to_string(&path).expect("the new log"),
        "before\nafter\n",
        "nothing was handed over before"
    );
    assert_eq!(std::fs::read_to_string(&moved).expect("the old log"), "");
}

#[test]
fn a_disk_that_was_full_for_a_while_gets_every_line_whole() {
    let (wrote, written) = mpsc::channel();
    let mut sink = Some(FullAtFirst { errors: 2, room: 3, wrote });
    let log =
        AccessLog::start_with(move || Ok(Box::new(sink.take().ok_or(io::ErrorKind::NotFound)?))).expect("it starts");
    let mut buffer = log.buffer();
    append(&mut buffer, b"first\n");
    append(&mut buffer, b"second\n");
    buffer.flush();
    let mut text = Vec::new();
    while text.len() < 13 {
        log.reopen();
        text.extend(written.recv_timeout(Duration::from_millis(1)));
    }
    assert!(log.close(PATIENCE));
    assert_eq!(text, b"first\nsecond\n");
    assert_eq!(log.dropped(), 0);
}

#[test]
fn a_disk_that_stays_full_does_not_keep_the_process_from_ending() {
    let (wrote, _written) = mpsc::channel();
    let mut sink = Some(FullAtFirst { errors: u32::MAX, room: 0, wrote });
    let log = AccessLog::start_with(move || Ok(Box::new(sink.take().expect("opened once")))).expect("it starts");
    let mut buffer = log.buffer();
    append(&mut buffer, b"first\n");
    append(&mut buffer, b"second\n");
    buffer.flush();
    assert!(log.close(PATIENCE));
    assert_eq!(log.dropped(), 2, "and they are counted");
}

#[test]
fn a_file_that_cannot_be_opened_is_told_at_the_start() {
    assert!(AccessLog::start(LogTarget::File("/dev/null/access.log".into())).is_err());
}

fn append(buffer: &mut LogBuffer, line: &[u8]) {
    buffer.bytes().extend_from_slice(line);
    buffer.appended();
}

/// Writes once somebody lets it, or has gone.
struct Gated {
    gates: Receiver<()>,
    wrote: Sender<u8>,
}

impl Write for Gated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.gates.recv();
        bytes.iter().for_each(|&byte| self.wrote.send(byte).expect("the test listens"));
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a few bytes, is full for some tries, and then has room.
struct FullAtFirst {
    errors: u32,
    room: usize,
    wrote: Sender<u8>,
}

impl Write for FullAtFirst {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room == 0 && self.errors > 0 {
            self.errors -= 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        let taken = if self.errors > 0 { bytes.len().min(self.room) } else { bytes.len() };
        self.room = self.room.saturating_sub(taken);
        bytes[..taken].iter().for_each(|&byte| self.wrote.send(byte).expect("the test listens"));
        Ok(taken)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
