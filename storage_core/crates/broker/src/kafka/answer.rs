//! Answers as they leave: the pieces of one frame, in their order.

use bytes::{BufMut as _, Bytes, BytesMut};
use kafka_protocol::protocol::{Encodable, HeaderVersion};

use super::frame::{Header, LENGTH_BYTES};
use crate::node::error::{Error, Result};

/// Bytes of the length and the correlation in front of an answer.
const CORRELATION_END: usize = LENGTH_BYTES + 4;

/// An answer in pieces, which are written one behind the other.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) pieces: Vec<Bytes>,
}

impl Answer {
    /// The answer that a message of the codec is, in one piece.
    pub(super) fn of<M: Encodable + HeaderVersion>(
        correlation: i32,
        version: i16,
        message: &M,
    ) -> Result<Self> {
        let wrong = |problem: &dyn std::fmt::Display| Error::Internal {
            message: format!("an answer of version {version} cannot be written: {problem}"),
        };
        let size = message.compute_size(version).map_err(|problem| wrong(&problem))?;
        let mut bytes = BytesMut::with_capacity(CORRELATION_END + 1 + size);
        begin(&mut bytes, correlation, M::header_version(version) > 0);
        message.encode(&mut bytes, version).map_err(|problem| wrong(&problem))?;
        let length = i32::try_from(bytes.len() - LENGTH_BYTES).map_err(|_| wrong(&"it is too long"))?;
        bytes[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        Ok(Self { pieces: vec![bytes.freeze()] })
    }
}

/// What becomes of a request.
pub(super) enum Outcome {
    Answered(Answer),
    /// The client wants no answer.
    Silent,
    /// The client is to notice that something went wrong, and there is no answer that could say so.
    Closed {
        why: String,
    },
}

impl Outcome {
    /// The outcome of a request that is answered with a message of the codec.
    pub(super) fn of(header: Header, message: &(impl Encodable + HeaderVersion)) -> Self {
        Answer::of(header.correlation, header.version, message).into()
    }
}

impl From<Result<Answer>> for Outcome {
    fn from(answer: Result<Answer>) -> Self {
        answer.map_or_else(|error| Self::Closed { why: error.to_string() }, Self::Answered)
    }
}

/// Writes the header of an answer, with 0 in the place of its length.
pub(super) fn begin(bytes: &mut BytesMut, correlation: i32, is_flexible: bool) {
    bytes.put_i32(0);
    bytes.put_i32(correlation);
    if is_flexible {
        bytes.put_u8(0); // no tagged fields
    }
}
