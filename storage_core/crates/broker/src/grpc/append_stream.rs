//! A pipelined stream of appends: they are submitted in order and answered in order, with a bounded window in flight.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::append::{append, batch_of};
use super::status::{error_message, status_of};
use crate::broker::Broker;
use crate::edge::Principal;
use crate::node::awake;
use crate::node::budget::Purpose;
use crate::node::error::Result;
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::node::proto::v1::{AppendRequest, AppendResponse};

/// Limit on the appends of one stream in flight; the client's next ones wait in its own send window.
const APPENDS_MAX: usize = 128;
/// Bytes in flight from which no more is taken. The append that reaches it may be of any size, so that no batch is too large for
/// an empty window.
const BYTES_MAX: usize = 16 << 20;

type Answers = mpsc::Sender<Result<AppendResponse, Status>>;

/// What happens next on a stream.
enum Event {
    ClientGone,
    Answered(AppendResponse),
    Requested(Result<Option<AppendRequest>, Status>),
    Stopping,
}

/// Takes appends of a principal off `requests` until the client ends the stream or goes, or the node stops.
pub(super) async fn run(
    broker: Broker,
    principal: Principal,
    mut requests: Streaming<AppendRequest>,
    answers: Answers,
) {
    let stop = broker.cluster().tasks().shutdown().clone();
    let mut window = Window::default();
    let mut turns = Turns::default();
    let mut ended: Option<Option<Status>> = None;
    while ended.is_none() || !window.is_empty() {
        let event = async {
            tokio::select! {
                biased;
                () = answers.closed() => Event::ClientGone,
                Some(answer) = window.next() => Event::Answered(answer),
                request = requests.message(), if ended.is_none() && window.has_room() => Event::Requested(request),
                () = stop.cancelled(), if ended.is_none() => Event::Stopping,
            }
        };
        let event =
            if turns.is_next_soon() { awake::wait(event, patience::APPEND_TURN).await } else { event.await };
        match event {
            Event::ClientGone => return,
            Event::Answered(answer) => {
                if answers.send(Ok(answer)).await.is_err() {
                    return;
                }
                if window.is_empty() {
                    turns.all_answered(Instant::now());
                }
            }
            Event::Requested(Ok(Some(request))) => {
                turns.requested(Instant::now());
                window.submit(&broker, &principal, request);
            }
            Event::Requested(Ok(None)) => ended = Some(None),
            Event::Requested(Err(status)) => ended = Some(Some(status)),
            Event::Stopping => {
                ended = Some(Some(status_of(&Obstacle::Stopping.into())));
            }
        }
    }
    if let Some(Some(status)) = ended {
        let _ = answers.send(Err(status)).await; // a client that is gone misses nothing
    }
}

/// Keeps track of how soon a client that waits for each answer is back with its next append.
#[derive(Default)]
struct Turns {
    /// Since when nothing is in flight and the client is waited for.
    answered: Option<Instant>,
    was_soon: bool,
}

impl Turns {
    fn all_answered(&mut self, at: Instant) {
        self.answered = Some(at);
    }

    fn requested(&mut self, at: Instant) {
        if let Some(answered) = self.answered.take() {
            self.was_soon = at - answered < patience::APPEND_TURN;
        }
    }

    /// Whether the client is waited for, and took its last turn so soon that falling asleep does not pay.
    fn is_next_soon(&self) -> bool {
        self.was_soon && self.answered.is_some()
    }
}

/// Appends in flight, oldest first.
#[derive(Default)]
struct Window {
    appends: FuturesOrdered<Pin<Box<dyn Future<Output = AppendResponse> + Send>>>,
    /// The sizes of their batches.
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

    /// Puts an append into the window. It starts when the window is polled next, after those submitted before it: that first
    /// poll is what puts it in its place in the log.
    fn submit(&mut self, broker: &Broker, principal: &Principal, request: AppendRequest) {
        let correlation = request.correlation;
        let checked = batch_of(request, principal);
        let bytes = checked.as_ref().map_or(0, |(_, batch)| batch.len());
        self.bytes_each.push_back(bytes);
        self.bytes += bytes;
        let (broker, principal) = (broker.clone(), principal.clone());
        let held = broker.cluster().share(Purpose::Appends).hold(bytes);
        self.appends.push_back(Box::pin(async move {
            let _held = held;
            let appended = match checked {
                Ok((to, batch)) => append(&broker, &principal, &to, batch).await,
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_client_is_expected_soon_where_it_was_soon_the_last_time() {
        let (mut turns, mut now) = (Turns::default(), Instant::now());
        turns.requested(now);
        turns.all_answered(now);
        assert!(!turns.is_next_soon(), "nothing is known of its pace");
        for (pause, is_soon) in
            [(patience::APPEND_TURN / 2, true), (patience::APPEND_TURN, false), (Duration::ZERO, true)]
        {
            now += pause;
            turns.requested(now);
            assert!(!turns.is_next_soon(), "it has taken its turn");
            turns.all_answered(now);
            assert_eq!(turns.is_next_soon(), is_soon, "after {pause:?}");
        }
    }
}
