//! What both ends of a connection between brokers say first.

use bytes::Bytes;

use super::frame::Frame;
use crate::node::proto::peer::Kind;
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
