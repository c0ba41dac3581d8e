//! Compression of response bodies, part by part.

use crate::gateway::transport::client_body::BodyError;
use crate::gateway::transport::connection_memory::MemoryCharge;
use brotli::CompressorWriter as BrotliEncoder;
use bytes::Bytes;
use flate2::write::GzEncoder;
use std::cell::Cell;
use std::io::{self, Write};
use std::task::{Poll, Waker};
use tidegate_http_cache::coding::Coding;
use zstd::stream::write::Encoder as ZstdEncoder;

/// Bytes of compressed data that are sent at once.
const PART: usize = 8 * 1024;
/// Bytes of the parts of a whole compressed body.
const STORED_PART: usize = 64 * 1024;
/// Most bytes that are compressed before others of the thread run.
const MAX_AT_ONCE: usize = 32 * 1024;
/// Most memory of the compressors of one thread, in bytes. Further responses are sent as they are.
pub(in crate::gateway) const MAX_MEMORY: u64 = 64 * 1024 * 1024;

/// Levels and windows of moderate time and memory: a response that passes is compressed each time.
const GZIP_LEVEL: u32 = 5;
const BROTLI_QUALITY: u32 = 4;
const ZSTD_LEVEL: i32 = 3;
const WINDOW_LOG: u32 = 18;
const BROTLI_BUFFER: usize = 4096;

thread_local! {
    /// Bytes of all compressors.
    static OCCUPIED: Cell<usize> = const { Cell::new(0) };
}

/// Compressor of one body.
pub(in crate::gateway) struct Compressor {
    /// `None` once the body is complete.
    encoder: Option<Encoder>,
    /// Received, and not compressed.
    input: Bytes,
    /// All that was received is sent.
    is_flushed: bool,
    /// Bytes that it occupies.
    memory: usize,
    _charge: MemoryCharge,
}

enum Encoder {
    Gzip(GzEncoder<Vec<u8>>),
    Brotli(Box<BrotliEncoder<Vec<u8>>>),
    Zstd(ZstdEncoder<'static, Vec<u8>>),
}

/// Returns the bytes of memory that a compressor occupies.
const fn memory(coding: Coding) -> usize {
    match coding {
        Coding::Gzip => 320 * 1024,
        Coding::Brotli => 1536 * 1024,
        Coding::Zstd => 1280 * 1024,
    }
}

/// Returns `parts` compressed, in parts of [`STORED_PART`] bytes, so that each is free once all who send it have.
pub(in crate::gateway) fn compress(coding: Coding, parts: &[Bytes]) -> io::Result<Vec<Bytes>> {
    let mut encoder = Encoder::new(coding);
    let mut compressed = Vec::new();
    for block in parts.iter().flat_map(|part| part.chunks(MAX_AT_ONCE)) {
        encoder.writer().write_all(block)?;
        let output = encoder.output();
        while output.len() >= STORED_PART {
            compressed.push(Bytes::copy_from_slice(&output[..STORED_PART]));
            output.drain(..STORED_PART);
        }
    }
    compressed.extend(encoder.finish()?.chunks(STORED_PART).map(Bytes::copy_from_slice));
    Ok(compressed)
}

impl Compressor {
    /// Returns a compressor; `None` if it is not the only one of the thread and they would occupy more than `max_memory` bytes.
    /// `charge` is for the bytes that it occupies.
    pub(in crate::gateway) fn try_new(
        coding: Coding,
        max_memory: u64,
        charge: impl FnOnce(usize) -> MemoryCharge,
    ) -> Option<Self> {
        let (memory, occupied) = (memory(coding), OCCUPIED.get());
        if occupied > 0 && (occupied + memory) as u64 > max_memory {
            return None;
        }
        OCCUPIED.set(occupied + memory);
        let encoder = Some(Encoder::new(coding));
        Some(Self { encoder, input: Bytes::new(), is_flushed: true, memory, _charge: charge(memory) })
    }

    /// Returns true once the last part is returned.
    pub(in crate::gateway) fn is_complete(&self) -> bool {
        self.encoder.is_none()
    }

