//! Frames `[u32 LE length][u8 kind][u64 LE request id][payload]`; the length counts what follows it.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of kind and request id.
const HEAD_BYTES: usize = 9;
/// Longest frame after the handshake: a fetch of the largest size plus one largest batch.
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 20;
/// Longest frame before the handshake.
pub(crate) const HELLO_BYTES_MAX: usize = 4 << 10;
/// Memory is taken in such steps as a frame's bytes come in, never for what its length only claims.
const RESERVE_BYTES: usize = 256 << 10;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) id: u64,
    pub(crate) payload: Bytes,
}

impl Frame {
    /// Puts what stands before the payload.
    pub(crate) fn put_head(&self, bytes: &mut BytesMut) {
        let length = u32::try_from(HEAD_BYTES + self.payload.len()).expect("a frame above 4 GiB");
        bytes.put_u32_le(length);
        bytes.put_u8(self.kind);
        bytes.put_u64_le(self.id);
    }

    /// All of it.
    pub(crate) fn to_bytes(&self) -> BytesMut {
        let mut bytes = BytesMut::with_capacity(4 + HEAD_BYTES + self.payload.len());
        self.put_head(&mut bytes);
        bytes.put_slice(&self.payload);
        bytes
    }
}

/// Reads frames.
pub(crate) struct FrameReader<R> {
    stream: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(stream: R) -> Self {
        Self::resume(stream, BytesMut::new())
    }

    /// The same where something was read before.
    pub(crate) fn resume(stream: R, buffer: BytesMut) -> Self {
        Self { stream, buffer }
    }

    /// What was read and is not taken.
    pub(crate) fn into_buffer(self) -> BytesMut {
        self.buffer
    }

    /// The next frame; `None` when the other side closed between two frames. Dropping it on the way loses nothing.
    pub(crate) async fn next(&mut self, bytes_max: usize) -> io::Result<Option<Frame>> {
        if !self.fill(4).await? {
            return if self.buffer.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        let length = (&self.buffer[..4]).get_u32_le() as usize;
        if length < HEAD_BYTES || length > bytes_max {
            let message = format!("a frame of {length} bytes, allowed are {HEAD_BYTES} to {bytes_max}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        if !self.fill(4 + length).await? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.buffer.advance(4);
        let mut frame = self.buffer.split_to(length).freeze();
        let kind = frame.get_u8();
        let id = frame.get_u64_le();
        Ok(Some(Frame { kind, id, payload: frame }))
    }

    /// Reads until the buffer holds `wanted` bytes; `false` at the end of the stream.
    async fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        while self.buffer.len() < wanted {
            self.buffer.reserve((wanted - self.buffer.len()).clamp(4 << 10, RESERVE_BYTES));
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(frames: &[Frame]) -> Vec<u8> {
        frames.iter().flat_map(Frame::to_bytes).collect()
    }

    fn decode(bytes: &[u8], bytes_max: usize) -> io::Result<Vec<Frame>> {
        let mut reader = FrameReader::new(bytes);
        let mut frames = Vec::new();
        let mut read = || futures_util::FutureExt::now_or_never(reader.next(bytes_max)).unwrap();
        while let Some(frame) = read()? {
            frames.push(frame);
        }
        Ok(frames)
    }

    fn any_frame() -> impl Strategy<Value = Frame> {
        let payload = proptest::collection::vec(any::<u8>(), 0..100);
        (any::<u8>(), any::<u64>(), payload).prop_map(|(kind, id, payload)| Frame {
            kind,
            id,
            payload: payload.into(),
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn frames_come_out_as_they_went_in(frames in proptest::collection::vec(any_frame(), 0..6)) {
            prop_assert_eq!(decode(&encode(&frames), FRAME_BYTES_MAX).unwrap(), frames);
        }

        #[test]
        fn a_cut_stream_is_an_error_unless_cut_between_frames(frame in any_frame(), keep in 0.0..1.0_f64) {
            let bytes = encode(std::slice::from_ref(&frame));
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)] // a place in it
            let cut = 1 + (keep * (bytes.len() - 2) as f64) as usize;
            prop_assert!(decode(&bytes[..cut], FRAME_BYTES_MAX).is_err());
        }
    }

    #[test]
    fn lengths_out_of_bounds_are_refused_before_anything_is_allocated() {
        for length in [0_u32, 8, 101, u32::MAX] {
            let mut reader = FrameReader::new(&[][..]);
            reader.buffer.put_u32_le(length);
            reader.buffer.put_slice(&[0; 9]);
            let result = futures_util::FutureExt::now_or_never(reader.next(100)).unwrap();
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::InvalidData, "{length}");
            assert!(reader.buffer.capacity() < 1 << 10);
        }
    }
}
