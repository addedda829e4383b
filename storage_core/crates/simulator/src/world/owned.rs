//! What the owner of the partition asks of its cluster: appends to the one segment under which it serves, all that is stored, trims.

use walrus_metadata::Command;

use super::*;

/// What became of a batch that an owner has appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nobody knows yet.
    Open,
    /// It is on a write quorum of disks.
    Stored,
    /// Its segment has ended without it.
    LeftOut,
}

impl World {
    /// Appends a batch that nobody has sent before to a segment that a living process leads. `None` while the segment is full, or its
    /// end is being decided.
    pub fn append_fresh(&mut self, segment: SegmentId) -> Result<Option<BatchId>, Violation> {
        if !self.has_room(segment) || self.next_id >= record::IDS_MAX {
            return Ok(None);
        }
        let id = self.next_id;
        self.next_id += 1;
        self.assign(segment, id).map(|()| Some(id))
    }

    /// What became of the batch that ends there, as the process that leads the segment sees it, whose node knows these metadata.
    #[must_use]
    pub fn fate(&self, segment: SegmentId, end: Offset, known: &Committed) -> Fate {
        let machine = self.leaders.get(&segment).map(|leading| &leading.machine);
        let decided = match machine.map(Leader::phase) {
            Some(LeaderPhase::Ended { value }) => Some(value.end),
            _ => sealed_end(known, segment),
        };
        match (decided, machine.map(Leader::high_watermark)) {
            (Some(decided), _) if decided >= end => Fate::Stored,
            (Some(_), _) => Fate::LeftOut,
            (None, Some(high)) if high >= end => Fate::Stored,
            (None, _) => Fate::Open,
        }
    }

    /// The end of what was written to a segment.
    #[must_use]
    pub fn written_end(&self, segment: SegmentId) -> Offset {
        self.promised.written.get(&segment).map_or(self.descriptor(segment).first(), |mark| mark.end)
    }

    /// All batches of the partition that these metadata list, in their order, for the node that leads its open segment, and where the
    /// partition begins. `None` where a sealed segment has no whole copy on a node that `answers`.
    pub fn read_all(
        &self,
        known: &Committed,
        answers: impl Fn(NodeId) -> bool,
    ) -> Option<(Vec<BatchId>, Offset)> {
        let partition = &known.state.topics.get(&TOPIC)?.partitions[0];
        let mut batches = Vec::new();
        for listed in &partition.segments {
            let segment = listed.descriptor.id;
            let base = self.descriptor(segment).first();
            let digest = match &listed.state {
                SegmentState::Sealed(value) => {
                    let has_all = |node: &&Arc<Node>| {
                        let held = node.held.get(&segment);
                        self.has_whole(node, segment)
                            || held.is_some_and(|held| {
                                !held.stored.promises.trimmed && held.stored.holds(base, value)
                            })
                    };
                    self.nodes.iter().filter(|node| answers(node.id)).find(has_all)?;
                    value.digest
                }
                _ => {
                    let high = self.leaders.get(&segment)?.machine.high_watermark();
                    self.places(segment).into_iter().rfind(|place| place.end <= high)?.digest
                }
            };
            batches.extend(record::ids(digest));
        }
        Some((batches, partition.log_start()))
    }

    /// Trims below a segment, by the word of the owner, who has recorded again what is needed of that. False if it is refused.
    pub fn trim_owned(&mut self, below_number: u64, base: Offset) -> Result<bool, Violation> {
        let promised = Arc::make_mut(&mut self.promised);
        promised.deleted_to = promised.deleted_to.max(base);
        let trim = Command::Trim { topic: TOPIC, partition: 0, below_number, first: None };
        self.propose(trim).map(|trimmed| trimmed.is_ok())
    }

    /// Whether something may be lost, by a decision that says so.
    #[must_use]
    pub fn tells_loss(&self) -> bool {
        self.losses_told() || self.promised.is_forgotten
    }

    /// The wall clock of a node, milliseconds.
    #[must_use]
    pub fn clock_of(&self, id: NodeId) -> u64 {
        self.now_ms + if self.ahead == Some(id) { retention::AHEAD_MS } else { 0 }
    }
}

fn sealed_end(known: &Committed, segment: SegmentId) -> Option<Offset> {
    let partition = &known.state.topics.get(&TOPIC)?.partitions[0];
    let listed = partition.segments.iter().find(|listed| listed.descriptor.id == segment)?;
    match &listed.state {
        SegmentState::Sealed(value) => Some(value.end),
        _ => None,
    }
}

/// The last segment of the partition in these metadata, if it is open.
#[must_use]
pub fn open_segment(known: &Committed) -> Option<&Descriptor> {
    let last = known.state.topics.get(&TOPIC)?.partitions[0].segments.last()?;
    (last.state == SegmentState::Open).then_some(&last.descriptor)
}

/// Whether a process led the segment of a number, by these metadata.
#[must_use]
pub fn has_led(known: &Committed, process: ProcessId, number: u64) -> bool {
    let segments = known.state.topics.get(&TOPIC).map(|topic| &topic.partitions[0].segments);
    segments
        .into_iter()
        .flatten()
        .any(|listed| listed.descriptor.number == number && listed.descriptor.leader.process == process)
}

/// Whether these metadata list the segment of a number, or one behind it.
#[must_use]
pub fn lists(known: &Committed, number: u64) -> bool {
    let last = known.state.topics.get(&TOPIC).and_then(|topic| topic.partitions[0].segments.last());
    last.is_some_and(|last| last.descriptor.number >= number)
}

/// Whether another process leads the partition's open segment, by these metadata.
#[must_use]
pub fn is_led_by_another(known: &Committed, process: ProcessId) -> bool {
    open_segment(known).is_some_and(|open| open.leader.process != process)
}

/// The epoch of the partition that clients are told by these metadata; with `opens_only` by mistake that of an open segment.
#[must_use]
pub fn told_epoch(known: &Committed, opens_only: bool) -> Option<Epoch> {
    let partition = &known.state.topics.get(&TOPIC)?.partitions[0];
    if opens_only {
        let open = partition.segments.iter().rfind(|listed| listed.state == SegmentState::Open);
        return open.or(partition.segments.first()).map(|listed| listed.descriptor.epoch);
    }
    partition.last_epoch()
}
