//! Frames of Kafka's protocol: a length of 32 bits, the header of a request, and its body.
//!
//! Pure: bytes in, requests out. A length is checked before a byte behind it is looked at, and nothing is allocated for bytes
//! that have not arrived. A frame that breaks the rules leaves no way to find the next one, so it ends the connection.

use bytes::{Buf as _, Bytes, BytesMut};

/// Bytes of the length in front of each frame.
pub(crate) const LENGTH_BYTES: usize = 4;
/// Longest frame that is taken (Kafka's `socket.request.max.bytes`).
pub(crate) const FRAME_BYTES_MAX: u32 = 100 << 20;
/// The shortest header: API, version, correlation.
const HEADER_BYTES_MIN: usize = 8;

/// Beginnings of requests of HTTP.
const HTTP: [&[u8; LENGTH_BYTES]; 7] = [b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PRI "];
/// Beginning of a greeting of TLS: a handshake record of any version of it.
const TLS: [u8; 2] = [0x16, 0x03];

/// A frame after which nothing on the connection can be trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadFrame {
    /// The client takes this for a port of another protocol.
    #[error(
        "the client speaks {protocol}, and this port Kafka's protocol without it: set security.protocol=PLAINTEXT at the client, \
         or correct its port"
    )]
    Foreign { protocol: &'static str },
    /// Shorter than a header, or longer than the listener takes.
    #[error("a frame has {length} bytes, and those of {HEADER_BYTES_MIN} to {FRAME_BYTES_MAX} are taken")]
    Length { length: i32 },
    /// What a length in the frame claims is not there.
    #[error("the request of API {api}, version {version}, is malformed: {problem}")]
    Malformed { api: i16, version: i16, problem: String },
}

/// Length that the frame at the start of `input` announces, without its own four bytes; `None` when they have not all arrived.
pub(crate) fn announced_length(input: &[u8]) -> Result<Option<usize>, BadFrame> {
    let Some(first) = input.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = i32::from_be_bytes(*first);
    match usize::try_from(length) {
        Ok(bytes) if (HEADER_BYTES_MIN..=FRAME_BYTES_MAX as usize).contains(&bytes) => Ok(Some(bytes)),
        _ if first.starts_with(&TLS) => Err(BadFrame::Foreign { protocol: "TLS" }),
        _ if HTTP.contains(&first) => Err(BadFrame::Foreign { protocol: "HTTP" }),
        _ => Err(BadFrame::Length { length }),
    }
}

/// Takes the first whole frame off `input`; `None` when more bytes must come first.
pub(crate) fn decode(input: &mut BytesMut) -> Result<Option<Bytes>, BadFrame> {
    let Some(length) = announced_length(input)? else { return Ok(None) };
    if input.len() < LENGTH_BYTES + length {
        return Ok(None);
    }
    input.advance(LENGTH_BYTES);
    Ok(Some(input.split_to(length).freeze()))
}

/// The part of a request's header that all APIs and versions have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Key of the API.
    pub(crate) api: i16,
    /// Version of the API.
    pub(crate) version: i16,
    /// Number that the answer has, too.
    pub(crate) correlation: i32,
}

impl Header {
    /// Takes the header off a frame, which [`decode`] gave.
    pub(crate) fn take(frame: &mut Bytes) -> Self {
        Self { api: frame.get_i16(), version: frame.get_i16(), correlation: frame.get_i32() }
    }

    /// The error of a request with this header whose bytes are not what they claim.
    pub(crate) fn malformed(self, problem: impl ToString) -> BadFrame {
        BadFrame::Malformed { api: self.api, version: self.version, problem: problem.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_cannot_be_is_refused_before_its_bytes_arrive() {
        for (announced, is_refused) in
            [(-1, true), (0, true), (7, true), (8, false), (100 << 20, false), ((100 << 20) + 1, true)]
        {
            let mut input = BytesMut::from(&i32::to_be_bytes(announced)[..]);
            assert_eq!(decode(&mut input).is_err(), is_refused, "{announced}");
            assert!(input.capacity() < 64, "nothing is allocated for what a length promises");
        }
    }

    #[test]
    fn bytes_of_other_protocols_are_told_by_their_name() {
        for (bytes, name) in [(&b"GET / HTTP/1.1"[..], "HTTP"), (b"\x16\x03\x01\x02\x00", "TLS")] {
            let told = announced_length(bytes).unwrap_err();
            assert_eq!(told, BadFrame::Foreign { protocol: name });
        }
        assert_eq!(announced_length(&[0xff; 4]), Err(BadFrame::Length { length: -1 }));
    }

    #[test]
    fn a_cut_off_frame_waits_and_keeps_what_arrived() {
        let mut whole = 8_i32.to_be_bytes().to_vec();
        whole.extend_from_slice(&[0, 18, 0, 3, 0, 0, 0, 7]);
        for cut in 0..whole.len() {
            let mut input = BytesMut::from(&whole[..cut]);
            assert_eq!(decode(&mut input), Ok(None));
            assert_eq!(&input[..], &whole[..cut]);
        }
        let mut frame = decode(&mut BytesMut::from(&whole[..])).unwrap().unwrap();
        assert_eq!(Header::take(&mut frame), Header { api: 18, version: 3, correlation: 7 });
    }
}
