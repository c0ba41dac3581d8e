use super::*;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::Sender;

const CLOSE_TIMEOUT: Duration = Duration::from_secs(120);

#[test]
fn blocked_writer_drops_lines_without_blocking_workers() {
    let (release_tx, release_rx) = mpsc::sync_channel::<()>(0);
    let (bytes_tx, bytes_rx) = mpsc::channel();
    let mut sink = Some(BlockingSink { permits: release_rx, written: bytes_tx });
    let log = AccessLog::start_with("of the test", move || Ok(Box::new(sink.take().expect("the sink is opened once"))))
        .expect("the log starts");
    let mut buffer = log.buffer();

    let buffers = 3 * QUEUE_LENGTH as u64;
    (0..buffers).for_each(|_| {
        append(&mut buffer, b"a line\n");
        buffer.flush();
    });
    let dropped = log.dropped();
    assert!(dropped >= buffers - QUEUE_LENGTH as u64 - 1, "{dropped} dropped");

    drop(release_tx);
    assert!(log.close(CLOSE_TIMEOUT), "queued lines are written");
    drop(log);
    assert_eq!(bytes_rx.iter().filter(|&byte| byte == b'\n').count() as u64, buffers - dropped);
}

#[test]
fn clean_shutdown_writes_everything_to_a_restricted_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("new/access.log");
    let log = AccessLog::start(LogTarget::File(path.clone(), None, AccessLogFormat::Json)).expect("the log starts");
    let mut buffers = [log.buffer(), log.buffer()];
    for _ in 0..5000 {
        buffers.iter_mut().for_each(|buffer| append(buffer, b"one line of some length\n"));
    }
    buffers.iter_mut().for_each(LogBuffer::flush);
    assert!(log.close(CLOSE_TIMEOUT));
    let text = std::fs::read_to_string(&path).expect("the log");
    assert_eq!((text.lines().count(), log.dropped()), (10_000, 0));
    assert!(text.lines().all(|line| line == "one line of some length"), "no line is torn");
    assert_eq!(std::fs::metadata(&path).expect("the log").permissions().mode() & 0o777 & !0o640, 0);
}

#[test]
fn rotated_file_is_replaced_by_a_new_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, moved) = (directory.path().join("access.log"), directory.path().join("access.log.1"));
    let log = AccessLog::start(LogTarget::File(path.clone(), None, AccessLogFormat::Json)).expect("the log starts");
    let mut buffer = log.buffer();
    append(&mut buffer, b"before\n");
    std::fs::rename(&path, &moved).expect("renamed");
    log.reopen();
    append(&mut buffer, b"after\n");
    buffer.flush();
    assert!(log.close(CLOSE_TIMEOUT));
    assert_eq!(
        std::fs::read_to_string(&path).expect("the new log"),
        "before\nafter\n",
        "no lines were handed over before"
    );
    assert_eq!(std::fs::read_to_string(&moved).expect("the old log"), "");
}

#[test]
fn lines_stay_whole_after_a_full_disk() {
    let (bytes_tx, bytes_rx) = mpsc::channel();
    let mut sink = Some(FullDiskSink { failures_left: 2, free_bytes: 3, written: bytes_tx });
    let log = AccessLog::start_with("of the test", move || Ok(Box::new(sink.take().ok_or(io::ErrorKind::NotFound)?)))
        .expect("the log starts");
    let mut buffer = log.buffer();
    append(&mut buffer, b"first\n");
    append(&mut buffer, b"second\n");
    buffer.flush();
    let mut text = Vec::new();
    while text.len() < 13 {
        log.reopen();
        text.extend(bytes_rx.recv_timeout(Duration::from_millis(1)));
    }
    assert!(log.close(CLOSE_TIMEOUT));
    assert_eq!(text, b"first\nsecond\n");
    assert_eq!(log.dropped(), 0);
}

#[test]
fn full_disk_does_not_block_shutdown() {
    let (bytes_tx, _bytes_rx) = mpsc::channel();
    let mut sink = Some(FullDiskSink { failures_left: u32::MAX, free_bytes: 0, written: bytes_tx });
    let log = AccessLog::start_with("of the test", move || Ok(Box::new(sink.take().expect("the sink is opened once"))))
        .expect("the log starts");
    let mut buffer = log.buffer();
    append(&mut buffer, b"first\n");
    append(&mut buffer, b"second\n");
    buffer.flush();
    assert!(log.close(CLOSE_TIMEOUT));
    assert_eq!(log.dropped(), 2, "dropped lines are counted");
}

#[test]
fn unwritable_file_is_an_error_at_startup() {
    assert!(AccessLog::start(LogTarget::File("/dev/null/access.log".into(), None, AccessLogFormat::Json)).is_err());
}

fn append(buffer: &mut LogBuffer, line: &[u8]) {
    buffer.bytes().extend_from_slice(line);
    buffer.end_line();
}

/// Sink that blocks each write until the test releases it or drops the sender.
struct BlockingSink {
    permits: Receiver<()>,
    written: Sender<u8>,
}

impl Write for BlockingSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.permits.recv();
        bytes.iter().for_each(|&byte| self.written.send(byte).expect("the receiver is alive"));
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sink that writes a few bytes, reports a full disk for some attempts, and then accepts everything.
struct FullDiskSink {
    failures_left: u32,
    free_bytes: usize,
    written: Sender<u8>,
}

impl Write for FullDiskSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.free_bytes == 0 && self.failures_left > 0 {
            self.failures_left -= 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        let taken = if self.failures_left > 0 { bytes.len().min(self.free_bytes) } else { bytes.len() };
        self.free_bytes = self.free_bytes.saturating_sub(taken);
        bytes[..taken].iter().for_each(|&byte| self.written.send(byte).expect("the receiver is alive"));
        Ok(taken)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
