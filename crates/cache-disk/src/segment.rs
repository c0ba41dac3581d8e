//! Segments: pairs of files, of which the newest is written.

use crate::format::{BLOCK, IndexEntry, IndexHead, RecordHead, Span, VERSION, append_frame};
use bytes::Bytes;
use rustix::fs::OFlags;
use rustix::io::{ReadWriteFlags, preadv2};
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSliceMut, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Access of the owner alone: responses may be for some clients only.
const FILE_MODE: u32 = 0o600;

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Waits for the disk; blocks the thread.
    Blocking,
    /// Reads only what the page cache of the system has, and fails with [`io::ErrorKind::WouldBlock`] otherwise.
    PageCache,
}

/// Digits of the number in the name of a file.
const NUMBER_DIGITS: usize = 10;

/// A segment.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: u32,
    data: File,
}

/// The segment that is written.
pub(crate) struct SegmentWriter {
    pub(crate) segment: Arc<Segment>,
    index: File,
    data_length: u64,
    index_length: u64,
    /// Length of the index file without entries.
    head_length: u64,
    /// Length of the index file that is synced, with the data that its entries need.
    synced_length: u64,
    buffer: Vec<u8>,
}

pub(crate) fn data_path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number:010}.data"))
}

pub(crate) fn index_path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number:010}.index"))
}

/// Returns the numbers of the segments in `dir`, in ascending order.
pub(crate) fn numbers(dir: &Path) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let name = Path::new(&name);
        if name.extension().is_some_and(|extension| extension == "index" || extension == "data")
            && let Some(stem) = name.file_stem().and_then(|stem| stem.to_str())
            && let Ok(number) = stem.parse()
            // No other file is the store's. Numbers are counted up, and stay far from their end.
            && stem.len() == NUMBER_DIGITS
            && number < u32::MAX / 2
        {
            numbers.push(number);
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

/// Opens a file of a segment. Fails for anything but a regular file, without waiting for it and without following a link.
fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.custom_flags(flags.bits() as i32).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a regular file", path.display()))),
    }
}

/// Reads the index file of a segment.
pub(crate) fn read_index(dir: &Path, number: u32) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(&index_path(dir, number), OpenOptions::new().read(true))?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Syncs the names of the files in `dir`.
pub(crate) fn sync_names(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Deletes the files of a segment. Those who read it go on.
pub(crate) fn delete(dir: &Path, number: u32) -> io::Result<()> {
    for path in [index_path(dir, number), data_path(dir, number)] {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Syncs a segment that is not written any more, whose entries end at `end`.
pub(crate) fn sync_closed(dir: &Path, number: u32, end: u64) -> io::Result<()> {
    open(&data_path(dir, number), OpenOptions::new().read(true))?.sync_data()?;
    let index = open(&index_path(dir, number), OpenOptions::new().write(true))?;
    index.set_len(end)?;
    let mut synced = Vec::new();
    append_frame(&mut synced, &IndexEntry::Synced);
    index.write_all_at(&synced, end)?;
    index.sync_data()
}

impl Segment {
    /// Opens a segment for reading. Returns it with the length of its data.
    pub(crate) fn open(dir: &Path, number: u32) -> io::Result<(Self, u64)> {
        let data = open(&data_path(dir, number), OpenOptions::new().read(true))?;
        let length = data.metadata()?.len();
        Ok((Self { number, data }, length))
    }

    /// Reads `length` bytes at `offset`.
    pub(crate) fn read(&self, offset: u64, length: usize, mode: ReadMode) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        match mode {
            ReadMode::Blocking => self.data.read_exact_at(&mut bytes, offset)?,
            ReadMode::PageCache => self.read_page_cache(&mut bytes, offset)?,
        }
        Ok(bytes)
    }

    fn read_page_cache(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let length = bytes.len();
        match preadv2(&self.data, &mut [IoSliceMut::new(bytes)], offset, ReadWriteFlags::NOWAIT) {
            Ok(read) if read == length => Ok(()),
            // Partly in memory, or a file system without this kind of read: a blocking read finds out.
            Ok(_) | Err(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl SegmentWriter {
    /// Creates a segment. `boot` names the boot of the machine.
    pub(crate) fn create(dir: &Path, number: u32, boot: &str) -> io::Result<Self> {
        let mut head = Vec::new();
        append_frame(&mut head, &IndexHead { version: VERSION, boot });
        let create = |path| OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(path);
        let files = || {
            let data = create(data_path(dir, number))?;
            let index = create(index_path(dir, number))?;
            index.write_all_at(&head, 0)?;
            sync_names(dir).map(|()| (data, index))
        };
        let (data, index) = files().inspect_err(|_| drop(delete(dir, number)))?;
        let segment = Arc::new(Segment { number, data });
        let head_length = head.len() as u64;
        let (data_length, index_length, synced_length) = (0, head_length, head_length);
        Ok(Self { segment, index, data_length, index_length, head_length, synced_length, buffer: head })
    }

    /// Returns the bytes of both files.
    pub(crate) fn bytes(&self) -> u64 {
        self.data_length + self.index_length
    }

    /// Returns true if the segment has no entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.index_length == self.head_length
    }

    /// Syncs data and entries, unless they are: a restart of the machine loses nothing written before.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if self.synced_length == self.index_length {
            return Ok(());
        }
        self.segment.data.sync_data()?;
        self.append_entry(&IndexEntry::Synced)?;
        self.index.sync_data()?;
        self.synced_length = self.index_length;
        Ok(())
    }

    /// Appends a body. Returns its place, and the CRC-32 of each block.
    pub(crate) fn append_body(&mut self, parts: &[Bytes]) -> io::Result<(Span, Vec<u32>)> {
        let offset = self.data_length;
        let mut checksums = Vec::new();
        self.buffer.clear();
        for part in parts {
            let mut rest = &part[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(BLOCK as usize - self.buffer.len()));
                self.buffer.extend_from_slice(now);
                if self.buffer.len() as u64 == BLOCK {
                    self.write_block(&mut checksums)?;
                }
                rest = later;
            }
        }
        if !self.buffer.is_empty() {
            self.write_block(&mut checksums)?;
        }
        Ok((self.span_from(offset)?, checksums))
    }

    fn write_block(&mut self, checksums: &mut Vec<u32>) -> io::Result<()> {
        checksums.push(crc32fast::hash(&self.buffer));
        self.write_data()
    }

    /// Appends the head of a record. Returns its place.
    pub(crate) fn append_head(&mut self, head: &RecordHead<'_>) -> io::Result<Span> {
        let offset = self.data_length;
        self.buffer.clear();
        append_frame(&mut self.buffer, head);
        self.write_data()?;
        self.span_from(offset)
    }

    fn write_data(&mut self) -> io::Result<()> {
        self.segment.data.write_all_at(&self.buffer, self.data_length)?;
        self.data_length += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn span_from(&self, offset: u64) -> io::Result<Span> {
        let place = |number: u64| u32::try_from(number).map_err(io::Error::other);
        Ok(Span { segment: self.segment.number, offset: place(offset)?, length: place(self.data_length - offset)? })
    }

    /// Appends an entry to the index file.
    pub(crate) fn append_entry(&mut self, entry: &IndexEntry<'_>) -> io::Result<()> {
        self.buffer.clear();
        append_frame(&mut self.buffer, entry);
        self.index.write_all_at(&self.buffer, self.index_length)?;
        self.index_length += self.buffer.len() as u64;
        Ok(())
    }
}
