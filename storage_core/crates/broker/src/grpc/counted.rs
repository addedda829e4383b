//! Bodies that count against the node's budget while gRPC holds them: a message while it comes in, an answer until it is written.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use tonic::Status;
use tonic::body::Body;

use super::status::status_of;
use crate::node::budget::{Held, Share, counted};
use crate::node::error::Result;
use crate::node::patience;

/// Smaller pieces of answers do not count: HTTP/2 keeps at most 400 KiB of them for each stream.
const PIECE_BYTES_MIN: usize = 4 << 10;
/// Limit on a question about a service's health, which is little more than the service's name.
const SMALL_BYTES_MAX: usize = 1 << 10;
/// Bytes in front of a message of gRPC: a flag and its length.
const PREFIX_BYTES: usize = 5;

/// An answer's body, each piece of which counts until the socket has taken it.
pub(super) fn count_until_written(body: Body, share: Arc<Share>) -> Body {
    Body::new(body.map_frame(move |frame| frame.map_data(|piece: Bytes| count_piece(piece, &share))))
}

/// One piece of an answer, which counts until the socket has taken it.
pub(super) fn count_piece(piece: Bytes, share: &Arc<Share>) -> Bytes {
    let bytes = piece.len();
    if bytes < PIECE_BYTES_MIN { piece } else { counted(piece, Arc::new(share.hold(bytes))) }
}

/// A request's body, which counts as far as its last message has come in, and is not read while there is no room.
pub(super) fn count_while_received(body: Body, share: &Arc<Share>) -> Body {
    let held = share.hold(0);
    Body::new(CountedBody { body, share: share.clone(), held, meter: Meter::default(), room: None })
}

/// A request's body that needs no room, for it may not be longer than [`SMALL_BYTES_MAX`].
pub(super) fn limit_to_small(body: Body) -> Body {
    Body::new(Limited::new(body, SMALL_BYTES_MAX))
}

type Room = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// The body of a request that comes in, with what it counts.
struct CountedBody {
    body: Body,
    share: Arc<Share>,
    held: Held,
    meter: Meter,
    /// The wait for room, while there is none.
    room: Option<Room>,
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<http_body::Frame<Bytes>, Status>>> {
        loop {
            if let Some(room) = &mut self.room {
                let has_room = ready!(room.as_mut().poll(context));
                self.room = None;
                if let Err(full) = has_room {
                    return Poll::Ready(Some(Err(status_of(&full))));
                }
            } else if !self.share.has_room() {
                let share = self.share.clone();
                self.room = Some(Box::pin(async move { share.room(patience::MESSAGE_MEMORY).await }));
                continue;
            }
            let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
            if let Some(Ok(frame)) = &frame
                && let Some(data) = frame.data_ref()
            {
                let unfinished = self.meter.take(data);
                self.held.set(unfinished);
            }
            return Poll::Ready(frame);
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

/// Measures how much of a message has come in, in a stream of messages that is cut anywhere.
#[derive(Default)]
struct Meter {
    prefix: [u8; PREFIX_BYTES],
    /// Bytes received of the message that comes in now, prefix included.
    received: usize,
    /// Its whole size, once its prefix is there.
    size: Option<usize>,
}

impl Meter {
    /// Takes in what came; says how many bytes of the last message are here without its end.
    fn take(&mut self, mut data: &[u8]) -> usize {
        while !data.is_empty() {
            let Some(size) = self.size else {
                self.prefix[self.received] = data[0];
                self.received += 1;
                data = &data[1..];
                if self.received == PREFIX_BYTES {
                    let [_, length @ ..] = self.prefix;
                    self.size = Some(PREFIX_BYTES + u32::from_be_bytes(length) as usize);
                    self.finish();
                }
                continue;
            };
            let bytes = data.len().min(size - self.received);
            self.received += bytes;
            data = &data[bytes..];
            self.finish();
        }
        self.received
    }

    fn finish(&mut self) {
        if self.size == Some(self.received) {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_message_counts_as_far_as_it_has_come_in(
            lengths in proptest::collection::vec(0usize..40, 1..10),
            cuts in proptest::collection::vec(1usize..20, 1..20),
        ) {
            let mut sent = Vec::new();
            let mut ends = vec![0];
            for length in lengths {
                sent.push(0);
                sent.extend(u32::try_from(length).unwrap().to_be_bytes());
                sent.extend(std::iter::repeat_n(7, length));
                ends.push(sent.len());
            }
            let (mut meter, mut at) = (Meter::default(), 0);
            let mut cuts = cuts.iter().cycle();
            while at < sent.len() {
                let to = (at + cuts.next().unwrap()).min(sent.len());
                let begun = ends.iter().rev().find(|end| **end <= to).unwrap();
                prop_assert_eq!(meter.take(&sent[at..to]), to - begun);
                at = to;
            }
        }
    }
}
