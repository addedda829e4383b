//! Answers of the text protocol: `OK`, `OK <payload>`, `EMPTY`, `ERR <message>`, or bare JSON.

use std::fmt::Display;

use bytes::{Bytes, BytesMut};

use super::codec;

/// An answer to a request. A payload goes out as it was stored, also where it came in through another protocol and is not UTF-8.
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
    use super::super::codec::BadFrame;
    use super::*;
    use crate::node::error::Error;
    use crate::node::obstacle::Obstacle;

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

    /// Clients know the kind of an error by its first words, since the protocol has no field for it: those of the
    /// Python client's `errors.from_text` stand here, and must not change.
    #[test]
    fn first_words_tell_the_kind() {
        let text = || "t".to_owned();
        for (error, words) in [
            (Obstacle::Told { words: text() }.into(), "unavailable: "),
            (Error::Timeout { what: text(), waited_ms: 1 }, "timed out after "),
            (Error::NotLeader { key: text(), hint: None }, "NotLeaderForPartition: "),
            (Error::NoSpace { node: 1 }, "no space left "),
            (Error::Storage { node: 1, message: text() }, "storage of node "),
            (Error::OutcomeUnknown { what: text() }, "outcome unknown: "),
            (Error::UnknownTopic { topic: text() }, "unknown topic "),
            (Error::InvalidTopic { topic: text(), problem: text() }, "invalid topic name "),
            (Error::Corrupted { node: 1, key: text(), start: 0, end: 1 }, "offsets ["),
            (Error::DataLoss { key: text(), start: 0, end: 1 }, "offsets ["),
        ] {
            assert!(error.to_string().starts_with(words), "{error}");
        }
        assert_eq!(BadFrame::InvalidLength { length: 0, bytes_max: 1 }.to_string(), "invalid frame length");
        assert_eq!(BadFrame::NotUtf8.to_string(), "invalid utf-8");
    }
}
