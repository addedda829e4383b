//! A log together with what commits it: whatever promises something of a log needs both.

use std::sync::Arc;

use crate::commit::committer::Committer;
use crate::log::queues::Queues;
use crate::log::state::LogState;
use crate::resources::Resources;

/// A log of a store, as the committer of its store has it. Tickets hold one: it outlives the handles of its log, and keeps no
/// thread of the store running.
pub(crate) struct Member {
    pub(crate) log: Arc<LogState>,
    pub(crate) committer: Arc<Committer>,
}

impl Member {
    pub(crate) fn resources(&self) -> &Resources {
        &self.committer.resources
    }

    pub(crate) fn queues(&self) -> &Queues {
        &self.committer.queues
    }
}
