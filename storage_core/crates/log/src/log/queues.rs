//! The queues in which the logs of a store ask for work: a log knows the queues, and not who works them off.

use super::chores::Chores;
use super::commit_queue::CommitQueue;

/// The queues of a store.
#[derive(Default)]
pub(crate) struct Queues {
    pub(crate) commits: CommitQueue,
    pub(crate) chores: Chores,
}
