//! The thread that commits for tasks and for schedules; callers that wait in threads commit themselves.

use std::time::Duration;

use super::committer::{Committer, UNSYNCED_WRITE_BYTES};
use crate::log::commit_queue::Call;

/// How long memory that a burst of appends needed is kept for the next burst.
const MEMORY_KEPT: Duration = Duration::from_secs(10);

/// Commits until the store closes.
pub(crate) fn run(committer: &Committer) {
    let mut is_trimmed = true;
    loop {
        match committer.queues.commits.wait((!is_trimmed).then_some(MEMORY_KEPT)) {
            Call::Commit => {
                committer.commit_in_turn(UNSYNCED_WRITE_BYTES);
                is_trimmed = false;
            }
            Call::Idle => {
                // No burst came again, so the memory that the last one needed is given back.
                committer.resources.lately.forget();
                committer.resources.pool.trim();
                is_trimmed = true;
            }
            Call::Stop => return,
        }
    }
}
