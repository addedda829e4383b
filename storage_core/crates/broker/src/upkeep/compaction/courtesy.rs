//! The courtesy of a compaction: whoever appends and reads comes first. The pass slows down while others use this node's disk, and goes
//! as fast as it can while nobody does.

use std::time::{Duration, Instant};

use crate::copies::Copies;
use crate::copies::pace::Pace;
use crate::node::patience;

/// Others that move fewer bytes in a second are not in the way of anybody.
const QUIET_BYTES_PER_SECOND: u64 = 4 << 20;
/// Least pace of a pass, so that it ends some day: bytes that it reads in a second.
const LEAST_BYTES_PER_SECOND: u64 = 16 << 20;
/// A pass reads at most so much less than others move.
const SHARE: u64 = 8;

/// What others have done on this node, and how fast a pass may read beside them.
pub(super) struct Courtesy {
    pace: Pace,
    looked: Instant,
    /// Bytes that others had moved at that time, as far as it is known.
    moved: u64,
    /// Bytes that the pass has written itself.
    written: u64,
    bytes_per_second: Option<u64>,
}

impl Courtesy {
    pub(super) fn new(copies: &Copies) -> Self {
        let moved = moved_here(copies);
        Self { pace: Pace::new(), looked: Instant::now(), moved, written: 0, bytes_per_second: None }
    }

    pub(super) fn note_written(&mut self, bytes: u64) {
        self.written += bytes;
    }

    /// Waits as long as the bytes that were read may take beside what others do. Blocks the calling thread.
    pub(super) fn give_way(&mut self, copies: &Copies, bytes: u64) {
        let elapsed = self.looked.elapsed();
        if elapsed >= patience::COURTESY_LOOK {
            let moved = moved_here(copies);
            let by_others =
                moved.saturating_sub(self.moved).saturating_sub(std::mem::take(&mut self.written));
            (self.moved, self.looked) = (moved, Instant::now());
            self.bytes_per_second = pace_beside(by_others, elapsed);
        }
        if let Some(bytes_per_second) = self.bytes_per_second {
            std::thread::sleep(self.pace.take(Instant::now(), bytes, bytes_per_second));
        }
    }
}

/// Bytes a second that a pass may read while others move so many in a time; `None`: as many as it can.
fn pace_beside(by_others: u64, elapsed: Duration) -> Option<u64> {
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    let per_second = by_others.saturating_mul(1_000) / millis;
    (per_second > QUIET_BYTES_PER_SECOND).then(|| LEAST_BYTES_PER_SECOND.max(per_second / SHARE))
}

/// Bytes that were written to the logs of this node, and read from them for clients and other nodes.
fn moved_here(copies: &Copies) -> u64 {
    copies.bucket().store().stats().bytes_written + copies.cluster().metrics().read_bytes.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_as_fast_as_it_can_alone_and_takes_a_share_beside_others_but_never_stands_still() {
        let beside = |megabytes: u64| pace_beside(megabytes << 20, Duration::from_secs(1));
        assert_eq!(beside(0), None);
        assert_eq!(beside(4), None);
        assert_eq!(beside(5), Some(16 << 20));
        assert_eq!(beside(800), Some(100 << 20));
        assert_eq!(pace_beside(40 << 20, Duration::from_millis(50)), Some(100 << 20));
        assert_eq!(pace_beside(u64::MAX, Duration::ZERO), Some(u64::MAX / SHARE));
    }
}