    /// Returns the next compressed part of the body of which `poll_part` returns the parts. What was received is sent on
    /// before the origin is waited for.
    pub(in crate::gateway) fn poll_next(
        &mut self,
        waker: &Waker,
        mut poll_part: impl FnMut() -> Poll<Option<Result<Bytes, BodyError>>>,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        let Some(encoder) = &mut self.encoder else { return Poll::Ready(None) };
        let mut budget = MAX_AT_ONCE;
        while budget > 0 {
            if self.input.is_empty() {
                match poll_part() {
                    Poll::Pending if self.is_flushed => return Poll::Pending,
                    Poll::Pending => {
                        self.is_flushed = true;
                        let flushed = encoder.writer().flush().map(|()| encoder.take_output());
                        return Poll::Ready(Some(flushed.map_err(BodyError::Compression)));
                    }
                    Poll::Ready(None) => {
                        let rest = self.encoder.take().map_or(Ok(Vec::new()), Encoder::finish);
                        return Poll::Ready(Some(rest.map(Bytes::from).map_err(BodyError::Compression)));
                    }
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                    Poll::Ready(Some(Ok(part))) => self.input = part,
                }
            }
            let block = self.input.split_to(self.input.len().min(budget));
            if block.is_empty() {
                continue;
            }
            budget -= block.len();
            self.is_flushed = false;
            if let Err(error) = encoder.writer().write_all(&block) {
                return Poll::Ready(Some(Err(BodyError::Compression(error))));
            }
            if encoder.output().len() >= PART {
                return Poll::Ready(Some(Ok(encoder.take_output())));
            }
        }
        waker.wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Compressor {
    fn drop(&mut self) {
        OCCUPIED.set(OCCUPIED.get() - self.memory);
    }
}

impl Encoder {
    fn new(coding: Coding) -> Self {
        match coding {
            Coding::Gzip => Self::Gzip(GzEncoder::new(Vec::new(), flate2::Compression::new(GZIP_LEVEL))),
            Coding::Brotli => {
                Self::Brotli(Box::new(BrotliEncoder::new(Vec::new(), BROTLI_BUFFER, BROTLI_QUALITY, WINDOW_LOG)))
            }
            Coding::Zstd => {
                let encoder = ZstdEncoder::new(Vec::new(), ZSTD_LEVEL);
                let encoder = encoder.and_then(|mut encoder| encoder.window_log(WINDOW_LOG).map(|()| encoder));
                Self::Zstd(encoder.expect("level and window are those of zstd"))
            }
        }
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Gzip(encoder) => encoder,
            Self::Brotli(encoder) => encoder,
            Self::Zstd(encoder) => encoder,
        }
    }

    fn output(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Brotli(encoder) => encoder.get_mut(),
            Self::Zstd(encoder) => encoder.get_mut(),
        }
    }

    fn take_output(&mut self) -> Bytes {
        std::mem::take(self.output()).into()
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Brotli(encoder) => Ok(encoder.into_inner()),
            Self::Zstd(encoder) => encoder.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::transport::connection_memory::ConnectionMemory;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::io::Read;
    use std::rc::Rc;

    const CODINGS: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

    fn decompress(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut text),
            Coding::Brotli => brotli::Decompressor::new(bytes, BROTLI_BUFFER).read_to_end(&mut text),
            Coding::Zstd => zstd::stream::read::Decoder::new(bytes).and_then(|mut it| it.read_to_end(&mut text)),
        }
        .expect("valid data");
        text
    }

    fn new_compressor(coding: Coding) -> Compressor {
        let memory = Rc::<ConnectionMemory>::default();
        Compressor::try_new(coding, MAX_MEMORY, |bytes| MemoryCharge::new(&memory, bytes)).expect("little memory")
    }

