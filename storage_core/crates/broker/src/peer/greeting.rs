//! What both ends of a connection between brokers say to each other: greetings, and the errors of answers.

use bytes::Bytes;
use prost::Message as _;

use super::frame::Frame;
use crate::node::error::Error;
use crate::node::proto::peer::{ErrorAnswer, Kind};
use crate::node::secret::NONCE_BYTES;

/// A nonce of one end, for one connection.
pub(crate) fn nonce() -> std::io::Result<Bytes> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(std::io::Error::other)?;
    Ok(Bytes::copy_from_slice(&nonce))
}

/// A frame of the exchange of greetings.
pub(crate) fn greeting(kind: Kind, id: u64, message: &impl prost::Message) -> Frame {
    let kind = u8::try_from(kind as i32).expect("kinds fit a byte");
    Frame { kind, id, payload: message.encode_to_vec().into() }
}

/// An error as an answer brings it, with all its facts.
pub(crate) fn encode_error(error: &Error) -> Bytes {
    let answer = ErrorAnswer {
        reason: error.reason().to_owned(),
        message: error.to_string(),
        retryable: error.retryable(),
        error_json: serde_json::to_vec(error).expect("errors are plain data").into(),
    };
    answer.encode_to_vec().into()
}

/// The error that an answer brings; one that only a newer broker knows keeps its name.
pub(crate) fn decode_error(payload: Bytes) -> Error {
    let Ok(ErrorAnswer { reason, message, retryable, error_json }) = ErrorAnswer::decode(payload) else {
        return Error::Internal { message: "a peer's error is not understood".to_owned() };
    };
    serde_json::from_slice(&error_json).unwrap_or(Error::Foreign { reason, message, retryable })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_cross_the_wire_and_unknown_ones_keep_their_name() {
        let error = Error::OutOfOrderSequence { producer_id: 3, expected: 4, got: 7 };
        assert_eq!(decode_error(encode_error(&error)), error);

        let newer = ErrorAnswer {
            reason: "Throttled".to_owned(),
            message: "slow down".to_owned(),
            retryable: true,
            error_json: r#"{"Throttled":{"ms":3}}"#.into(),
        };
        let error = decode_error(newer.encode_to_vec().into());
        assert!(error.retryable());
        assert_eq!((error.reason(), error.to_string().as_str()), ("Throttled", "slow down"));
        assert_eq!(decode_error(Bytes::from_static(b"\xff\xff")).reason(), "Internal");
    }
}
