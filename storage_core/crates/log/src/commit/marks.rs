//! The synced marks, which say in the journal how much of each log is on the disk. They follow commits at a distance,
//! and a start scans only what lies above them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::registry::Registry;
use crate::error::Result;
use crate::log::queues::Queues;
use crate::log::state::LogState;
use crate::resources::Resources;
use crate::resources::journal::Record;
use crate::sync::Mutex;

/// Synced bytes without a mark from which on a log gets its mark soon: recovery scans what lies above the mark.
const MARK_BYTES: u64 = 16 << 20;

pub(crate) struct Marks {
    resources: Arc<Resources>,
    queues: Arc<Queues>,
    /// How long marks may lag behind.
    interval: Duration,
    /// Logs whose mark in the journal is behind, each once.
    unmarked: Mutex<Vec<Arc<LogState>>>,
}

impl Marks {
    pub(super) fn new(resources: Arc<Resources>, queues: Arc<Queues>, interval: Duration) -> Self {
        Self { resources, queues, interval, unmarked: Mutex::default() }
    }

    /// Notes that the log has synced something, so that its mark is behind. A log that never syncs has none.
    pub(crate) fn note(&self, log: &Arc<LogState>) {
        if !log.syncs() {
            return;
        }
        if !log.unmarked.swap(true, Ordering::AcqRel) {
            self.unmarked.lock().push(Arc::clone(log));
            self.queues.chores.mark_later(self.interval);
        }
        if log.unmarked_bytes.load(Ordering::Relaxed) >= MARK_BYTES {
            self.queues.chores.mark_soon();
        }
    }

    /// Makes the marks of all logs durable.
    pub(crate) fn write_all(&self, registry: &Registry) {
        let unmarked = std::mem::take(&mut *self.unmarked.lock());
        for log in &unmarked {
            log.unmarked.store(false, Ordering::Release);
        }
        self.write(registry, &unmarked, true);
    }

    /// Writes the marks of the logs that synced much since their last one, so that a killed process leaves little to
    /// scan. They become durable with the next durable marks.
    pub(crate) fn write_busy(&self, registry: &Registry) {
        let is_busy = |log: &&Arc<LogState>| log.unmarked_bytes.load(Ordering::Relaxed) >= MARK_BYTES;
        let busy: Vec<_> = self.unmarked.lock().iter().filter(is_busy).cloned().collect();
        self.write(registry, &busy, false);
    }

    fn write(&self, registry: &Registry, logs: &[Arc<LogState>], durable: bool) {
        if logs.is_empty() {
            return;
        }
        let journal = &self.resources.journal;
        let marked = logs.iter().try_for_each(|log| self.append(registry, log));
        if let Err(error) = marked.and_then(|()| journal.say(&Record::Mark, durable)) {
            tracing::warn!(%error, "synced marks were not written");
        } else if durable {
            journal.write_end(false);
        }
        if journal.needs_tending() {
            self.queues.chores.ask_upkeep();
        }
    }

    /// Appends a record of the log's synced end to the journal, not yet durable.
    fn append(&self, registry: &Registry, log: &LogState) -> Result<()> {
        log.unmarked_bytes.store(0, Ordering::Relaxed);
        // A truncation writes its record under this mutex: an older mark behind that record would name what was cut
        // off.
        let _writer = log.writer.lock();
        let end = log.synced.load(Ordering::Acquire);
        // A deleted log must get no mark, so it cannot be deleted between the check and the record.
        registry.while_there(log.id, || {
            self.resources.journal.append(&Record::Synced { log: log.id, end }).map(drop)
        })
    }
}
