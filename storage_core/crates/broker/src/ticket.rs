//! What the submitter of a batch holds until the batch is durable and readable.

use std::sync::Arc;

use tokio::sync::oneshot;
use walrus_log::CommitTicket;

use crate::broker::{AppendAck, Broker};
use crate::error::{Error, Result};
use crate::leader::Leader;

/// What became of a batch.
pub(crate) enum Placed {
    /// Durable on the leader's node.
    Committed(AppendAck),
    /// In the log of this node's leader, on its way to the disk.
    Committing { ack: AppendAck, commit: CommitTicket, leader: Arc<Leader> },
    /// It was meant for a segment that is not open here.
    Moved,
}

/// Answers for one submitted batch; dropping it takes nothing back.
pub(crate) struct Ticket(TicketState);

enum TicketState {
    Done(Result<Placed>),
    Waiting(oneshot::Receiver<Result<Placed>>),
    Later(oneshot::Receiver<Ticket>),
}

impl Ticket {
    pub(crate) fn placed(placed: Result<Placed>) -> Self {
        Self(TicketState::Done(placed))
    }

    /// For a batch in a queue.
    pub(crate) fn waiting(placed: oneshot::Receiver<Result<Placed>>) -> Self {
        Self(TicketState::Waiting(placed))
    }

    pub(crate) fn failed(error: Error) -> Self {
        Self(TicketState::Done(Err(error)))
    }

    /// For a batch whose topic is being created.
    pub(crate) fn later(ticket: oneshot::Receiver<Self>) -> Self {
        Self(TicketState::Later(ticket))
    }

    /// For a batch of another node whose segment is not open here.
    pub(crate) fn moved() -> Self {
        Self(TicketState::Done(Ok(Placed::Moved)))
    }

    /// Waits until the batch is durable and readable.
    pub(crate) async fn finish(self, broker: &Broker) -> Result<AppendAck> {
        let appended = self.finish_forwarded(broker).await?;
        appended.ok_or_else(|| Error::Internal { message: "an append was given back to nobody".to_owned() })
    }

    /// The same for a batch of another node; `None`: it was not appended, its segment is not open here.
    pub(crate) async fn finish_forwarded(self, broker: &Broker) -> Result<Option<AppendAck>> {
        let dropped = |_| Error::Internal { message: "an append was dropped".to_owned() };
        let mut state = self.0;
        let placed = loop {
            match state {
                TicketState::Done(placed) => break placed?,
                TicketState::Waiting(receiver) => break receiver.await.map_err(dropped)??,
                TicketState::Later(receiver) => state = receiver.await.map_err(dropped)?.0,
            }
        };
        match placed {
            Placed::Moved => Ok(None),
            Placed::Committed(ack) => Ok(Some(ack)),
            Placed::Committing { ack, commit, leader } => {
                let unknown = |error| Error::OutcomeUnknown { what: format!("{}: {error}", leader.label()) };
                commit.await.map_err(unknown)?;
                leader.note_durable();
                let metrics = broker.metrics();
                metrics.appends.inc();
                if ack.duplicate {
                    metrics.duplicates.inc();
                }
                Ok(Some(ack))
            }
        }
    }
}
