//! The table of all copies of segments on this node, with what its disk remembers of trims.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Notify;
use walrus_log::{FsyncSchedule, LogId, Store};
use walrus_metadata::{CopyState, Metadata};
use walrus_model::{Descriptor, DiskId, Epoch, NodeId, ReplicaRef, SegmentId};
use walrus_replica::CutId;

use crate::copies::copy::{self, Copy};
use crate::copies::holdings::{HeldCopy, Holdings};
use crate::copies::holed::Holed;
use crate::copies::lead::Lead;
use crate::copies::pace::Pace;
use crate::copies::promises;
use crate::copies::replacements::Replacements;
use crate::copies::scratch::Scratch;
use crate::copies::tombstones::Tombstones;
use crate::node::config::Config;
use crate::node::error::{Error, Result};
use crate::node::locks::Lock;
use crate::node::patience;

/// All copies of segments on this node, and what its disk remembers of trims.
pub(crate) struct CopyTable {
    me: ReplicaRef,
    start: CutId,
    store: Store,
    known: Lock<HashMap<SegmentId, Arc<Copy>>>,
    /// The sealed segments whose copies are listed here.
    holdings: Lock<Holdings>,
    tombstones: Tombstones,
    replacements: Replacements,
    scratch: Scratch,
    /// Logs that metadata do not list, and that are not served for that.
    aside: Lock<HashSet<SegmentId>>,
    /// How fast the copies that are made here may be fetched.
    pace: Lock<Pace>,
    /// Segments whose copies here were found damaged, by a reader.
    damaged: Lock<HashSet<SegmentId>>,
    /// Wakes who waits for a copy that was found damaged.
    damage: Notify,
    /// Open segments that this process is to lead, whose end somebody wanted to know and was not told.
    doubted: Lock<HashMap<SegmentId, Instant>>,
    /// Copies that this node is about to delete, for they were given up.
    going: Lock<HashSet<SegmentId>>,
    /// Copies of segments that are not sealed in which batches rotted.
    holed: Arc<Holed>,
}

impl CopyTable {
    /// Reads what the disk remembers of trims; an error where that cannot be read.
    pub(crate) fn load(config: &Config, store: Store) -> Result<Self> {
        let me = ReplicaRef { node: NodeId(config.node_id), disk: config.disk };
        let start = CutId(config.process.as_u128());
        Ok(Self {
            me,
            start,
            holdings: Lock::new(Holdings::new(me)),
            tombstones: Tombstones::open(&store)?,
            replacements: Replacements::open(&store)?,
            scratch: Scratch::open(&store),
            aside: Lock::default(),
            store,
            known: Lock::default(),
            pace: Lock::new(Pace::new()),
            damaged: Lock::default(),
            damage: Notify::new(),
            doubted: Lock::default(),
            going: Lock::default(),
            holed: Arc::default(),
        })
    }

    /// This disk.
    pub(crate) fn replica(&self) -> ReplicaRef {
        self.me
    }

    /// Follows the metadata, and answers the copies of sealed segments with which something is to be done.
    pub(crate) fn follow(&self, metadata: &Metadata) -> Vec<HeldCopy> {
        let mut holdings = self.holdings.lock();
        holdings.update(metadata);
        holdings.pending_copies()
    }

    /// Notes that a verified copy was found here. Its seal says all that is to be remembered of its votes, which are dropped if
    /// the seal outlives a loss of power.
    pub(crate) fn mark_found(&self, held: &HeldCopy) {
        let log = self.store.log(LogId(held.segment.0));
        let outlives_power = log.is_some_and(|log| log.fsync() != FsyncSchedule::NoFsync);
        if outlives_power && let Err(error) = promises::forget_votes(&self.store, held.segment) {
            tracing::warn!(segment = %held.segment, %error, "old promises stay in the journal");
        }
        self.forget(held.segment);
        self.holdings.lock().mark_found(held);
    }

