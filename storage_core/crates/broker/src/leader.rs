//! The leader of one open segment: its log, its high watermark, and how full it is. Appends come through the
//! partition's [`Sequencer`](crate::sequencer::Sequencer), one after another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;
use walrus_log::{Epoch, Log};
use walrus_metadata::{Descriptor, Segment};

use crate::bucket::Key;
use crate::clock;
use crate::rollover::{self, Decision, Fill, Limits};
use crate::watermark::HighWatermark;

/// See the module.
pub(crate) struct Leader {
    pub(crate) descriptor: Descriptor,
    pub(crate) key: Key,
    /// Place of this node among the descriptor's replicas.
    own_replica: usize,
    watermark: HighWatermark,
    opened: Instant,
    /// Held by whoever has a successor allotted, so that it is done once.
    pub(crate) allotting: tokio::sync::Mutex<()>,
    /// A roll that found no successor is not tried again before this.
    hold_until: Mutex<Option<Instant>>,
}

impl Leader {
    /// For a log that this process may write. `None`: this node is not among the replicas, which metadata rules out.
    pub(crate) fn new(segment: &Segment, label: Arc<str>, log: Log, node: u32) -> Option<Self> {
        let descriptor = segment.descriptor.clone();
        let own_replica = descriptor.replicas.iter().position(|replica| replica.node.0 == node)?;
        let replicas = descriptor.replicas.len();
        let age_ms = u64::try_from(clock::now_ms()).unwrap_or(0).saturating_sub(segment.opened_at_ms);
        let opened = Instant::now();
        let watermark = HighWatermark::new(replicas, replicas / 2 + 1, log.durable_offset().0);
        let epoch = Epoch(descriptor.epoch.0);
        Some(Self {
            descriptor,
            key: Key { log, label, epoch },
            own_replica,
            watermark,
            opened: opened.checked_sub(Duration::from_millis(age_ms)).unwrap_or(opened),
            allotting: tokio::sync::Mutex::default(),
            hold_until: Mutex::default(),
        })
    }

    pub(crate) fn log(&self) -> &Log {
        &self.key.log
    }

    /// How its segment is called in log lines and errors.
    pub(crate) fn label(&self) -> &str {
        &self.key.label
    }

    /// After a commit or the seal: tells the watermark how far the own disk is.
    pub(crate) fn note_durable(&self) {
        self.watermark.record(self.own_replica, self.key.log.durable_offset().0);
    }

    pub(crate) fn high_watermark(&self) -> u64 {
        self.watermark.get()
    }

    pub(crate) fn watch_high_watermark(&self) -> watch::Receiver<u64> {
        self.watermark.watch()
    }

    pub(crate) fn fill(&self) -> Fill {
        Fill {
            entries: self.key.log.end_offset().0.saturating_sub(self.key.log.base_offset().0),
            bytes: self.key.log.size_bytes(),
            age: self.opened.elapsed(),
        }
    }

    /// What to do with the segment as it is now.
    pub(crate) fn decide(&self, limits: Limits) -> Decision {
        let fill = self.fill();
        let decision = rollover::decide(fill, limits);
        match decision {
            Decision::SealAfterThis(_) if self.is_held() && rollover::may_outgrow(fill, limits) => {
                Decision::Continue
            }
            other => other,
        }
    }

    /// The roll found no successor: go on for a while.
    pub(crate) fn hold(&self, time: Duration) {
        *self.hold_until.lock() = Some(Instant::now() + time);
    }

    /// Whether it may go on without a successor.
    pub(crate) fn may_outgrow(&self, limits: Limits) -> bool {
        rollover::may_outgrow(self.fill(), limits)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.hold_until.lock().is_some_and(|until| Instant::now() < until)
    }
}
