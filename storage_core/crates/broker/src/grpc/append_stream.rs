//! A pipelined stream of appends: submitted in order, answered in order, a bounded window in flight.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::append::batch_of;
use super::status::{error_message, status_of};
use crate::broker::Broker;
use crate::error::{Error, Result};
use crate::proto::v1::{AppendRequest, AppendResponse};

/// Appends of one stream in flight; the client's next ones wait in its own send window.
const APPENDS_MAX: usize = 128;
/// Bytes in flight. One append more always fits, so that no batch is too large for an empty window.
const BYTES_MAX: usize = 16 << 20;

type Answers = mpsc::Sender<Result<AppendResponse, Status>>;

/// Takes appends off `requests` until the client ends the stream or goes, or the node stops.
pub(super) async fn run(broker: Broker, mut requests: Streaming<AppendRequest>, answers: Answers) {
    let stop = broker.shutdown_signal().clone();
    let mut window = Window::default();
    let mut ended: Option<Option<Status>> = None;
    while ended.is_none() || !window.is_empty() {
        tokio::select! {
            biased;
            () = answers.closed() => return, // the client is gone
            Some(answer) = window.next() => if answers.send(Ok(answer)).await.is_err() {
                return;
            },
            request = requests.message(), if ended.is_none() && window.has_room() => match request {
                Ok(Some(request)) => window.submit(&broker, request),
                Ok(None) => ended = Some(None),
                Err(status) => ended = Some(Some(status)),
            },
            () = stop.cancelled(), if ended.is_none() => {
                ended = Some(Some(status_of(&Error::Unavailable { what: "this node is stopping".to_owned() })));
            }
        }
    }
    if let Some(Some(status)) = ended {
        let _ = answers.send(Err(status)).await; // a client that is gone misses nothing
    }
}

/// Appends in flight, oldest first.
#[derive(Default)]
struct Window {
    appends: FuturesOrdered<Pin<Box<dyn Future<Output = AppendResponse> + Send>>>,
    /// Their sizes.
    bytes_each: VecDeque<usize>,
    bytes: usize,
}

impl Window {
    fn is_empty(&self) -> bool {
        self.appends.is_empty()
    }

    fn has_room(&self) -> bool {
        self.appends.len() < APPENDS_MAX && self.bytes < BYTES_MAX
    }

    /// The append starts when the window is polled next, after those submitted before it: that first poll is what
    /// puts it in its place in the log.
    fn submit(&mut self, broker: &Broker, request: AppendRequest) {
        let correlation = request.correlation;
        let checked = batch_of(request);
        let bytes = checked.as_ref().map_or(0, |(_, batch)| batch.len());
        self.bytes_each.push_back(bytes);
        self.bytes += bytes;
        let broker = broker.clone();
        self.appends.push_back(Box::pin(async move {
            let appended = match checked {
                Ok((to, batch)) => broker.append(&to, batch).await,
                Err(problem) => Err(problem),
            };
            match appended {
                Ok(ack) => AppendResponse {
                    correlation,
                    base_offset: ack.base_offset,
                    end_offset: ack.end_offset,
                    duplicate: ack.duplicate,
                    error: None,
                },
                Err(problem) => AppendResponse {
                    correlation,
                    error: Some(error_message(&problem)),
                    ..AppendResponse::default()
                },
            }
        }));
    }

    /// The oldest append's answer; `None` when none is in flight.
    async fn next(&mut self) -> Option<AppendResponse> {
        let answer = self.appends.next().await?;
        self.bytes -= self.bytes_each.pop_front().unwrap_or(0);
        Some(answer)
    }
}