    /// From now on this node says of these copies that it is about to delete them.
    pub(crate) fn mark_going(&self, segments: impl IntoIterator<Item = SegmentId>) {
        self.going.lock().extend(segments);
    }

    /// The copies that were to go are deleted by now, or stay for the time being.
    pub(crate) fn clear_going(&self) {
        self.going.lock().clear();
    }

    /// Whether this node may delete its copy at any moment.
    pub(crate) fn is_about_to_go(&self, segment: SegmentId) -> bool {
        self.going.lock().contains(&segment)
    }

    /// How many copies listed here are to be made, and how many are beyond mending.
    pub(crate) fn unfinished(&self) -> (usize, usize) {
        self.holdings.lock().unfinished()
    }

    /// Segments whose copies here lack something, for they rotted or are to be made, and how far each copy is.
    pub(crate) fn lacking(&self) -> HashMap<SegmentId, u64> {
        let listed = self.holdings.lock().all();
        let is_lacking = |held: &HeldCopy| matches!(held.state, CopyState::Filling | CopyState::Damaged);
        let listed = listed.into_iter().filter(is_lacking).map(|held| held.segment);
        let holed = self.holed.all().into_iter().map(|segment| (segment, 0)); // appends do not fill them
        let end = |segment: SegmentId| self.store.log(LogId(segment.0)).map_or(0, |log| log.end_offset().0);
        listed.map(|segment| (segment, end(segment))).chain(holed).collect()
    }

    /// Verified copies listed here that were found here.
    pub(crate) fn found_copies(&self) -> Vec<HeldCopy> {
        self.holdings.lock().found_copies()
    }

    /// Takes the copies that somebody should mend: those of sealed segments that a reader found damaged or that are listed so,
    /// and other segments whose copies a reader found damaged.
    pub(crate) fn to_mend(&self) -> (Vec<HeldCopy>, Vec<SegmentId>) {
        let mut damaged = std::mem::take(&mut *self.damaged.lock());
        let held = self.holdings.lock().all();
        let is_bad = |held: &HeldCopy| damaged.remove(&held.segment) || held.state == CopyState::Damaged;
        let sealed = held.into_iter().filter(is_bad).collect();
        (sealed, damaged.into_iter().collect())
    }

    /// Notes that a read of the own copy met damage.
    pub(crate) fn note_damage(&self, segment: SegmentId) {
        self.damaged.lock().insert(segment);
        self.damage.notify_one();
    }

    /// Notes that somebody waits to hear how far a segment goes that this process is to lead.
    pub(crate) fn note_doubt(&self, segment: SegmentId) {
        self.doubted.lock().insert(segment, Instant::now());
    }

    /// Segments whose end somebody waits for, or did a moment ago: whoever still wants to know asks again.
    pub(crate) fn doubted(&self) -> HashSet<SegmentId> {
        let mut doubted = self.doubted.lock();
        doubted.retain(|_, asked| asked.elapsed() < patience::DOUBT_LASTS);
        doubted.keys().copied().collect()
    }

    /// Returns when damage was noted.
    pub(crate) async fn await_damage(&self) {
        self.damage.notified().await;
    }

    /// Copies of segments that are not sealed in which batches rotted.
    pub(crate) fn holed(&self) -> &Holed {
        &self.holed
    }

    pub(crate) fn tombstones(&self) -> &Tombstones {
        &self.tombstones
    }

    /// What this disk remembers of segments that took the place of others.
    pub(crate) fn replacements(&self) -> &Replacements {
        &self.replacements
    }

    /// The logs that this node writes for segments that the metadata do not know yet.
    pub(crate) fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Whether this disk had a copy with a vote and has given it up.
    pub(crate) fn is_buried(&self, descriptor: &Descriptor) -> Result<bool> {
        promises::is_buried(&self.store, descriptor.id)
    }

    /// Notes that a copy that was given up was made again: its log answers from now on.
    pub(crate) fn revived(&self, descriptor: &Descriptor) -> Result<()> {
        promises::forget_votes(&self.store, descriptor.id)?;
        self.forget(descriptor.id);
        Ok(())
    }

