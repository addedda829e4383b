//! One connection: requests are written as they come, and answers read in their order.

use std::io::{BufReader, IoSlice, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::{Buf as _, Bytes, BytesMut};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable as _, Encodable as _, HeaderVersion as _, Request, StrBytes};

const CLIENT_ID: &str = "walrus-bench";
const FRAME_BYTES_MAX: usize = 256 << 20;
const READ_BYTES: usize = 64 << 10;
/// For an answer; a rebalance holds them back longest.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);

/// A connection to a broker.
pub(crate) struct Connection {
    input: BufReader<TcpStream>,
    correlation: i32,
    /// Room for the longest answer so far.
    answer: Vec<u8>,
}

impl Connection {
    pub(crate) fn to(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("no broker at {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
        let input = BufReader::with_capacity(READ_BYTES, stream);
        Ok(Self { input, correlation: 0, answer: Vec::new() })
    }

    /// A second handle of the same connection, for a thread that only reads answers while this one writes.
    pub(crate) fn reading_half(&self) -> Result<Self> {
        let stream = self.input.get_ref().try_clone()?;
        let input = BufReader::with_capacity(READ_BYTES, stream);
        Ok(Self { input, correlation: self.correlation, answer: Vec::new() })
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn ask<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response> {
        let mut body = BytesMut::new();
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.next_correlation())
            .with_client_id(Some(StrBytes::from_static_str(CLIENT_ID)));
        header.encode(&mut body, R::header_version(version))?;
        request.encode(&mut body, version)?;
        self.send(&body, &[])?;
        let mut answer = Bytes::copy_from_slice(self.receive()?);
        ResponseHeader::decode(&mut answer, R::Response::header_version(version))?;
        R::Response::decode(&mut answer, version)
    }

    /// Sends a request whose bytes, from its header on, are these two one behind the other.
    pub(crate) fn send(&mut self, head: &[u8], tail: &[u8]) -> Result<()> {
        let length = i32::try_from(head.len() + tail.len())?.to_be_bytes();
        let mut parts = [IoSlice::new(&length), IoSlice::new(head), IoSlice::new(tail)];
        let mut left = &mut parts[..];
        let stream = self.input.get_mut();
        while !left.is_empty() {
            let written = stream.write_vectored(left)?;
            ensure!(written > 0, "the broker closed the connection");
            IoSlice::advance_slices(&mut left, written);
        }
        Ok(())
    }

    /// The next answer, from its header on.
    pub(crate) fn receive(&mut self) -> Result<&[u8]> {
        let mut length = [0; 4];
        self.input.read_exact(&mut length).context("the broker closed the connection")?;
        let length = usize::try_from(i32::from_be_bytes(length))?;
        ensure!(length <= FRAME_BYTES_MAX, "an answer of {length} bytes");
        if self.answer.len() < length {
            self.answer.resize(length, 0);
        }
        let answer = &mut self.answer[..length];
        self.input.read_exact(answer).context("the broker closed the connection")?;
        Ok(answer)
    }

    /// Ends the connection, for a thread that waits for answers as well.
    pub(crate) fn close(&self) -> Result<()> {
        Ok(self.input.get_ref().shutdown(Shutdown::Both)?)
    }

    pub(crate) fn next_correlation(&mut self) -> i32 {
        self.correlation += 1;
        self.correlation
    }
}

/// The header of a request whose body is put together by hand (version 1, which has no tagged fields).
pub(crate) fn put_header(out: &mut Vec<u8>, api: i16, version: i16, correlation: i32) {
    out.extend_from_slice(&api.to_be_bytes());
    out.extend_from_slice(&version.to_be_bytes());
    out.extend_from_slice(&correlation.to_be_bytes());
    put_text(out, CLIENT_ID);
}

#[expect(clippy::cast_possible_truncation, reason = "names of topics are short")]
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as i16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Skips a text of an answer that is taken apart by hand.
pub(crate) fn skip_text(answer: &mut &[u8]) -> Result<()> {
    let length = usize::try_from(answer.try_get_i16()?)?;
    ensure!(answer.remaining() >= length, "the answer ends within a name");
    answer.advance(length);
    Ok(())
}
