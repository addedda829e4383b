//! The background thread: it prepares space ahead of writers, writes footers and synced marks, zeroes freed slots,
//! compacts the journal and applies retention. It stands above the commit, since retention trims in the commit's turn.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::member::Member;
use crate::commit::committer::Committer;
use crate::error::Error;
use crate::log::chores::Chore;

/// Does the chores of the store until it closes.
pub(super) fn run(committer: &Arc<Committer>) {
    while let Some(chore) = committer.queues.chores.next() {
        do_chore(committer, chore);
    }
}

fn do_chore(committer: &Arc<Committer>, chore: Chore) {
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
                let written =
                    block.write_footer(producers.map(|producers| producers.encode()), &resources.indexes);
                report("footer", written.map_err(|e| block.slots.file.error("write", e)));
            }
        }
        Chore::Upkeep => {
            report("reclaim", registry.reclaim(resources));
            report("journal", resources.journal.tend());
        }
        Chore::MarkBusy => marks.write_busy(registry),
        Chore::MarkAll => marks.write_all(registry),
        Chore::AgedRetention => {
            if registry.ask_retention_of_aged() {
                queues.chores.apply_aged_retention_later();
            }
        }
    }
}

/// Logs an error. A failed chore is tried again later, or the writer does its work itself and returns the error.
fn report(what: &str, result: Result<(), Error>) {
    match result {
        // Each writer that needs space on a full disk gets that error itself.
        Ok(()) | Err(Error::NoSpace { .. } | Error::Poisoned { .. }) => {}
        Err(error) => tracing::warn!(what, %error, "background work failed"),
    }
}