    proptest! {
        // The compressors are slow without optimization.
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        #[test]
        fn body_is_the_same_after_decompression(
            coding in proptest::sample::select(&CODINGS[..]),
            // `None` is a pause of the origin.
            parts in proptest::collection::vec(proptest::option::of("[a-f]{0,20000}"), 0..8),
        ) {
            let body: Vec<u8> = parts.iter().flatten().flat_map(|part| part.bytes()).collect();
            let mut source: VecDeque<_> = parts.into();
            let (mut compressor, mut output) = (new_compressor(coding), Vec::new());
            let (mut received, mut pauses) = (0, 0);
            while !compressor.is_complete() {
                let polled = compressor.poll_next(Waker::noop(), || match source.pop_front() {
                    None => Poll::Ready(None),
                    Some(None) => { pauses += 1; Poll::Pending }
                    Some(Some(part)) => {
                        received += part.len();
                        Poll::Ready(Some(Ok(part.into())))
                    }
                });
                if let Poll::Ready(part) = polled {
                    output.extend(part.expect("not complete").expect("no error"));
                }
            }
            prop_assert!(pauses <= 20 && received == body.len());
            prop_assert_eq!(decompress(coding, &output), body);
        }
    }

    #[test]
    fn whole_body_is_compressed_in_parts() {
        let mut text = vec![0; 300_000];
        let mut state = 1_u32;
        text.iter_mut().for_each(|byte| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (state >> 24) as u8;
        });
        for coding in CODINGS {
            let parts = compress(coding, &[Bytes::copy_from_slice(&text)]).expect("no error");
            let (last, full) = parts.split_last().expect("parts");
            assert!(full.len() >= 4 && full.iter().all(|part| part.len() == STORED_PART), "{coding:?}");
            assert!(!last.is_empty() && last.len() <= STORED_PART, "{coding:?}");
            assert!(decompress(coding, &parts.concat()) == text, "{coding:?}");
        }
    }

    #[test]
    fn what_was_received_is_sent_before_the_origin_is_waited_for() {
        for coding in CODINGS {
            let mut compressor = new_compressor(coding);
            let mut parts = VecDeque::from(["first part".into()]);
            let mut poll = || {
                compressor.poll_next(Waker::noop(), || {
                    parts.pop_front().map_or(Poll::Pending, |part| Poll::Ready(Some(Ok(part))))
                })
            };
            let Poll::Ready(Some(Ok(part))) = poll() else { panic!("{coding:?}: nothing is sent") };
            let mut text = [0; 10];
            let bytes = &part[..];
            match coding {
                Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_exact(&mut text),
                Coding::Brotli => brotli::Decompressor::new(bytes, BROTLI_BUFFER).read_exact(&mut text),
                Coding::Zstd => zstd::stream::read::Decoder::new(bytes).and_then(|mut it| it.read_exact(&mut text)),
            }
            .expect("the whole part");
            assert_eq!(&text, b"first part");
            assert!(poll().is_pending(), "{coding:?}: nothing new");
        }
    }

    #[test]
    fn endless_text_of_one_character_lets_others_run() {
        for coding in CODINGS {
            let mut taken = 0;
            let part = Bytes::from(vec![b'a'; 16 * 1024]);
            let polled = new_compressor(coding).poll_next(Waker::noop(), || {
                taken += part.len();
                Poll::Ready(Some(Ok(part.clone())))
            });
            assert!(polled.is_pending() && taken == MAX_AT_ONCE, "{coding:?}: {taken}");
        }
    }

    #[test]
    fn compressors_of_a_thread_have_a_limit_of_memory() {
        let connection = Rc::<ConnectionMemory>::default();
        for coding in CODINGS {
            let try_new = || Compressor::try_new(coding, 5_000_000, |bytes| MemoryCharge::new(&connection, bytes));
            let unused = connection.total();
            let compressors: Vec<_> = std::iter::from_fn(try_new).collect();
            let occupied = connection.total() - unused;
            let one = memory(coding) as u64;
            assert!((5_000_000 - one..=5_000_000).contains(&occupied), "{coding:?}: {occupied}");
            drop(compressors);
            assert!(try_new().is_some() && connection.total() == unused, "{coding:?}");
        }
    }
}
