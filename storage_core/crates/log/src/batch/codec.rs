//! The codecs of the records of a batch, as Kafka numbers them: gzip, snappy (as one block, or in the frame that Java's
//! clients write), lz4 (frame) and zstd.
//!
//! The memory of decompressed records grows with what comes out of the stream; a snappy block, which claims its size,
//! gets no more than its bytes can hold. So there is a limit to the bytes and none to the ratio.

use std::io::{self, BufRead, BufReader, Read, Write};

use super::error::BatchError;

/// Limit on the bytes of the decompressed records of one batch.
pub const OPENED_BYTES_MAX: usize = 256 << 20;

/// Magic of the frame in which Java's clients write snappy blocks.
const JAVA_FRAME: &[u8] = b"\x82SNAPPY\0";
/// Size of that frame's header: the magic, its version, and the version that readers need, both of 32 bits.
const JAVA_FRAME_BYTES: usize = 16;
/// Bound on the ratio of a snappy block, whose densest element is a copy of 64 bytes in 3.
const SNAPPY_RATIO_MAX: usize = 22;

/// Decompresses records; the codec must not be "none".
pub(super) fn decompress(codec: u8, bytes: &[u8]) -> Result<Vec<u8>, BatchError> {
    match codec {
        1 => read_all(codec, flate2::bufread::MultiGzDecoder::new(bytes)),
        2 => snappy(bytes),
        3 => read_all(codec, lz4_flex::frame::FrameDecoder::new(bytes)),
        4 => {
            let decoder = zstd::stream::read::Decoder::with_buffer(bytes);
            read_all(codec, decoder.map_err(|problem| damaged(codec, &problem))?)
        }
        _ => Err(BatchError::UnknownCodec { codec }),
    }
}

/// Bytes that a reader of decompressed records holds beside what its codec needs.
const READER_BYTES: usize = 32 << 10;

/// Limit on the bytes to which one block of snappy may open while records are read little by little.
pub(super) const SNAPPY_BLOCK_BYTES_MAX: usize = 32 << 20;

/// Decompresses records little by little; the codec must not be "none". Each block of snappy is opened as a whole, which
/// [`SNAPPY_BLOCK_BYTES_MAX`] bounds: Java's client writes small blocks, other clients write one block for all records.
pub(super) fn reader(codec: u8, bytes: &[u8]) -> Result<Box<dyn BufRead + '_>, BatchError> {
    Ok(match codec {
        1 => buffered(flate2::bufread::MultiGzDecoder::new(bytes)),
        2 => Box::new(SnappyReader::new(bytes)),
        3 => buffered(lz4_flex::frame::FrameDecoder::new(bytes)),
        4 => {
            let decoder = zstd::stream::read::Decoder::with_buffer(bytes);
            buffered(decoder.map_err(|problem| damaged(codec, &problem))?)
        }
        _ => return Err(BatchError::UnknownCodec { codec }),
    })
}

fn buffered<'a>(stream: impl Read + 'a) -> Box<dyn BufRead + 'a> {
    Box::new(BufReader::with_capacity(READER_BYTES, stream))
}

/// Compresses records with the codec's usual effort; the codec must not be "none". Snappy becomes one block.
pub(super) fn compress(codec: u8, bytes: &[u8]) -> Result<Vec<u8>, BatchError> {
    let failed = |problem: &dyn std::fmt::Display| BatchError::Unclosed {
        codec: name(codec),
        reason: problem.to_string(),
    };
    match codec {
        1 => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(bytes).and_then(|()| encoder.finish()).map_err(|problem| failed(&problem))
        }
        2 => snap::raw::Encoder::new().compress_vec(bytes).map_err(|problem| failed(&problem)),
        3 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(bytes).map_err(|problem| failed(&problem))?;
            encoder.finish().map_err(|problem| failed(&problem))
        }
        4 => zstd::encode_all(bytes, zstd::DEFAULT_COMPRESSION_LEVEL).map_err(|problem| failed(&problem)),
        _ => Err(BatchError::UnknownCodec { codec }),
    }
}

/// Name of a codec.
pub(super) fn name(codec: u8) -> &'static str {
    ["none", "gzip", "snappy", "lz4", "zstd"].get(usize::from(codec)).copied().unwrap_or("an unknown one")
}

