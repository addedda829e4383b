//! Recoverers and copies: messages are delivered, and the outputs of a copy are carried out on its disk.

use super::*;

impl World {
    /// Gives a recoverer an input, and carries out what it asks for.
    pub fn recoverer_step(&mut self, place: usize, input: RecovererInput) -> Checked {
        let recoverer = Arc::make_mut(&mut self.recoverers[place]);
        let segment = recoverer.descriptor().id;
        let was_fencing = *recoverer.phase() == RecovererPhase::Fencing;
        let outputs = recoverer.step(input);
        let chosen = match recoverer.phase() {
            RecovererPhase::Voting { value, .. } if was_fencing => Some(value.clone()),
            _ => None,
        };
        if let Some(value) = chosen
            && (self.makes(Mistake::PublishedBeforeTheVotes) || self.makes(Mistake::CloseWithoutCompare))
        {
            self.decide(segment, &value)?;
        }
        for output in outputs {
            match output {
                RecovererOutput::Send { to, message, fill } => {
                    let from = Sender::Recoverer(place);
                    self.outbox.push(Flight::To { from, segment, to, message, fill });
                }
                RecovererOutput::Decided(value) => self.decide(segment, &value)?,
                RecovererOutput::Unvoted(value) => self.publish_unvoted(segment, &value)?,
                RecovererOutput::Outbid(_) => {}
            }
        }
        Ok(())
    }

    /// Delivers a message. With `outputs_max` the receiver dies after so many outputs.
    pub fn deliver(&mut self, flight: &Flight, outputs_max: Option<usize>) -> Checked {
        match flight {
            Flight::Back { to: Sender::Leader(segment), from, reply } => {
                self.leader_step(*segment, LeaderInput::Reply { from: *from, reply: reply.clone() })
            }
            Flight::Back { to: Sender::Recoverer(place), from, reply } => {
                self.recoverer_step(*place, RecovererInput::Reply { from: *from, reply: reply.clone() })
            }
            Flight::To { from, segment, to, message, fill } => {
                let mut message = message.clone();
                if let Some((start, sources)) = fill
                    && !self.fetch(*segment, *start, sources, &mut message)
                {
                    return Ok(());
                }
                self.ask_replica(*segment, *to, Some(from), message, outputs_max)
            }
        }
    }

    pub(super) fn ask_replica(
        &mut self,
        segment: SegmentId,
        to: usize,
        from: Option<&Sender>,
        message: Message,
        outputs_max: Option<usize>,
    ) -> Checked {
        let descriptor = self.descriptor(segment).clone();
        let replica = descriptor.replicas[to];
        let node = self.node(replica.node);
        if !node.up || (node.disk != replica.disk && !self.makes(Mistake::EmptiedDiskVotes)) {
            return Ok(());
        }
        let start = CutId(node.process().as_u128());
        let mistake = self.setting.mistake;
        let no_copy = self.makes(Mistake::NoTombstone) && self.is_trimmed(segment);
        let node = self.node_mut(replica.node);
        if !node.held.contains_key(&segment) && no_copy && !matches!(message, Message::Fence(_)) {
            return Ok(());
        }
        let held = node.held.entry(segment).or_insert_with(|| Held::new(replica, &descriptor, start));
        let Some(machine) = &mut held.machine else { return Ok(()) };
        let request = Request::new(&descriptor, replica, message.clone());
        let mut early = None;
        if let (Some(Mistake::EndReadBeforeThePromise), Message::Fence(fence)) = (mistake, &message) {
            match held.peeked {
                Some((ballot, mark)) if ballot == fence.ballot => early = Some(mark),
                _ => {
                    held.peeked = Some((fence.ballot, held.stored.durable(descriptor.first())));
                    return Ok(());
                }
            }
        }
        let mut outputs = machine.step(ReplicaInput::Request(request));
        if let Some(mark) = early {
            for output in &mut outputs {
                if let ReplicaOutput::Answer(Reply::Promised(answer)) = output {
                    (answer.durable_end, answer.digest) = (mark.end, mark.digest);
                }
            }
        }
        self.carry_out(replica.node, segment, from, outputs, outputs_max)
    }

    /// Brings the batches that a vote needs, from a copy that has them.
    pub(super) fn fetch(
        &self,
        segment: SegmentId,
        start: Offset,
        sources: &[usize],
        message: &mut Message,
    ) -> bool {
        let (value, missing) = match message {
            Message::Accept(accept) => (&accept.value, &mut accept.missing),
            Message::Sealed(notice) => (&notice.value, &mut notice.missing),
            _ => return true,
        };
        let descriptor = self.descriptor(segment);
        for source in sources {
            let node = self.node(descriptor.replicas[*source].node);
            let answers = node.up || node.left;
            let Some(held) = node.held.get(&segment).filter(|held| answers && !held.stored.promises.trimmed)
            else {
                continue;
            };
            if held.stored.holds(descriptor.first(), value) {
                let tape = held.stored.tape(descriptor.first());
                let batches = tape.batches(descriptor.first(), value.end);
                *missing = batches.filter(|batch| batch.base >= start).collect();
                return true;
            }
        }
        false
    }

