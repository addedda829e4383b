//! Leaders: opened once, appended to, rolled; batches that still wait at the end go on in the successor.

use super::*;

impl World {
    /// Opens a segment in the process that was told, by the metadata or by whoever decided, that it leads the segment.
    pub fn open(&mut self, segment: SegmentId) -> Checked {
        // A leader waits for the table of producers: until holes in the copies of the segment before are filled, or for ever, where it was
        // told late, when others have ended the segment and its copies are gone.
        let waits = self.setting.cleans && !self.makes(Mistake::SuccessorWithoutTable);
        if (waits && self.table_at(segment).is_none()) || !self.opened.insert(segment) {
            return Ok(());
        }
        let descriptor = self.descriptor(segment).clone();
        let next_id = self.table_of(&descriptor);
        let machine = Leader::open(descriptor.clone(), descriptor.leader.process);
        let leading = Leading { machine, next_id, carried: Vec::new(), carried_away: false };
        self.leaders.insert(segment, Arc::new(leading));
        self.check_table(&descriptor, next_id)?;
        self.make_log(descriptor.leader.node, segment);
        self.take_carried(segment)
    }

    /// Whether the segment can be opened by the process that it names.
    #[must_use]
    pub fn may_open(&self, segment: SegmentId) -> bool {
        let descriptor = self.descriptor(segment);
        let node = self.node(descriptor.leader.node);
        let known = |value: &Value| value.successor.id == segment;
        node.up
            && node.process() == descriptor.leader.process
            && !self.opened.contains(&segment)
            && self.promised.decided.values().any(known)
    }

    /// The table of what producers have sent up to a segment's base, read from the segments before.
    pub(super) fn table_of(&self, descriptor: &Descriptor) -> BatchId {
        if self.makes(Mistake::DedupTableNotLoaded) {
            return 0;
        }
        if self.setting.cleans {
            return self.table_at(descriptor.id).unwrap_or(0);
        }
        let before = self.chain_up_to(descriptor.id);
        let skipped = usize::from(self.makes(Mistake::CursorTailNotLoaded));
        let known = &before[..before.len().saturating_sub(skipped)];
        known.last().map_or(0, |last| last + 1)
    }

    /// Checks that all that was acknowledged is in the table: cursors and producers' numbers never move back (S8, S11).
    pub(super) fn check_table(&self, descriptor: &Descriptor, next_id: BatchId) -> Checked {
        if !self.setting.idempotent || self.losses_told() {
            return Ok(());
        }
        let before = self.promised.acknowledged.iter().filter(|(segment, _)| {
            self.descriptor(**segment).number < descriptor.number && self.is_in_chain(**segment)
        });
        let highest = before.flat_map(|(_, mark)| record::ids(mark.digest)).max();
        if highest.is_some_and(|highest| highest >= next_id) {
            return violation(format!(
                "S11: {highest:?} was acknowledged, the new leader's table has {next_id}"
            ));
        }
        Ok(())
    }

    /// Lets a client's batch reach a leader: the next one that its table lacks.
    pub fn append(&mut self, segment: SegmentId) -> Checked {
        let Some(leading) = self.leaders.get(&segment) else { return Ok(()) };
        let id = if self.setting.idempotent { leading.next_id } else { self.next_id };
        self.next_id = self.next_id.max(id + 1);
        self.assign(segment, id)
    }

    /// Whether the leader has room for one more.
    #[must_use]
    pub fn has_room(&self, segment: SegmentId) -> bool {
        let written = self.promised.written.get(&segment).map_or(0, |mark| record::ids(mark.digest).len());
        self.leaders.get(&segment).is_some_and(|leading| {
            *leading.machine.phase() == LeaderPhase::Leading && written < record::BATCHES_MAX
        })
    }

    pub(super) fn assign(&mut self, segment: SegmentId, id: BatchId) -> Checked {
        if !self.has_room(segment) {
            return Ok(());
        }
        let base = self.descriptor(segment).first();
        let none = Mark { end: base, digest: Digest(0) };
        let leading = Arc::make_mut(self.leaders.get_mut(&segment).expect("it has room"));
        let written = Arc::make_mut(&mut self.promised).written.entry(segment).or_insert(none);
        if written.end != leading.machine.assigned_end() {
            return violation(format!("S9: two processes write {segment:?}"));
        }
        let batch = batch_after(*written, id);
        *written = batch.mark();
        self.note_time(id);
        let leading = Arc::make_mut(self.leaders.get_mut(&segment).expect("it has room"));
        leading.next_id = leading.next_id.max(id + 1);
        self.leader_step(segment, LeaderInput::Assign(batch))
    }

