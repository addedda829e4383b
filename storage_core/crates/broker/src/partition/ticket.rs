//! The ticket that the submitter of a batch holds until the batch is durable and readable.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use walrus_log::CommitTicket;

use crate::copies::Copies;
use crate::node::awake;
use crate::node::error::{Error, Result};
use crate::node::patience;
use crate::partition::ack::AppendAck;
use crate::partition::leader::waiting::WaitOutcome;
use crate::partition::leader::{AppendOutcome, Leader};

/// Answers for one submitted batch; dropping it takes nothing back.
pub(crate) struct Ticket(TicketState);

enum TicketState {
    Done(Result<AppendOutcome>),
    Waiting(oneshot::Receiver<Result<AppendOutcome>>),
    Later(oneshot::Receiver<Ticket>),
}

impl Ticket {
    pub(crate) fn placed(placed: Result<AppendOutcome>) -> Self {
        Self(TicketState::Done(placed))
    }

    /// The ticket of a batch in a queue.
    pub(crate) fn waiting(placed: oneshot::Receiver<Result<AppendOutcome>>) -> Self {
        Self(TicketState::Waiting(placed))
    }

    pub(crate) fn failed(error: Error) -> Self {
        Self(TicketState::Done(Err(error)))
    }

    /// The ticket of a batch whose topic is being created.
    pub(crate) fn later(ticket: oneshot::Receiver<Self>) -> Self {
        Self(TicketState::Later(ticket))
    }

    /// The ticket of a batch that another node sent for a segment that is not open here.
    pub(crate) fn moved() -> Self {
        Self(TicketState::Done(Ok(AppendOutcome::Moved)))
    }

    /// Waits until the batch is durable and readable.
    pub(crate) async fn finish(self, copies: &Arc<Copies>) -> Result<AppendAck> {
        let appended = self.finish_forwarded(copies).await?;
        appended.ok_or_else(|| Error::Internal { message: "an append was given back to nobody".to_owned() })
    }

    /// Waits until a batch of another node is durable and readable; `None` if it was not appended, for its segment is not open
    /// here.
    pub(crate) async fn finish_forwarded(self, copies: &Arc<Copies>) -> Result<Option<AppendAck>> {
        let dropped = |_| Error::Internal { message: "an append was dropped".to_owned() };
        let mut state = self.0;
        loop {
            let placed = match state {
                TicketState::Done(placed) => placed?,
                TicketState::Waiting(receiver) => receiver.await.map_err(dropped)??,
                TicketState::Later(receiver) => {
                    state = receiver.await.map_err(dropped)?.0;
                    continue;
                }
            };
            match placed {
                AppendOutcome::Moved => return Ok(None),
                AppendOutcome::Committed(ack) => return Ok(Some(ack)),
                AppendOutcome::Refused { error, leader } => {
                    copies.may_claim_end(&leader.descriptor).await?;
                    return Err(error);
                }
                AppendOutcome::Committing { ack, commit, leader, deadline } => {
                    let unknown = |error: String| Error::OutcomeUnknown {
                        what: format!("{}: {error}", leader.label()),
                    };
                    match await_acked(copies, commit, &leader, ack, deadline).await.map_err(unknown)? {
                        WaitOutcome::Acknowledged => {
                            count(copies, ack);
                            return Ok(Some(ack));
                        }
                        // Its place is in the next segment now, before what came later.
                        WaitOutcome::Carried(receiver) => state = TicketState::Waiting(receiver),
                        WaitOutcome::Unknown(why) => return Err(unknown(why.to_owned())),
                    }
                }
            }
        }
    }
}

/// Waits until an append is on w disks, without falling asleep if it is alone, of a few KiB and on quick disks.
async fn await_acked(
    copies: &Arc<Copies>,
    commit: CommitTicket,
    leader: &Arc<Leader>,
    ack: AppendAck,
    deadline: Instant,
) -> std::result::Result<WaitOutcome, String> {
    let is_soon = commit.is_better_waited_for() && !leader.is_only_copy();
    let on_disks = await_disks(copies, commit, leader, ack, deadline);
    if is_soon { awake::wait(on_disks, patience::QUORUM_SPIN).await } else { on_disks.await }
}

