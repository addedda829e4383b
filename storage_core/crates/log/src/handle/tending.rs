//! The background thread: space ahead of writers, footers, freed slots, synced marks, the journal's compaction,
//! retention. It stands above the commit, for what retention lets go is trimmed in the commit's turn.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::member::Member;
use crate::commit::committer::Committer;
use crate::error::Error;
use crate::log::chores::Chore;

/// Works the queue off until the store closes.
pub(super) fn run(committer: &Arc<Committer>) {
    while let Some(chore) = committer.queues.chores.next() {
        work_off(committer, chore);
    }
}

fn work_off(committer: &Arc<Committer>, chore: Chore) {
    let Committer { resources, queues, registry, marks, .. } = &**committer;
    match chore {
        Chore::Retention(id) => {
            if let Some(log) = registry.get(id) {
                let member = Member { log, committer: Arc::clone(committer) };
                report("retention", member.apply_retention());
            }
        }
        Chore::Extend(block, written) => {
            if !block.freed.load(Ordering::Acquire) {
                let prepared = block.space.prepare_ahead(written);
                report("space ahead", prepared.map_err(|e| block.slots.file.error("grow", e)));
            }
            block.extending.store(false, Ordering::Release);
        }
        Chore::Footer(block, producers) => {
            if !block.freed.load(Ordering::Acquire) {
                let written = block.write_footer(producers);
                report("footer", written.map_err(|e| block.slots.file.error("write", e)));
            }
        }
        Chore::LookAround => {
            report("reclaim", registry.reclaim(resources));
            report("journal", resources.journal.tend());
        }
        Chore::MarkBusy => marks.write_busy(registry),
        Chore::MarkAll => marks.write_all(registry),
        Chore::AgedRetention => {
            if registry.ask_retention_of_aged() {
                queues.chores.apply_ages_later();
            }
        }
    }
}

/// What fails here is tried again, or done by the writer itself, who then has the error.
fn report(what: &str, result: Result<(), Error>) {
    match result {
        // A full disk is told to each writer that needs space.
        Ok(()) | Err(Error::NoSpace { .. } | Error::Poisoned { .. }) => {}
        Err(error) => tracing::warn!(what, %error, "background work failed"),
    }
}
