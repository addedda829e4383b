//! The body of a `Read`'s response. tonic encodes a message into a buffer of its own, and a page of stored batches would be
//! copied twice on its way to the socket: into one piece, and into that buffer. Here a message is a few bytes of its own, and
//! behind them the batches where the log's reader has put them.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _, stream};
use http_body::Frame;
use http_body_util::StreamBody;
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Response};

use super::counted;
use crate::node::budget::Share;
use crate::node::proto::v1::ReadResponse;

/// Number of the field `batches` of a `ReadResponse`.
const BATCHES: u32 = 2;
/// Bytes in front of a message of gRPC: a flag, which is 0 where it is not compressed, and its length.
const PREFIX_BYTES: usize = 5;
/// Smaller batches are copied behind each other: a piece of its own costs more than the copy.
const PIECE_BYTES_MIN: usize = 16 << 10;

/// One answer of a `Read`.
pub(super) struct Page {
    /// All of it but the batches.
    pub(super) rest: ReadResponse,
    /// The content of its field `batches`, in pieces of one batch or several. Their memory counts against the node's budget for
    /// as long as anybody has them.
    pub(super) batches: Vec<Bytes>,
}

type Pages = Pin<Box<dyn Stream<Item = Result<Page, Status>> + Send>>;

/// Carries the pages of a `Read` from the call to its response's body, as an extension of the response: they replace the
/// messages that tonic would encode.
#[derive(Clone)]
pub(super) struct PageCarrier(Arc<Mutex<Option<Pages>>>);

impl PageCarrier {
    pub(super) fn new(pages: impl Stream<Item = Result<Page, Status>> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::pin(pages)))))
    }

    fn take(&self) -> Option<Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Counts a response until the socket has taken it. One that carries pages gets them as its body.
pub(super) fn respond(mut response: Response<Body>, share: Arc<Share>) -> Response<Body> {
    match response.extensions_mut().remove::<PageCarrier>().and_then(|handed| handed.take()) {
        Some(pages) => response.map(|_| body(pages, share)),
        None => response.map(|body| counted::count_until_written(body, share)),
    }
}

fn body(pages: Pages, share: Arc<Share>) -> Body {
    let ok = stream::once(async { Err(Status::ok("")) });
    // Each page is a message. The status ends all: the stream's own error, or "ok" behind its last page.
    let frames = pages.chain(ok).scan(false, move |has_ended, page| {
        let frames = match page.and_then(|page| pieces(&page)) {
            _ if *has_ended => return std::future::ready(None),
            Ok(pieces) => {
                pieces.into_iter().map(|piece| Frame::data(piece.counted(&share))).collect::<Vec<_>>()
            }
            Err(status) => {
                *has_ended = true;
                vec![Frame::trailers(trailers(&status))]
            }
        };
        std::future::ready(Some(stream::iter(frames.into_iter().map(Ok::<_, Infallible>))))
    });
    Body::new(StreamBody::new(frames.flatten()))
}

/// Bytes of a message.
enum Piece {
    /// Bytes that were made for this message.
    Own(Bytes),
    /// A batch, whose memory is counted.
    Batch(Bytes),
}

impl Piece {
    fn counted(self, share: &Arc<Share>) -> Bytes {
        match self {
            Self::Own(bytes) => counted::count_piece(bytes, share),
            Self::Batch(bytes) => bytes,
        }
    }
}

/// A message of gRPC, its prefix included, in pieces. `ResourceExhausted` if it is longer than a prefix can say.
fn pieces(page: &Page) -> Result<Vec<Piece>, Status> {
    let batches_bytes = page.batches.iter().map(Bytes::len).sum::<usize>();
    let field_bytes = match batches_bytes {
        0 => 0, // as an empty field, which is not written
        bytes => key_len(BATCHES) + encoded_len_varint(bytes as u64) + bytes,
    };
    let message_bytes = u32::try_from(page.rest.encoded_len() + field_bytes)
        .map_err(|_| Status::resource_exhausted("a page is larger than a message of gRPC can be"))?;

    let mut pieces = Vec::new();
    let mut own = BytesMut::with_capacity(PREFIX_BYTES + message_bytes as usize - batches_bytes);
    own.put_u8(0);
    own.put_u32(message_bytes);
    page.rest.encode_raw(&mut own);
    if batches_bytes > 0 {
        encode_key(BATCHES, WireType::LengthDelimited, &mut own);
        encode_varint(batches_bytes as u64, &mut own);
    }
    for batch in &page.batches {
        if batch.len() < PIECE_BYTES_MIN {
            own.extend_from_slice(batch);
        } else {
            pieces.push(Piece::Own(own.split().freeze()));
            pieces.push(Piece::Batch(batch.clone()));
        }
    }
    pieces.push(Piece::Own(own.freeze()));
    pieces.retain(|piece| !matches!(piece, Piece::Own(own) if own.is_empty()));
    Ok(pieces)
}

