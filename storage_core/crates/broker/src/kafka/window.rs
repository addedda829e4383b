//! The window of a connection: requests that are being answered, and answers that are being written, both in the order of the
//! requests.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;

use bytes::{Buf as _, Bytes};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use kafka_protocol::messages::ApiKey;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::answer::{Answer, Outcome};
use super::frame::Header;
use crate::node::budget::Held;

/// Limit on the appends of one connection that are answered at a time; the client's next ones wait in its own buffers.
const APPENDS_MAX: usize = 128;
/// Bytes of requests from which no more is taken. The request that reaches it may be of any size, so that none is too large for
/// an empty window.
const BYTES_MAX: usize = 16 << 20;
/// Pieces of an answer that are given to the socket in one call.
const PIECES_MAX: usize = 64;

/// Key of Fetch, which is answered alone, as whatever is no append.
const FETCH: i16 = ApiKey::Fetch as i16;

/// The future of a request's outcome.
pub(super) type Answering<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// A request that is being answered.
pub(super) struct Asked {
    pub(super) header: Header,
    /// When it was whole.
    pub(super) at: Instant,
    /// Counts its bytes until it is answered.
    pub(super) held: Held,
}

/// Requests that are being answered, oldest first.
pub(super) struct Window<'a> {
    requests: FuturesOrdered<Answering<'a>>,
    /// What was asked, in the same order.
    asked: VecDeque<Asked>,
    bytes: usize,
    /// A request that is no append is answered alone.
    has_other: bool,
}

impl<'a> Window<'a> {
    pub(super) fn new() -> Self {
        Self { requests: FuturesOrdered::new(), asked: VecDeque::new(), bytes: 0, has_other: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether one more request may be begun. Whatever is no append waits for those before it, and is waited for: what it may
    /// allocate is there once on each connection.
    pub(super) fn has_room(&self, is_append: bool) -> bool {
        let has_room = self.requests.len() < APPENDS_MAX && self.bytes < BYTES_MAX;
        !self.has_other && if is_append { has_room } else { self.requests.is_empty() }
    }

    /// Whether a fetch is being answered: what it waits for is of no use to a client that is gone.
    pub(super) fn is_waiting_for_records(&self) -> bool {
        self.asked.front().is_some_and(|asked| asked.header.api == FETCH)
    }

    /// Begins a request behind those that are here. It starts when the window is polled next: that first poll gives an append its
    /// place in the order of its partition.
    pub(super) fn begin(&mut self, request: Answering<'a>, asked: Asked, is_append: bool) {
        self.bytes += asked.held.bytes();
        self.asked.push_back(asked);
        self.has_other = !is_append;
        self.requests.push_back(request);
    }

    /// The oldest request and its outcome; `None` when there is no request. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Option<(Asked, Outcome)> {
        let outcome = self.requests.next().await?;
        let asked = self.asked.pop_front().expect("each request is there once");
        self.bytes -= asked.held.bytes();
        self.has_other = false;
        Some((asked, outcome))
    }
}

/// Answers that wait for the socket.
#[derive(Default)]
pub(super) struct Outbox {
    pieces: VecDeque<Bytes>,
    bytes: usize,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, answer: Answer) {
        let pieces = answer.pieces.into_iter().filter(|piece| !piece.is_empty());
        for piece in pieces {
            self.bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Waits until the socket takes some bytes, and gives it what it takes. Dropping the future loses nothing.
    pub(super) async fn write(&mut self, stream: &TcpStream) -> io::Result<()> {
        stream.writable().await?;
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(piece);
            count += 1;
        }
        match stream.try_write_vectored(&slices[..count]) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                self.advance(written);
                Ok(())
            }
            Err(problem) if problem.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(problem) => Err(problem),
        }
    }

    fn advance(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some(piece) = self.pieces.front_mut() {
            if written < piece.len() {
                piece.advance(written);
                return;
            }
            written -= piece.len();
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_socket_took_is_not_written_again() {
        let mut outbox = Outbox::default();
        outbox.push(Answer {
            pieces: vec![Bytes::from_static(b"abc"), Bytes::new(), Bytes::from_static(b"de")],
        });
        outbox.advance(2);
        assert_eq!((outbox.pieces.len(), outbox.bytes()), (2, 3));
        outbox.advance(1);
        assert_eq!(outbox.pieces.iter().map(|piece| &piece[..]).collect::<Vec<_>>(), [b"de"]);
        outbox.advance(2);
        assert!(outbox.is_empty());
    }
}
