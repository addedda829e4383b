//! A log together with its committer: every promise about a log needs both.

use std::sync::Arc;

use crate::commit::committer::Committer;
use crate::log::queues::Queues;
use crate::log::state::LogState;
use crate::resources::Resources;

/// A log of a store with the committer of that store. Tickets hold one: it outlives the handles of its log, and keeps
/// no thread of the store running.
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
