//! Commands to the metadata, rollbacks of the metadata, and the publication of decisions.

use super::*;

impl World {
    /// Applies a command. The outer error is a broken state.
    pub(super) fn propose(&mut self, command: Command) -> Result<Result<(), CommandRejection>, Violation> {
        let mut state = self.metadata.state.clone();
        let id = Uuid::from_u128(1);
        let envelope = metadata::Envelope {
            v: metadata::ENVELOPE_VERSION,
            id,
            at_ms: self.now_ms,
            expect: None,
            command,
        };
        let outcome = metadata::apply(&mut state, &envelope).map(|_| ());
        state.recent = metadata::Recent::default(); // ids of commands are not what is checked here
        if let Ok(()) = outcome {
            self.err_in_metadata(&mut state, &envelope.command);
            if self.setting.mistake.is_none() {
                state.check().map_err(|what| Violation(format!("metadata: {what}")))?;
            }
            let before =
                std::mem::replace(&mut self.metadata, Arc::new(Committed { print: print_of(&state), state }));
            self.check_change(&before.state)?;
        }
        Ok(outcome)
    }

    /// Makes the mistakes of a metadata service that are switched on.
    pub(super) fn err_in_metadata(&self, state: &mut Metadata, command: &Command) {
        let Command::SealAndOpen { .. } = command else { return };
        let Some(topic) = state.topics.get_mut(&TOPIC) else { return };
        let partition = Arc::make_mut(&mut Arc::make_mut(topic).partitions[0]);
        if self.makes(Mistake::NextEpochNotRaised)
            && let Some(before) = self.partition()
        {
            partition.next_epoch = before.next_epoch;
        }
        let mut nodes = state.nodes.values();
        if self.makes(Mistake::AdoptedSuccessorOpened)
            && let Some(last) = partition.segments.last_mut()
            && matches!(last.state, SegmentState::Sealing(_))
            && let Some(leader) = nodes.rfind(|node| self.node(node.id).up)
        {
            let process = leader.process;
            last.state = SegmentState::Open;
            last.descriptor.leader = LeaderRef { node: leader.id, process };
        }
    }

    pub(super) fn avoided(&self) -> Vec<NodeId> {
        self.nodes.iter().filter(|node| !node.up).map(|node| node.id).collect()
    }

    /// Makes the proposers' wall clocks jump; nothing may depend on them.
    pub fn jump_clocks(&mut self, forward: bool) {
        self.now_ms = if forward { self.now_ms + 3_600_000 } else { self.now_ms.saturating_sub(1_800_000) };
    }

    /// Rolls the metadata back to an earlier state.
    pub fn roll_back(&mut self, to: Arc<Committed>) -> Checked {
        self.metadata = to;
        self.check_view()
    }

    /// Asks for a recovery of the last segment, above the epochs that refused attempts have learned. Nodes that are `silent` or down
    /// lead what follows only where nobody else can.
    pub fn recover(&mut self, silent: &[NodeId]) -> Checked {
        self.register_all();
        let Some(segment) = self.last_segment() else { return Ok(()) };
        let above = self.recoverers.iter().filter(|attempt| attempt.descriptor().id == segment);
        let seen = above.map(|attempt| match attempt.phase() {
            RecovererPhase::Outbid { promised } => promised.epoch.0,
            _ => 0,
        });
        let above = Epoch(seen.max().unwrap_or(0));
        let ids = (AttemptId(self.mint()), SegmentId(self.mint()));
        let state = &self.metadata.state;
        let present = everybody(state);
        let avoided = [&self.avoided(), silent].concat();
        let attempt = metadata::recovery(state, (TOPIC, 0), ids, above, &avoided, &present);
        let Some(metadata::Attempt { ballot, successor }) = attempt else { return Ok(()) };
        let next = successor.clone();
        let command = Command::BeginRecovery { topic: TOPIC, partition: 0, segment, ballot, successor };
        if self.propose(command)?.is_err() {
            return Ok(());
        }
        let descriptor = self.descriptor(segment).clone();
        if ballot.epoch <= descriptor.epoch {
            return violation(format!("S6: {ballot:?} recovers a segment of {:?}", descriptor.epoch));
        }
        let recoverer = Recoverer::new(descriptor, ballot, next);
        self.recoverers.push(Arc::new(recoverer));
        let place = self.recoverers.len() - 1;
        for index in 0..self.recoverers[place].descriptor().replicas.len() {
            self.tell_gone(place, index)?;
        }
        self.recoverer_step(place, RecovererInput::Ask)
    }

    /// Removes a disk as lost, and lets the recoverers hear of it.
    pub fn declare_gone(&mut self, node: NodeId) -> Checked {
        let disk = self.node(node).disk;
        if self.metadata.state.gone_disks.contains(&disk) {
            return Ok(());
        }
        // Refused where metadata has forgotten the node.
        let _ = self.propose(Command::RemoveNode { node, disk, lost: true, replaced_by: None })?;
        for place in 0..self.recoverers.len() {
            for index in 0..self.recoverers[place].descriptor().replicas.len() {
                self.tell_gone(place, index)?;
            }
        }
        Ok(())
    }

    pub(super) fn tell_gone(&mut self, place: usize, replica: usize) -> Checked {
        let descriptor = self.recoverers[place].descriptor();
        let (segment, named) = (descriptor.id, descriptor.replicas[replica]);
        if self.metadata.state.gone_disks.contains(&named.disk) {
            let left = self.left_of(segment, named);
            self.recoverer_step(place, RecovererInput::Gone { replica, left })?;
        }
        Ok(())
    }

    /// Tells the metadata the decision about a segment.
    pub fn publish(&mut self, segment: SegmentId) -> Checked {
        let Some(decided) = self.promised.decided.get(&segment).cloned() else { return Ok(()) };
        self.publish_value(segment, &decided)
    }

    pub(super) fn publish_value(&mut self, segment: SegmentId, value: &Value) -> Checked {
        let value = value.clone();
        match self.propose(Command::SealAndOpen { topic: TOPIC, partition: 0, segment, value })? {
            Ok(()) | Err(CommandRejection::UnknownSegment { .. }) => self.check_metadata(),
            Err(_) if self.makes(Mistake::CloseWithoutCompare) => Ok(()),
            Err(rejected) => violation(format!("S3: a decision was refused: {rejected}")),
        }
    }

    /// Publishes a choice where nobody is left to vote: whatever value the metadata take is decided.
    pub(super) fn publish_unvoted(&mut self, segment: SegmentId, value: &Value) -> Checked {
        let command = Command::SealAndOpen { topic: TOPIC, partition: 0, segment, value: value.clone() };
        match self.propose(command)? {
            Ok(()) => self.decide(segment, value).and_then(|()| self.check_metadata()),
            Err(_) => Ok(()), // the value of another attempt was taken
        }
    }

    /// Trims the partition, as retention does.
    pub fn trim(&mut self, below_number: u64) -> Checked {
        self.propose(Command::Trim { topic: TOPIC, partition: 0, below_number, first: None }).map(drop)
    }
}