fn read_all(codec: u8, stream: impl Read) -> Result<Vec<u8>, BatchError> {
    let mut opened = Vec::new();
    let limit = OPENED_BYTES_MAX as u64 + 1;
    stream.take(limit).read_to_end(&mut opened).map_err(|problem| damaged(codec, &problem))?;
    if opened.len() > OPENED_BYTES_MAX { Err(too_large(codec)) } else { Ok(opened) }
}

/// Decompresses one snappy block, or Java's frame of several.
fn snappy(bytes: &[u8]) -> Result<Vec<u8>, BatchError> {
    let (mut opened, mut blocks) = (Vec::new(), SnappyBlocks::new(bytes));
    while let Some(block) = blocks.next()? {
        snappy_block(block, &mut opened, OPENED_BYTES_MAX)?;
    }
    Ok(opened)
}

/// The blocks of a snappy stream: one, or those of Java's frames.
struct SnappyBlocks<'a> {
    rest: &'a [u8],
    is_framed: bool,
}

impl<'a> SnappyBlocks<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, is_framed: bytes.starts_with(JAVA_FRAME) }
    }

    fn next(&mut self) -> Result<Option<&'a [u8]>, BatchError> {
        if !self.is_framed {
            let block = std::mem::take(&mut self.rest);
            self.is_framed = true; // nothing comes behind the one block
            return Ok(Some(block));
        }
        // Each of several streams that were written one after the other has its own frame.
        while self.rest.starts_with(JAVA_FRAME) {
            self.rest =
                self.rest.get(JAVA_FRAME_BYTES..).ok_or_else(|| damaged(2, &"its frame is cut off"))?;
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (length, behind) = self
            .rest
            .split_first_chunk::<4>()
            .ok_or_else(|| damaged(2, &"the length of a block is cut off"))?;
        let block = behind.split_at_checked(u32::from_be_bytes(*length) as usize);
        let (block, behind) = block.ok_or_else(|| damaged(2, &"a block is cut off"))?;
        self.rest = behind;
        Ok(Some(block))
    }
}

/// Opens one block of a snappy stream after the other.
struct SnappyReader<'a> {
    blocks: SnappyBlocks<'a>,
    opened: Vec<u8>,
    /// How much of `opened` was taken.
    taken: usize,
}

impl<'a> SnappyReader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { blocks: SnappyBlocks::new(bytes), opened: Vec::new(), taken: 0 }
    }
}

impl Read for SnappyReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(out)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for SnappyReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.taken == self.opened.len()
            && let Some(block) = self.blocks.next().map_err(io::Error::other)?
        {
            self.opened.clear();
            self.taken = 0;
            snappy_block(block, &mut self.opened, SNAPPY_BLOCK_BYTES_MAX).map_err(io::Error::other)?;
        }
        Ok(&self.opened[self.taken..])
    }

    fn consume(&mut self, bytes: usize) {
        self.taken += bytes;
    }
}

/// Decompresses one snappy block. A block claims its decompressed size; that much memory is taken only if the bytes of the
/// block can hold it.
fn snappy_block(block: &[u8], opened: &mut Vec<u8>, bytes_max: usize) -> Result<(), BatchError> {
    let said = snap::raw::decompress_len(block).map_err(|problem| damaged(2, &problem))?;
    if said > bytes_max - opened.len() {
        return Err(BatchError::OpenedTooLarge { codec: name(2), bytes_max: bytes_max as u64 });
    }
    if said > block.len().saturating_mul(SNAPPY_RATIO_MAX) {
        return Err(damaged(2, &format!("{} bytes cannot hold the {said} that they say", block.len())));
    }
    let start = opened.len();
    opened.resize(start + said, 0);
    let written = snap::raw::Decoder::new().decompress(block, &mut opened[start..]);
    written.map(drop).map_err(|problem| damaged(2, &problem))
}

pub(super) fn damaged(codec: u8, problem: &dyn std::fmt::Display) -> BatchError {
    BatchError::Unopened { codec: name(codec), reason: problem.to_string() }
}

/// What stopped a reader of records.
pub(super) fn trouble(codec: u8, problem: &io::Error) -> BatchError {
    let cause = problem.get_ref().and_then(|cause| cause.downcast_ref::<BatchError>());
    cause.cloned().unwrap_or_else(|| damaged(codec, problem))
}

