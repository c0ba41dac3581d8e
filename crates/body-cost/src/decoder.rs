//! Content codings of bodies, decoded part by part.

use brotli::enc::StandardAlloc;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder as ZstdDecoder, Operation};

/// Bytes that are decoded at once.
const PART: usize = 16 * 1024;
/// Window of gzip, the largest one, as a power of two.
const GZIP_WINDOW_LOG: u8 = 15;
/// Largest window of Zstandard, as a power of two: 8 MiB, which every decoder of HTTP must support (RFC 9659).
const ZSTD_WINDOW_LOG: u32 = 23;

/// Largest window of Brotli, in bytes (RFC 7932 section 9.1).
const BROTLI_WINDOW: u64 = 16 << 20;
/// Bytes of a decoder without its window: tables, and the part that was decoded last.
const DECODER: usize = 128 * 1024;

/// Error: the body cannot be decoded, or is too long to be scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecodeError;

/// Content coding of a body, as `Content-Encoding` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyCoding {
    Identity,
    Gzip,
    /// The zlib format (RFC 9110 section 8.4.1.2).
    Deflate,
    Brotli,
    Zstd,
}

impl BodyCoding {
    /// Returns the coding that a `Content-Encoding` names; `None` for an unknown one or several.
    pub(crate) fn from_content_encoding(name: &[u8]) -> Option<Self> {
        match name.trim_ascii().to_ascii_lowercase().as_slice() {
            b"" | b"identity" => Some(Self::Identity),
            b"gzip" | b"x-gzip" => Some(Self::Gzip),
            b"deflate" => Some(Self::Deflate),
            b"br" => Some(Self::Brotli),
            b"zstd" => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// Decoder of one body.
pub(crate) struct BodyDecoder {
    stream: CodedStream,
    output: Box<[u8]>,
}

/// State of a decoder.
enum CodedStream {
    Gzip {
        stream: Decompress,
        /// True if a member has ended before.
        follows_member: bool,
    },
    Deflate(Decompress),
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
    Zstd(ZstdDecoder<'static>),
    /// The coded data has ended. Bytes behind its end are ignored, as browsers do.
    Ended,
}

/// Progress of a decoder.
struct Progress {
    read: usize,
    written: usize,
}

impl BodyDecoder {
    /// Creates a decoder of `coding`; `None` if there is nothing to decode.
    ///
    /// # Errors
    ///
    /// Memory is exhausted.
    pub(crate) fn new(coding: BodyCoding) -> Result<Option<Self>, DecodeError> {
        let stream = match coding {
            BodyCoding::Identity => return Ok(None),
            BodyCoding::Gzip => {
                CodedStream::Gzip { stream: Decompress::new_gzip(GZIP_WINDOW_LOG), follows_member: false }
            }
            BodyCoding::Deflate => CodedStream::Deflate(Decompress::new(true)),
            BodyCoding::Brotli => {
                let alloc = StandardAlloc::default;
                CodedStream::Brotli(Box::new(BrotliState::new_strict(alloc(), alloc(), alloc())))
            }
            BodyCoding::Zstd => {
                let mut decoder = ZstdDecoder::new().map_err(|_| DecodeError)?;
                decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG)).map_err(|_| DecodeError)?;
                CodedStream::Zstd(decoder)
            }
        };
        Ok(Some(Self { stream, output: vec![0; PART].into() }))
    }

    /// Returns the bytes that the decoder occupies after `decoded` bytes.
    pub(crate) fn memory(&self, decoded: u64) -> usize {
        let window = match &self.stream {
            CodedStream::Gzip { .. } | CodedStream::Deflate(_) => 1 << GZIP_WINDOW_LOG,
            CodedStream::Brotli(_) => BROTLI_WINDOW,
            CodedStream::Zstd(_) => 1 << ZSTD_WINDOW_LOG,
            CodedStream::Ended => 0,
        };
        DECODER + window.min(decoded) as usize
    }

    /// Decodes the next bytes, and passes all that they decode to on to `sink`.
    pub(crate) fn push(
        &mut self,
        mut input: &[u8],
        mut sink: impl FnMut(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        loop {
            let Progress { read, written } = self.stream.decode(input, &mut self.output)?;
            sink(&self.output[..written])?;
            let may_have_more_output = written == self.output.len();
            if read == input.len() && !may_have_more_output {
                return Ok(());
            }
            if read == 0 && written == 0 {
                return Err(DecodeError);
            }
            input = &input[read..];
        }
    }
}

impl CodedStream {
    fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<Progress, DecodeError> {
        match self {
            Self::Gzip { stream, follows_member } => match inflate(stream, input, output) {
                Ok((progress, has_ended)) => {
                    if has_ended {
                        // Members follow one another (RFC 1952 section 2.2).
                        (*stream, *follows_member) = (Decompress::new_gzip(GZIP_WINDOW_LOG), true);
                    }
                    Ok(progress)
                }
                Err(_) if *follows_member && stream.total_out() == 0 => {
                    *self = Self::Ended;
                    Ok(Progress { read: input.len(), written: 0 })
                }
                Err(error) => Err(error),
            },
            Self::Deflate(stream) => {
                let (progress, has_ended) = inflate(stream, input, output)?;
                if has_ended {
                    *self = Self::Ended;
                }
                Ok(progress)
            }
            Self::Brotli(state) => {
                let (progress, has_ended) = decode_brotli(state, input, output)?;
                if has_ended {
                    *self = Self::Ended;
                }
                Ok(progress)
            }
            Self::Zstd(decoder) => {
                let status = decoder.run_on_buffers(input, output).map_err(|_| DecodeError)?;
                Ok(Progress { read: status.bytes_read, written: status.bytes_written })
            }
            Self::Ended => Ok(Progress { read: input.len(), written: 0 }),
        }
    }
}

/// Returns the progress, and whether the data has ended.
fn inflate(stream: &mut Decompress, input: &[u8], output: &mut [u8]) -> Result<(Progress, bool), DecodeError> {
    let (read, written) = (stream.total_in(), stream.total_out());
    let status = stream.decompress(input, output, FlushDecompress::None).map_err(|_| DecodeError)?;
    let (read, written) = (stream.total_in() - read, stream.total_out() - written);
    // Both are at most the lengths of the buffers.
    Ok((Progress { read: read as usize, written: written as usize }, status == Status::StreamEnd))
}

/// Returns the progress, and whether the data has ended.
fn decode_brotli(
    state: &mut BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
    input: &[u8],
    output: &mut [u8],
) -> Result<(Progress, bool), DecodeError> {
    let (mut input_len, mut output_len) = (input.len(), output.len());
    let (mut read, mut written, mut total) = (0, 0, 0);
    let result = BrotliDecompressStream(
        &mut input_len,
        &mut read,
        input,
        &mut output_len,
        &mut written,
        output,
        &mut total,
        state,
    );
    match result {
        BrotliResult::ResultFailure => Err(DecodeError),
        BrotliResult::ResultSuccess => Ok((Progress { read, written }, true)),
        BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => Ok((Progress { read, written }, false)),
    }
}