    /// Tells a replica the decision.
    pub fn notify(&mut self, node: NodeId, segment: SegmentId) -> Checked {
        let Some(value) = self.promised.decided.get(&segment).cloned() else { return Ok(()) };
        let descriptor = self.descriptor(segment);
        let Some(place) = descriptor.replicas.iter().position(|replica| replica.node == node) else {
            return Ok(());
        };
        let all: Vec<usize> = (0..descriptor.replicas.len()).collect();
        let end = match self.node(node).held.get(&segment) {
            Some(held) => held.machine.as_ref().map_or(descriptor.first(), |machine| machine.tape().end()),
            None => descriptor.first(),
        };
        let mut message = Recoverer::notice(value.clone());
        if end < value.end && !self.fetch(segment, end, &all, &mut message) {
            return Ok(());
        }
        self.ask_replica(segment, place, None, message, None)
    }

    /// Deletes a node's copy of a segment that the metadata call trimmed.
    pub fn drop_copy(&mut self, node: NodeId, segment: SegmentId) -> Checked {
        let by_absence = self.makes(Mistake::TrimmedByAbsence) && !self.is_trimmed(segment);
        if by_absence || self.makes(Mistake::NoTombstone) {
            self.node_mut(node).held.remove(&segment);
            return Ok(());
        }
        let Some(value) = self.promised.decided.get(&segment).cloned() else { return Ok(()) };
        let Some(held) = self.node_mut(node).held.get_mut(&segment) else { return Ok(()) };
        let Some(machine) = &mut held.machine else { return Ok(()) };
        let outputs = machine.step(ReplicaInput::Trimmed { value });
        self.carry_out(node, segment, None, outputs, None)
    }

    /// Whether a node may delete its copy now.
    #[must_use]
    pub fn may_drop(&self, node: &Node, segment: SegmentId) -> bool {
        let Some(held) = node.held.get(&segment).filter(|held| held.machine.is_some()) else { return false };
        let is_listed = self
            .partition()
            .is_some_and(|partition| partition.segments.iter().any(|listed| listed.descriptor.id == segment));
        let decided = self.promised.decided.contains_key(&segment);
        (self.is_trimmed(segment) && decided && !held.stored.promises.trimmed)
            || (self.makes(Mistake::TrimmedByAbsence) && !is_listed)
    }

    /// Makes everything durable that a node has written.
    pub fn sync(&mut self, node: NodeId, segment: SegmentId) -> Checked {
        let base = self.descriptor(segment).first();
        let Some(held) = self.node_mut(node).held.get_mut(&segment) else { return Ok(()) };
        let Some(machine) = &mut held.machine else { return Ok(()) };
        held.stored.synced = held.stored.batches.len();
        let end = held.stored.durable(base).end;
        let outputs = machine.step(ReplicaInput::Synced { end });
        self.carry_out(node, segment, None, outputs, None)
    }

    pub(super) fn carry_out(
        &mut self,
        id: NodeId,
        segment: SegmentId,
        from: Option<&Sender>,
        outputs: Vec<ReplicaOutput>,
        outputs_max: Option<usize>,
    ) -> Checked {
        let descriptor = self.descriptor(segment).clone();
        let place = descriptor.replicas.iter().position(|replica| replica.node == id).expect("it stores it");
        let to = from.cloned().unwrap_or(Sender::Leader(segment));
        let places = self.places(segment);
        if outputs.iter().any(|output| matches!(output, ReplicaOutput::Write(_) | ReplicaOutput::Seal(_))) {
            self.make_log(id, segment);
        }
        let to_nobody = matches!(&to, Sender::Leader(segment) if !self.leaders.contains_key(segment));
        for output in outputs.into_iter().take(outputs_max.unwrap_or(usize::MAX)) {
            let stored = &mut self.node_mut(id).held.get_mut(&segment).expect("it holds it").stored;
            match output {
                ReplicaOutput::Write(batches) => {
                    batches
                        .into_iter()
                        .try_for_each(|batch| stored.write(batch, descriptor.first(), &places))?;
                }
                ReplicaOutput::Skip(to) => stored.skip(to, descriptor.first(), &places),
                ReplicaOutput::Sync => stored.synced = stored.batches.len(),
                ReplicaOutput::Cut(end) => {
                    stored.batches.retain(|batch| batch.end <= end);
                    stored.synced = stored.synced.min(stored.batches.len());
                    stored.rotten.retain(|place| *place < stored.batches.len());
                    stored.were_rotten.retain(|place| *place < stored.batches.len());
                }
                ReplicaOutput::Persist(promises) => {
                    if promises.promised < stored.promises.promised {
                        return violation("S4: a promise was taken back");
                    }
                    stored.promises = promises;
                }
                ReplicaOutput::Seal(value) => {
                    let last = stored.durable(descriptor.first());
                    if (last.end, last.digest) != (value.end, value.digest) {
                        return violation(format!("S1: a copy that ends at {last:?} is sealed as {value:?}"));
                    }
                }
                ReplicaOutput::Answer(reply) => {
                    self.check_answer(id, segment, &reply)?;
                    if !(to_nobody || (from.is_none() && matches!(reply, Reply::Sealed | Reply::Refused(_))))
                    {
                        self.outbox.push(Flight::Back { to: to.clone(), from: place, reply });
                    }
                }
                ReplicaOutput::Delete => {
                    (stored.batches, stored.synced) = (Vec::new(), 0);
                    (stored.rotten, stored.were_rotten) = Default::default();
                    stored.table = None;
                }
                ReplicaOutput::Alarm(alarm) => self.alarm(segment, alarm)?,
            }
        }
        if outputs_max.is_some() {
            self.crash(id, usize::MAX, None)?;
        }
        self.read_if_shown(id, segment)?;
        self.check_copy(id, segment)
    }
}