/// Waits until an append is on w disks, whichever they are: where the others are faster, this node's own is not waited for.
async fn await_disks(
    copies: &Arc<Copies>,
    commit: CommitTicket,
    leader: &Arc<Leader>,
    ack: AppendAck,
    deadline: Instant,
) -> std::result::Result<WaitOutcome, String> {
    let mut own = Box::pin(await_own_copy(copies.clone(), commit, leader.clone()));
    let waited = leader.await_acked(copies.cluster(), (ack.base_offset, ack.end_offset), deadline);
    let mut waited = pin!(waited);
    tokio::select! {
        biased;
        waited = &mut waited => {
            // The machine has yet to hear of the own disk.
            copies.tasks().spawn("own commit", async move { drop(own.await) }); // a failed disk says so itself
            return Ok(waited);
        }
        told = &mut own => told?,
    }
    Ok(waited.await)
}

/// Waits until an append is durable on the own disk, and tells the leader's machine.
async fn await_own_copy(
    copies: Arc<Copies>,
    commit: CommitTicket,
    leader: Arc<Leader>,
) -> std::result::Result<(), String> {
    let committed = if leader.is_only_copy() { await_durable(commit).await } else { commit.await };
    committed.map_err(|error| error.to_string())?;
    leader.note_durable(&copies);
    Ok(())
}

/// Waits until an append is durable. One that is alone is committed in this thread: the one that commits for tasks would
/// have to be woken, and then this one again, which takes about as long as the disk. Appends that came with it on its connection
/// have their turn first, so that one commit is for all of them: this thread takes nothing from the connection meanwhile.
async fn await_durable(commit: CommitTicket) -> walrus_log::Result<()> {
    if commit.is_better_waited_for() {
        tokio::task::yield_now().await;
    }
    let may_block = || Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    if !commit.is_over() && commit.is_better_waited_for() && may_block() {
        return tokio::task::block_in_place(|| commit.wait());
    }
    commit.await
}

fn count(copies: &Arc<Copies>, ack: AppendAck) {
    let metrics = copies.cluster().metrics();
    metrics.appends.inc();
    if ack.duplicate {
        metrics.duplicates.inc();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;
    use walrus_log::batch::{Batch, BatchBuilder};
    use walrus_log::{LogId, LogSpec, Options, ProducerTable, Store};
    use walrus_model::{Epoch, Offset};

    use super::*;

    /// The first of several appends that one read of a socket had brought was committed before the others were there.
    #[tokio::test(flavor = "multi_thread")]
    async fn an_append_that_commits_alone_takes_those_with_it_that_came_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), Options::small()).unwrap();
        let spec = LogSpec {
            id: LogId(uuid::Uuid::from_u128(1)),
            name: "t/0/0".to_owned(),
            base_offset: Offset(0),
            epoch: Epoch(1),
            producers: ProducerTable::new(),
            after: None,
            fsync: None,
        };
        let log = store.create_log(spec).unwrap();
        let mut builder = BatchBuilder::new();
        builder.push(None, Some(b"a"), 1, &[]);
        let mut bytes = Vec::new();
        builder.build(&mut bytes).unwrap();
        let (batch, _) = Batch::parse(&bytes).unwrap();
        let append = || {
            log.append(&batch).unwrap();
            log.committed()
        };

        let first = append();
        assert!(first.is_better_waited_for(), "nobody else waits");
        let mut first = pin!(await_durable(first));
        assert!(poll!(first.as_mut()).is_pending());
        let second = append();
        first.await.unwrap();
        assert!(second.is_over());
        assert_eq!(store.stats().commits, 1);
    }
}