    /// Gives a leader an input, and sends at once what it has, for a message that is late on the way is as good as sent late.
    pub fn leader_step(&mut self, segment: SegmentId, input: LeaderInput) -> Checked {
        let Some(leading) = self.leaders.get_mut(&segment) else { return Ok(()) };
        let leading = Arc::make_mut(leading);
        let mut outputs = leading.machine.step(input);
        for to in 0..leading.machine.descriptor().replicas.len() {
            if leading.machine.has_batches_for(to) {
                outputs
                    .extend(leading.machine.step(LeaderInput::Send { to, batches_max: record::BATCHES_MAX }));
            }
        }
        for output in outputs {
            match output {
                LeaderOutput::Send { to, message } => {
                    let from = Sender::Leader(segment);
                    self.outbox.push(Flight::To { from, segment, to, message, fill: None });
                }
                LeaderOutput::HighWatermark(end) => self.acknowledge(segment, end)?,
                LeaderOutput::Ended(value) => self.end(segment, &value)?,
                LeaderOutput::Deposed | LeaderOutput::Recover | LeaderOutput::Behind { .. } => {}
                LeaderOutput::Alarm(alarm) => self.alarm(segment, alarm)?,
            }
        }
        Ok(())
    }

    /// Begins the planned roll of a segment.
    pub fn roll(&mut self, segment: SegmentId) -> Checked {
        self.register_all();
        let id = SegmentId(self.mint());
        let state = &self.metadata.state;
        let found = metadata::successor(state, TOPIC, 0, id, &self.avoided(), &everybody(state));
        let Some(successor) = found else { return Ok(()) };
        let next = successor.clone();
        let command = Command::BeginRoll { topic: TOPIC, partition: 0, segment, successor };
        if self.propose(command)?.is_err() {
            return Ok(());
        }
        self.leader_step(segment, LeaderInput::Freeze { successor: next })?;
        if self.makes(Mistake::RollReplaysItsProposal)
            && let Some(leading) = self.leaders.get(&segment)
            && let LeaderPhase::Frozen { value, .. } = leading.machine.phase().clone()
        {
            self.carry(segment, value.end);
        }
        Ok(())
    }

    pub(super) fn end(&mut self, segment: SegmentId, value: &Value) -> Checked {
        if !self.makes(Mistake::RollReplaysItsProposal) {
            self.carry(segment, value.end);
        }
        self.decide(segment, value)?;
        self.take_carried(value.successor.id)
    }

    /// Keeps the batches that were not decided, for the next segment.
    pub(super) fn carry(&mut self, segment: SegmentId, end: Offset) {
        let Some(written) = self.promised.written.get(&segment).copied() else { return };
        let base = self.descriptor(segment).first();
        let Some(leading) = self.leaders.get_mut(&segment) else { return };
        if self.setting.idempotent || leading.carried_away {
            return;
        }
        let places = record::marks(base, written.digest);
        let ids = record::ids(written.digest);
        let leading = Arc::make_mut(leading);
        leading.carried_away = true;
        leading.carried =
            ids.into_iter().zip(places).filter(|(_, mark)| mark.end >= end).map(|(id, _)| id).collect();
    }

    /// Hands a new leader the batches that its predecessor's leader keeps for it, if that one still lives.
    pub(super) fn take_carried(&mut self, segment: SegmentId) -> Checked {
        if !self.leaders.contains_key(&segment) {
            return Ok(());
        }
        let before = self.promised.decided.iter().find(|(_, value)| value.successor.id == segment);
        let Some(before) = before.map(|(before, _)| *before) else { return Ok(()) };
        let Some(leading) = self.leaders.get_mut(&before) else { return Ok(()) };
        let carried = std::mem::take(&mut Arc::make_mut(leading).carried);
        carried.into_iter().try_for_each(|id| self.assign(segment, id))
    }
}
