//! Invariants of the readers of stored leases. Each takes arbitrary bytes and panics if it is violated.

use tidegate_engine::ledger::FileStore;

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