    /// Puts these logs aside, and no others.
    pub(crate) fn put_aside(&self, logs: HashSet<SegmentId>) {
        *self.aside.lock() = logs;
    }

    /// Whether a log is put aside.
    pub(crate) fn is_aside(&self, segment: SegmentId) -> bool {
        self.aside.lock().contains(&segment)
    }

    /// Waits as long as `bytes` that were copied may take.
    pub(crate) async fn breathe(&self, bytes: u64, bytes_per_second: u64) {
        let pause = self.pace.lock().take(Instant::now(), bytes, bytes_per_second);
        tokio::time::sleep(pause).await;
    }

    /// What the leader of a segment tells, if this process leads it.
    pub(crate) fn lead(&self, segment: SegmentId) -> Option<Arc<Lead>> {
        self.known.lock().get(&segment)?.lead()
    }

    /// A copy that this process has used, or that the journal knows of.
    pub(crate) fn find(&self, segment: SegmentId) -> Result<Option<Arc<Copy>>> {
        if let Some(copy) = self.known.lock().get(&segment) {
            return Ok(Some(copy.clone()));
        }
        match promises::descriptor(&self.store, segment)? {
            Some(descriptor) => self.open(&descriptor).map(Some),
            None => Ok(None),
        }
    }

    /// The epoch up to which the journal of this disk remembers a promise about this very segment.
    pub(crate) fn promised(&self, segment: &Descriptor) -> Result<Option<Epoch>> {
        if promises::descriptor(&self.store, segment.id)?.is_none_or(|known| known != *segment) {
            return Ok(None);
        }
        let promises = promises::read(&self.store, segment.id)?;
        Ok(promises.map(|promises| promises.promised.epoch.max(segment.epoch)))
    }

    /// Whether something was written to the own copy of a segment, and nothing is known of what was promised about it: the
    /// store's journal once lost its end. Only the only node of a cluster goes on with such copies.
    pub(crate) fn has_forgotten(&self, descriptor: &Descriptor) -> bool {
        let log = self.store.log(LogId(descriptor.id.0));
        log.is_some_and(|log| copy::has_forgotten(&self.store, &log).unwrap_or(true))
    }

    /// The copy of a segment that this disk is to store. Writes nothing.
    pub(crate) fn open(&self, descriptor: &Descriptor) -> Result<Arc<Copy>> {
        let stored_here = descriptor.replicas.contains(&self.me);
        let wrong = |problem: &str| Error::InvalidRequest {
            problem: format!("segment {}: {problem}", descriptor.id),
        };
        if !stored_here || descriptor.base_offset.is_none() {
            return Err(wrong("this disk is not one of its replicas, or its base is not known"));
        }
        if self.tombstones.covers(descriptor) {
            // Its votes are forgotten: answering as a fresh replica would lose what was decided (R10).
            return Err(wrong("it was trimmed"));
        }
        let mut known = self.known.lock();
        let copy = known.entry(descriptor.id).or_insert_with(|| {
            let (store, holed) = (self.store.clone(), self.holed.clone());
            Arc::new(Copy::new(descriptor.clone(), self.me, self.start, store, holed))
        });
        if copy.descriptor() == descriptor {
            Ok(copy.clone())
        } else {
            Err(wrong("another descriptor is known here"))
        }
    }

    /// Whether a message to this incarnation of a disk is meant for this node (R11).
    pub(crate) fn is_me(&self, disk: DiskId) -> bool {
        self.me.disk == disk
    }

    /// This disk's place among the replicas of a segment, if it is one of them.
    pub(crate) fn place(&self, descriptor: &Descriptor) -> Option<usize> {
        descriptor.replicas.iter().position(|replica| *replica == self.me)
    }

    /// Drops a copy's machine, which nobody needs any more.
    pub(crate) fn forget(&self, segment: SegmentId) {
        self.known.lock().remove(&segment);
        self.holed.note(segment, false);
    }
}
