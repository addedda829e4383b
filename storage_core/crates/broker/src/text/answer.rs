//! Answers of the text protocol: `OK`, `OK <payload>`, `EMPTY`, `ERR <message>`, or bare JSON.

use std::fmt::Display;

use bytes::{Bytes, BytesMut};

use super::codec;

/// One answer. A payload goes out as it was stored, also where it came in through another protocol and is not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Payload(Bytes),
    Empty,
    Json(String),
    Error(String),
}

impl Answer {
    pub(super) fn error(error: impl Display) -> Self {
        Self::Error(error.to_string())
    }

    /// Puts the frame behind what `out` already has.
    pub(super) fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Done => codec::encode("OK", b"", out),
            Self::Payload(payload) => codec::encode("OK ", payload, out),
            Self::Empty => codec::encode("EMPTY", b"", out),
            Self::Json(json) => codec::encode("", json.as_bytes(), out),
            Self::Error(message) => codec::encode("ERR ", message.as_bytes(), out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_look_like_those_of_the_original() {
        for (answer, text) in [
            (Answer::Done, "OK"),
            (Answer::Payload(Bytes::from_static(b"hello ")), "OK hello "),
            (Answer::Payload(Bytes::new()), "OK "),
            (Answer::Empty, "EMPTY"),
            (Answer::Json("{}".to_owned()), "{}"),
            (Answer::error("unknown command"), "ERR unknown command"),
        ] {
            let mut frame = BytesMut::new();
            answer.encode(&mut frame);
            assert_eq!(&frame[..4], u32::try_from(text.len()).unwrap().to_le_bytes());
            assert_eq!(&frame[4..], text.as_bytes());
        }
    }
}
