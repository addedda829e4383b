//! Frames of the text protocol, which are `[u32 little-endian length][UTF-8 text]` both ways.
//!
//! Pure: bytes in, frames out. A length is checked before a byte behind it is looked at, and nothing is allocated for
//! bytes that have not arrived; a frame that breaks the rules leaves no way to find the next one, so it ends the
//! connection.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes of the length in front of each frame.
pub(crate) const LENGTH_BYTES: usize = 4;

/// A frame after which nothing on the connection can be trusted. The texts are those of the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadFrame {
    /// Length 0, or more than the listener takes.
    #[error("invalid frame length")]
    InvalidLength {
        /// Length that the frame announced.
        length: u32,
        /// Longest frame that the listener takes, in bytes.
        bytes_max: u32,
    },
    /// The text is not UTF-8.
    #[error("invalid utf-8")]
    NotUtf8,
}

/// Takes the first whole frame off `input`; `None` when more bytes must come first.
pub(crate) fn decode(input: &mut BytesMut, bytes_max: u32) -> Result<Option<Bytes>, BadFrame> {
    let Some(length) = announced_length(input, bytes_max)? else { return Ok(None) };
    if input.len() < LENGTH_BYTES + length {
        return Ok(None);
    }
    input.advance(LENGTH_BYTES);
    Ok(Some(input.split_to(length).freeze()))
}

/// Length that the frame at the start of `input` announces, without its own four bytes; `None` when they have not
/// all arrived.
pub(crate) fn announced_length(input: &[u8], bytes_max: u32) -> Result<Option<usize>, BadFrame> {
    let Some(length) = input.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length);
    if length == 0 || length > bytes_max {
        return Err(BadFrame::InvalidLength { length, bytes_max });
    }
    Ok(Some(length as usize))
}

/// The text of a frame.
pub(crate) fn text(frame: &[u8]) -> Result<&str, BadFrame> {
    std::str::from_utf8(frame).map_err(|_| BadFrame::NotUtf8)
}

/// Puts one frame that holds `prefix` and then `body` behind what `out` already has.
///
/// # Panics
/// If the frame would not fit its length field: no record is that large.
pub(crate) fn encode(prefix: &str, body: &[u8], out: &mut BytesMut) {
    let length = u32::try_from(prefix.len() + body.len()).expect("answers are capped far below 4 GiB");
    out.reserve(LENGTH_BYTES + prefix.len() + body.len());
    out.put_u32_le(length);
    out.put_slice(prefix.as_bytes());
    out.put_slice(body);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(text: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(text.len()).unwrap().to_le_bytes().to_vec();
        bytes.extend_from_slice(text);
        bytes
    }

    #[test]
    fn a_length_of_zero_or_above_the_cap_is_refused_before_its_bytes_arrive() {
        for (announced, refused) in [(0, true), (1, false), (16, false), (17, true), (u32::MAX, true)] {
            let mut input = BytesMut::from(&u32::to_le_bytes(announced)[..]);
            let decoded = decode(&mut input, 16);
            assert_eq!(decoded.is_err(), refused, "{announced}: {decoded:?}");
            assert!(input.capacity() < 64, "nothing is allocated for what a length promises");
        }
    }

    #[test]
    fn a_cut_off_frame_waits_and_keeps_what_arrived() {
        let whole = frame(b"GET t");
        for cut in 0..whole.len() {
            let mut input = BytesMut::from(&whole[..cut]);
            assert_eq!(decode(&mut input, 64), Ok(None));
            assert_eq!(&input[..], &whole[..cut]);
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_named() {
        assert_eq!(text(b"PUT t \xff\xfe"), Err(BadFrame::NotUtf8));
        assert_eq!(BadFrame::NotUtf8.to_string(), "invalid utf-8");
        assert_eq!(BadFrame::InvalidLength { length: 0, bytes_max: 1 }.to_string(), "invalid frame length");
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in_however_the_network_cuts_them(
            bodies in proptest::collection::vec("[ -~äß€]{1,40}", 1..8),
            cuts in proptest::collection::vec(1usize..20, 1..60),
        ) {
            let mut sent = BytesMut::new();
            for body in &bodies {
                encode("", body.as_bytes(), &mut sent);
            }
            let mut input = BytesMut::new();
            let mut received = Vec::new();
            let mut cuts = cuts.iter().cycle();
            while !sent.is_empty() {
                let piece = sent.split_to((*cuts.next().unwrap()).min(sent.len()));
                input.extend_from_slice(&piece);
                while let Some(frame) = decode(&mut input, 1024).unwrap() {
                    received.push(text(&frame).unwrap().to_owned());
                }
            }
            prop_assert_eq!(received, bodies);
            prop_assert!(input.is_empty());
        }

        #[test]
        fn no_bytes_make_it_panic_or_hand_out_a_frame_above_the_cap(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut input = BytesMut::from(&bytes[..]);
            while let Ok(Some(frame)) = decode(&mut input, 32) {
                prop_assert!((1..=32).contains(&frame.len()));
            }
        }
    }
}