/// The end of a response: its status, as gRPC over HTTP/2 writes it.
fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if let Err(unwritable) = status.add_header(&mut trailers) {
        // The words of the status cannot be a header. Those of the error say so, and the code is told all the same.
        trailers = HeaderMap::new();
        let _ = Status::new(status.code(), unwritable.message()).add_header(&mut trailers);
    }
    trailers
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::node::budget::{Budget, Purpose};

    fn whole(page: &Page) -> Vec<u8> {
        let mut all = Vec::new();
        for piece in pieces(page).unwrap() {
            match piece {
                Piece::Own(bytes) | Piece::Batch(bytes) => all.extend_from_slice(&bytes),
            }
        }
        all
    }

    proptest! {
        /// The messages are those of the generated code, whatever is in them: a client sees no difference.
        #[test]
        fn a_page_in_pieces_is_the_message_that_prost_encodes(
            sizes in proptest::collection::vec(prop_oneof![0usize..100, 16_000usize..17_000], 0..6),
            next_offset: u64,
            high_watermark: u64,
            log_start in 0u64..2,
        ) {
            let rest = ReadResponse { next_offset, high_watermark, log_start, ..ReadResponse::default() };
            let batches: Vec<_> =
                (0..).zip(&sizes).map(|(fill, size)| Bytes::from(vec![fill; *size])).collect();
            let expected = ReadResponse { batches: batches.concat().into(), ..rest.clone() };
            let found = whole(&Page { rest, batches });
            prop_assert_eq!(found[0], 0);
            prop_assert_eq!(u32::from_be_bytes(found[1..5].try_into().unwrap()) as usize, found.len() - 5);
            let decoded = ReadResponse::decode(&found[5..]).unwrap();
            prop_assert_eq!(&decoded, &expected);
            prop_assert_eq!(expected.encoded_len(), found.len() - 5);
        }
    }

    #[test]
    fn a_large_batch_is_handed_on_where_it_lies() {
        let batch = Bytes::from(vec![7; PIECE_BYTES_MIN]);
        let page = Page { rest: ReadResponse::default(), batches: vec![batch.clone(), batch.clone()] };
        let found: Vec<_> = pieces(&page)
            .unwrap()
            .into_iter()
            .filter_map(|piece| match piece {
                Piece::Batch(bytes) => Some(bytes.as_ptr()),
                Piece::Own(_) => None,
            })
            .collect();
        assert_eq!(found, [batch.as_ptr(); 2]);
    }

    #[tokio::test]
    async fn what_is_made_for_a_message_counts_until_it_is_written() {
        use http_body_util::BodyExt as _;
        let budget = Budget::new(1 << 30);
        let share = budget.share(Purpose::Reads);
        let batches = vec![Bytes::from(vec![7; 10_000])];
        let page = Page { rest: ReadResponse::default(), batches };
        let pages = stream::iter([Ok(page), Err(Status::not_found("it went"))]);
        let mut body = body(Box::pin(pages), share.clone());
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(share.held(), first.len());
        drop(first);
        assert_eq!(share.held(), 0);
        let last = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(
            (&last["grpc-status"], &last["grpc-message"]),
            (&"5".parse().unwrap(), &"it%20went".parse().unwrap())
        );
        assert!(body.frame().await.is_none(), "nothing comes behind an error");
    }

    #[tokio::test]
    async fn a_response_whose_pages_end_is_ok() {
        use http_body_util::BodyExt as _;
        let budget = Budget::new(1 << 30);
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(PageCarrier::new(stream::empty()));
        let mut body = respond(response, budget.share(Purpose::Reads).clone()).into_body();
        let last = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(last["grpc-status"], "0");
        assert!(body.frame().await.is_none());
    }
}
