//! Invariants of the readers of stored leases. Each takes arbitrary bytes and panics if it is violated.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tidegate_engine::ledger::FileStore;
use tidegate_engine::ledger::redis::{Reply, read_reply};
use tokio::io::{AsyncBufRead, BufReader};

/// A ledger file has the leases of its newest intact record. A damaged record is never read.
pub(crate) fn ledger_files(record: &[u8]) {
    const OLDER: &[u8] =
        br#"{"life":1,"quotas":{"places_api":{"forgotten":[0,0],"windows":{"0":{"holdings":{"1":[5,2]}}}}}}"#;
    let older = FileStore::read_leases(&ledger_file([(1, OLDER), (0, b"")])).expect("the older record is intact");
    let record = &record[..record.len().min(SLOT_BYTES - 16)];
    let mut file = ledger_file([(1, OLDER), (2, record)]);
    assert_eq!(
        FileStore::read_leases(&file).ok(),
        FileStore::read_leases(&ledger_file([(3, record), (0, b"")])).ok(),
        "the other slot changes the leases"
    );
    // A flipped bit, as by a write that was interrupted.
    let position = record.iter().fold(7usize, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    file[4096 + SLOT_BYTES + position % (16 + record.len())] ^= 1 << (position % 8);
    assert_eq!(FileStore::read_leases(&file).ok(), Some(older), "a damaged record is read");
    file.truncate(file.len() - 1 - position % file.len().min(SLOT_BYTES));
    assert!(FileStore::read_leases(&file).is_err(), "a truncated file is read");
    // The bytes as a whole file.
    let _ = FileStore::read_leases(record);
}

const SLOT_BYTES: usize = 64 * 1024;

/// Returns a ledger file with the number and the record of both slots, written independently of the gateway.
fn ledger_file(slots: [(u64, &[u8]); 2]) -> Vec<u8> {
    let mut file = b"tidegateledger\0\0".to_vec();
    file.extend([1, SLOT_BYTES as u32].map(u32::to_le_bytes).concat());
    file.extend(crc32fast::hash(&file).to_le_bytes());
    for (index, (number, record)) in slots.into_iter().enumerate() {
        file.resize(4096 + index * SLOT_BYTES, 0);
        let number = number.to_le_bytes();
        file.extend([&number[..], &(record.len() as u32).to_le_bytes()].concat());
        file.extend(
            crc32fast::hash(&[&number[..], &(record.len() as u64).to_le_bytes(), record].concat()).to_le_bytes(),
        );
        file.extend(record);
    }
    file.resize(4096 + 2 * SLOT_BYTES, 0);
    file
}

/// A reply does not depend on the segments in which it arrives, and survives a round trip.
pub(crate) fn redis_replies(bytes: &[u8]) {
    let reply = read(bytes);
    let segment = 1 + bytes.len() % 7;
    assert_eq!(read(BufReader::with_capacity(segment, bytes)), reply, "segments change the reply");
    let Some(reply) = reply else { return };
    let mut encoded = Vec::new();
    encode(&reply, &mut encoded);
    assert_eq!(read(&*encoded), Some(reply), "the round trip changes the reply");
}

fn read(reader: impl AsyncBufRead + Unpin + Send) -> Option<Reply> {
    let mut reader = reader;
    match pin!(read_reply(&mut reader)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reply) => reply.ok(),
        Poll::Pending => panic!("bytes in memory never wait"),
    }
}

fn encode(reply: &Reply, out: &mut Vec<u8>) {
    match reply {
        Reply::Text(text) => {
            out.extend(format!("${}\r\n", text.len()).into_bytes());
            out.extend(text);
            out.extend(b"\r\n");
        }
        Reply::Error(text) => out.extend(format!("-{text}\r\n").into_bytes()),
        Reply::Number(number) => out.extend(format!(":{number}\r\n").into_bytes()),
        Reply::Nil => out.extend(b"$-1\r\n"),
        Reply::List(replies) => {
            out.extend(format!("*{}\r\n", replies.len()).into_bytes());
            replies.iter().for_each(|reply| encode(reply, out));
        }
    }
}
