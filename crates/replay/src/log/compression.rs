//! Compressed logs: gzip, Zstandard and bzip2, recognized by their first bytes, of one or several members.

use bzip2::read::MultiBzDecoder;
use flate2::read::MultiGzDecoder;
use std::io::{self, Read};
use zstd::stream::read::Decoder as ZstdDecoder;

/// Returns the text of a stream that may be compressed.
pub(super) fn decompress(mut stream: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    let mut first = Vec::new();
    stream.by_ref().take(MAGIC_BYTES).read_to_end(&mut first)?;
    let compression = Compression::detect(&first);
    let whole = io::Cursor::new(first).chain(stream);
    Ok(match compression {
        None => Box::new(whole),
        Some(Compression::Gzip) => Box::new(MultiGzDecoder::new(whole)),
        Some(Compression::Bzip2) => Box::new(MultiBzDecoder::new(whole)),
        Some(Compression::Zstd) => {
            let mut decoder = ZstdDecoder::new(whole)?;
            decoder.window_log_max(MAX_ZSTD_WINDOW_LOG)?;
            Box::new(decoder)
        }
    })
}

/// A compression that `logrotate` and log shippers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    Gzip,
    Zstd,
    Bzip2,
}

impl Compression {
    fn detect(first: &[u8]) -> Option<Self> {
        match first {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd] => Some(Self::Zstd),
            // A frame to skip, which `pzstd` writes first (RFC 8878, section 3.1.2).
            [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Some(Self::Zstd),
            [b'B', b'Z', b'h', b'1'..=b'9'] => Some(Self::Bzip2),
            _ => None,
        }
    }
}

/// Length of the longest magic number.
const MAGIC_BYTES: u64 = 4;

/// Window of Zstandard, as a power of two: 128 MiB, which `zstd --long` uses, and the most that `zstd -d` allocates.
const MAX_ZSTD_WINDOW_LOG: u32 = 27;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).expect("in memory");
        encoder.finish().expect("in memory")
    }

    fn bzip2(text: &[u8]) -> Vec<u8> {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        encoder.write_all(text).expect("in memory");
        encoder.finish().expect("in memory")
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        zstd::stream::encode_all(text, 3).expect("in memory")
    }

    fn read(bytes: Vec<u8>) -> io::Result<String> {
        let mut text = String::new();
        decompress(io::Cursor::new(bytes))?.read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn members_of_every_compression_are_one_text() {
        for compress in [gzip, zstd, bzip2, |text: &[u8]| text.to_vec()] {
            let members = [compress(b"first\n"), compress(b"second\n"), compress(b"")].concat();
            assert_eq!(read(members).expect("complete"), "first\nsecond\n");
        }
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9][..], &zstd(b"text")].concat();
        assert_eq!(read(skippable).expect("complete"), "text");
    }

    #[test]
    fn file_cut_in_the_middle_is_an_error() {
        let text: Vec<u8> =
            (0..10_000_u32).flat_map(|number| (number.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
        for compress in [gzip, zstd, bzip2] {
            let whole = compress(&text);
            let mut out = Vec::new();
            let read = decompress(io::Cursor::new(whole[..whole.len() / 2].to_vec()))
                .and_then(|mut stream| stream.read_to_end(&mut out));
            assert!(read.is_err(), "{} bytes are read", out.len());
        }
    }

    #[test]
    fn short_and_plain_texts_are_read_as_they_are() {
        for text in ["", "B", "BZh", "BZhello", "\u{28}"] {
            assert_eq!(read(text.into()).expect("plain"), text);
        }
    }
}