pub(super) fn too_large(codec: u8) -> BatchError {
    BatchError::OpenedTooLarge { codec: name(codec), bytes_max: OPENED_BYTES_MAX as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        compress(1, bytes).unwrap()
    }

    fn snappy_of(bytes: &[u8]) -> Vec<u8> {
        compress(2, bytes).unwrap()
    }

    fn lz4(bytes: &[u8]) -> Vec<u8> {
        compress(3, bytes).unwrap()
    }

    fn zstd_of(bytes: &[u8]) -> Vec<u8> {
        compress(4, bytes).unwrap()
    }

    fn java_snappy(bytes: &[u8]) -> Vec<u8> {
        let mut framed = [JAVA_FRAME, &1_u32.to_be_bytes(), &1_u32.to_be_bytes()].concat();
        for block in bytes.chunks(32 << 10) {
            let block = snappy_of(block);
            framed.extend_from_slice(&u32::try_from(block.len()).unwrap().to_be_bytes());
            framed.extend_from_slice(&block);
        }
        framed
    }

    type Encode = fn(&[u8]) -> Vec<u8>;
    const ALL: [(u8, Encode); 5] = [(1, gzip), (2, snappy_of), (2, java_snappy), (3, lz4), (4, zstd_of)];

    fn some_bytes() -> Vec<u8> {
        (0..200_000_u32).flat_map(|number| (number / 7).to_le_bytes()).collect()
    }

    #[test]
    fn each_codec_gives_back_what_was_compressed() {
        for bytes in [Vec::new(), b"a".to_vec(), some_bytes()] {
            for (codec, encode) in ALL {
                assert_eq!(decompress(codec, &encode(&bytes)).unwrap(), bytes, "{}", name(codec));
            }
        }
    }

    #[test]
    fn streams_one_after_the_other_are_one() {
        for (codec, encode) in [(1, gzip as Encode), (2, java_snappy), (4, zstd_of)] {
            let twice = [encode(b"one, "), encode(b"two")].concat();
            assert_eq!(decompress(codec, &twice).unwrap(), b"one, two", "{}", name(codec));
        }
    }

    #[test]
    fn what_a_java_client_writes_can_be_opened() {
        // `SnappyOutputStream` of snappy-java around "walrus walrus walrus".
        let framed = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\0\0\0\x0c\x14\x18walrus \x32\x07\0";
        assert_eq!(decompress(2, framed).unwrap(), b"walrus walrus walrus");
    }

    #[test]
    fn a_high_ratio_is_fine_and_more_than_the_limit_is_not() {
        let (most, more) = (vec![0; 64 << 20], vec![0; OPENED_BYTES_MAX + 1]);
        for (codec, encode) in [(1, gzip as Encode), (4, zstd_of)] {
            let compressed = encode(&most);
            assert!(most.len() / compressed.len() > 200);
            assert_eq!(decompress(codec, &compressed).unwrap().len(), most.len());
            let bytes_max = OPENED_BYTES_MAX as u64;
            let too_large = BatchError::OpenedTooLarge { codec: name(codec), bytes_max };
            assert_eq!(decompress(codec, &encode(&more)), Err(too_large));
        }
    }

    #[test]
    fn what_is_cut_off_or_damaged_is_said_to_be() {
        for (codec, encode) in ALL {
            let whole = encode(&some_bytes());
            let cut = &whole[..whole.len() / 2];
            match decompress(codec, cut) {
                Err(BatchError::Unopened { codec: said, .. }) => assert_eq!(said, name(codec)),
                // lz4 ends as well between two blocks; the records then are too few.
                Ok(opened) => assert!(codec == 3 && opened.len() < some_bytes().len()),
                Err(other) => panic!("{other}"),
            }
            assert!(decompress(codec, b"no such stream").is_err(), "{}", name(codec));
        }
    }

    #[test]
    fn a_block_that_says_more_than_it_can_hold_takes_no_memory() {
        let mut block = vec![0xff, 0xff, 0xff, 0x7f]; // 256 MiB - 1
        block.extend_from_slice(&[0; 100]);
        let problem = decompress(2, &block).unwrap_err().to_string();
        assert!(problem.contains("cannot hold"), "{problem}");
    }
}
