//! Frames `[u32 LE length][u8 kind][u64 LE request id][payload]`; the length counts what follows it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::node::budget::{Held, Share};

/// Bytes of kind and request id.
const HEAD_BYTES: usize = 9;
/// Limit on the length of a frame after the handshake: a fetch of the largest size plus one largest batch.
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 20;
/// Limit on the length of a frame before the handshake.
pub(crate) const HELLO_BYTES_MAX: usize = 16 << 10;
/// Step in which memory is taken as a frame's bytes come in; none is taken for what its length only claims.
const RESERVE_BYTES: usize = 256 << 10;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) id: u64,
    pub(crate) payload: Bytes,
}

impl Frame {
    /// Writes what stands before the payload.
    pub(crate) fn put_head(&self, bytes: &mut BytesMut) {
        let length = u32::try_from(HEAD_BYTES + self.payload.len()).expect("a frame above 4 GiB");
        bytes.put_u32_le(length);
        bytes.put_u8(self.kind);
        bytes.put_u64_le(self.id);
    }

    /// The whole frame as it goes over the wire.
    pub(crate) fn to_bytes(&self) -> BytesMut {
        let mut bytes = BytesMut::with_capacity(4 + HEAD_BYTES + self.payload.len());
        self.put_head(&mut bytes);
        bytes.put_slice(&self.payload);
        bytes
    }
}

/// What stands before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: u8,
    pub(crate) id: u64,
    /// Bytes of the payload that is to come.
    pub(crate) payload_bytes: usize,
}

/// Reads frames off a stream.
pub(crate) struct FrameReader<R> {
    stream: R,
    buffer: BytesMut,
    /// What the frame that comes in now counts against the budget.
    held: Option<Held>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(stream: R) -> Self {
        Self::resume(stream, BytesMut::new())
    }

    /// A reader of a stream of which `buffer` was read before.
    pub(crate) fn resume(stream: R, buffer: BytesMut) -> Self {
        Self { stream, buffer, held: None }
    }

    /// The bytes that were read and belong to no frame that was taken.
    pub(crate) fn into_buffer(self) -> BytesMut {
        self.buffer
    }

    /// The next frame; `None` when the other side closed between two frames. Dropping it on the way loses nothing.
    pub(crate) async fn next(&mut self, bytes_max: usize) -> io::Result<Option<Frame>> {
        let Some(head) = self.head(bytes_max).await? else { return Ok(None) };
        self.rest(head).await.map(Some)
    }

    /// What stands before the next frame's payload, which is still to be read or skipped.
    pub(crate) async fn head(&mut self, bytes_max: usize) -> io::Result<Option<Head>> {
        if !self.fill(4).await? {
            return if self.buffer.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        let length = (&self.buffer[..4]).get_u32_le() as usize;
        if length < HEAD_BYTES || length > bytes_max {
            let message = format!("a frame of {length} bytes, allowed are {HEAD_BYTES} to {bytes_max}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        if !self.fill(4 + HEAD_BYTES).await? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut head = &self.buffer[4..];
        Ok(Some(Head { kind: head.get_u8(), id: head.get_u64_le(), payload_bytes: length - HEAD_BYTES }))
    }

    /// The frame that begins with this head. Dropping it on the way loses nothing.
    pub(crate) async fn rest(&mut self, head: Head) -> io::Result<Frame> {
        let length = HEAD_BYTES + head.payload_bytes;
        if !self.fill(4 + length).await? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(self.cut(head))
    }

    /// The frame that begins with this head, which counts to a share as it comes in. Waits for room, up to `patience`, before
    /// each step.
    pub(crate) async fn rest_counted(
        &mut self,
        head: Head,
        share: &Arc<Share>,
        patience: Duration,
    ) -> io::Result<(Frame, Held)> {
        let whole = 4 + HEAD_BYTES + head.payload_bytes;
        loop {
            share.room(patience).await.map_err(io::Error::other)?;
            let wanted = whole.min(self.buffer.len() + RESERVE_BYTES);
            self.held.get_or_insert_with(|| share.hold(0)).set(wanted);
            if !self.fill(wanted).await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if wanted == whole {
                let held = self.held.take().expect("it was set above");
                return Ok((self.cut(head), held));
            }
        }
    }

    /// Reads over the payload behind this head, keeping nothing of it. Not to be dropped on the way.
    pub(crate) async fn skip(&mut self, head: Head) -> io::Result<()> {
        let mut left = 4 + HEAD_BYTES + head.payload_bytes;
        loop {
            let here = left.min(self.buffer.len());
            self.buffer.advance(here);
            left -= here;
            if left == 0 {
                return Ok(());
            }
            if !self.fill(left.min(RESERVE_BYTES)).await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn cut(&mut self, head: Head) -> Frame {
        self.buffer.advance(4 + HEAD_BYTES);
        let payload = self.buffer.split_to(head.payload_bytes).freeze();
        Frame { kind: head.kind, id: head.id, payload }
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

    #[tokio::test]
    async fn a_frame_that_is_skipped_leaves_the_next_one_whole() {
        let frame = |id, bytes| Frame { kind: 4, id, payload: vec![7; bytes].into() };
        for length in [0, 5, 3 * RESERVE_BYTES] {
            let sent = encode(&[frame(1, length), frame(2, 3)]);
            let mut reader = FrameReader::new(&sent[..]);
            let head = reader.head(FRAME_BYTES_MAX).await.unwrap().unwrap();
            assert_eq!((head.id, head.payload_bytes), (1, length));
            reader.skip(head).await.unwrap();
            assert_eq!(reader.next(FRAME_BYTES_MAX).await.unwrap(), Some(frame(2, 3)));
        }
    }

    /// A length is cheap to claim: it counts only as bytes come.
    #[tokio::test]
    async fn a_frame_counts_as_it_comes_in_and_until_it_is_answered() {
        use crate::node::budget::{Budget, Purpose};

        let budget = Budget::new(64 << 20);
        let share = budget.share(Purpose::Appends);
        let sent = encode(&[Frame { kind: 4, id: 1, payload: vec![7; 2 << 20].into() }]);
        let mut reader = FrameReader::new(&sent[..600 << 10]);
        let head = reader.head(FRAME_BYTES_MAX).await.unwrap().unwrap();
        assert!(reader.rest_counted(head, share, Duration::ZERO).await.is_err(), "it is cut off");
        assert!((600 << 10..1 << 20).contains(&share.held()), "{}", share.held());
        drop(reader);
        assert_eq!(share.held(), 0);
        let mut reader = FrameReader::new(&sent[..]);
        let head = reader.head(FRAME_BYTES_MAX).await.unwrap().unwrap();
        let (_frame, held) = reader.rest_counted(head, share, Duration::ZERO).await.unwrap();
        assert_eq!(share.held(), held.bytes());
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
