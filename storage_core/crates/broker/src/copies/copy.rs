//! This node's copy of a segment: a `Replica`, the log that it writes to, and the record of its promises in the journal.
//!
//! What the machine wants done is done here, in its order. When something fails the machine is given up and made anew from
//! what is on the disk, as after a restart.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use walrus_log::batch::Batch as StoredBatch;
use walrus_log::{CommitTicket, Log, Store};
use walrus_model::{Descriptor, Digest, Offset, OffsetRange, ReplicaRef, Value};
use walrus_replica::{
    Accept, Append, Batch, CutId, Mark, Message, Promises, Refusal, Replica, ReplicaInput, ReplicaOutput,
    Reply, Request, SealedNotice, Tape,
};

use crate::cluster::segment::{log_id, segment_of};
use crate::copies::codec;
use crate::copies::holed::Holed;
use crate::copies::lead::Lead;
use crate::copies::marks::{invalid, mark_batches};
use crate::copies::promises;
use crate::copies::wire::{AppendBytes, Ask};
use crate::node::error::{Error, Result};
use crate::node::locks::{COPY, Lock};
use crate::node::obstacle::Obstacle;

/// About how much is read at once where a log is walked through.
const WALK_BYTES: usize = 1 << 20;

/// This node's copy of one segment: a `Replica`, its log, and its promises on the disk.
pub(crate) struct Copy {
    descriptor: Descriptor,
    me: ReplicaRef,
    /// Names a cut of this start of the process.
    start: CutId,
    store: Store,
    /// Told of holes that a look at the disk found.
    holed: Arc<Holed>,
    /// What the leader tells, while this process leads the segment.
    lead: ArcSwapOption<Lead>,
    state: Lock<State, COPY>,
}

struct State {
    /// `None`: it must be made anew from the disk.
    replica: Option<Replica>,
    log: Option<Log>,
}

/// The bytes of batches, by the offset of each, in order.
type Placed = Vec<(Offset, Bytes)>;

/// What a step had to say.
#[derive(Default)]
pub(crate) struct Said {
    /// To the sender, or after a sync to the leader.
    pub(crate) answer: Option<Reply>,
    /// The answer to an append comes when this resolves, by [`Copy::note_durable`].
    pub(crate) commit: Option<CommitTicket>,
}

/// How far a copy may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Readable {
    pub(crate) end: u64,
    /// Else there may be more, which nobody knows until the segment's end is decided.
    pub(crate) is_all: bool,
}

impl Copy {
    pub(crate) fn new(
        descriptor: Descriptor,
        me: ReplicaRef,
        start: CutId,
        store: Store,
        holed: Arc<Holed>,
    ) -> Self {
        let state = Lock::new(State { replica: None, log: None });
        Self { descriptor, me, start, store, holed, lead: ArcSwapOption::empty(), state }
    }

    pub(crate) fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// What the leader tells, while this process leads the segment.
    pub(crate) fn lead(&self) -> Option<Arc<Lead>> {
        self.lead.load_full()
    }

    /// This process begins to lead the segment, or (`None`) leads it no more.
    pub(crate) fn set_lead(&self, lead: Option<Arc<Lead>>) {
        self.lead.store(lead);
    }

    /// The log, once somebody made it.
    pub(crate) fn log(&self) -> Option<Log> {
        self.store.log(log_id(&self.descriptor))
    }

    /// What may be read here.
    pub(crate) fn readable(&self) -> Result<Readable> {
        self.with(|replica, _| {
            // A leader writes to its own copy first: where that one was never written, none was.
            let is_fresh = replica.promises().writer.is_none() && replica.takes_appends();
            Ok(Readable { end: replica.readable_end().0, is_all: replica.shows_all() || is_fresh })
        })
    }

    /// What rotted of it, below the end; for a sealed copy nothing, it is looked through by others. May read all of it.
    pub(crate) fn holes(&self) -> Result<Vec<OffsetRange>> {
        self.with(|replica, _| match replica.promises().sealed {
            Some(_) => Ok(Vec::new()),
            None => Ok(replica.tape().holes().to_vec()),
        })
    }

    /// Writes whole batches of another copy, from an offset on, into a hole. Durable on return. False: they do not fit there
    /// exactly.
    pub(crate) fn fill_hole(&self, from: Offset, batches: &[u8]) -> Result<bool> {
        let mut state = self.state.lock();
        let Some(log) = self.log() else { return Ok(false) };
        let is_filled = log.mend(from, batches).map_err(|error| self.storage(&error))?;
        // The machine knows no digests behind a hole.
        state.replica = None;
        Ok(is_filled)
    }

    /// Whether nothing was promised that keeps appends out.
    pub(crate) fn takes_appends(&self) -> Result<bool> {
        self.with(|replica, _| Ok(replica.takes_appends()))
    }

    /// Answers a message. May wait for the disk, but for appends only once, when the first binds the writer.
    pub(crate) fn ask(&self, ask: Ask) -> Result<Said> {
        match ask {
            Ask::Append(append) => self.append(append),
            Ask::Assigned(assigned) => self.message(Message::Assigned(assigned), &[]),
            Ask::Fence(fence, _) => self.message(Message::Fence(fence), &[]),
            Ask::Accept(accept, offset, batches, _) => self.accept(accept, offset, batches),
        }
    }

    fn append(&self, append: AppendBytes) -> Result<Said> {
        let AppendBytes { epoch, writer, from, batches, commit } = append;
        let marked = mark_batches(from, &batches)?;
        let placed = placed(&marked, batches);
        let append = Append { epoch, writer, from, batches: marked, commit };
        self.message(Message::Append(append), &placed)
    }

    fn accept(&self, accept: Accept, offset: Offset, batches: Vec<Bytes>) -> Result<Said> {
        self.with(|replica, log| {
            let (missing, bytes) = behind(next_place(replica, &accept.value), offset, batches)?;
            let message = Message::Accept(Accept { missing, ..accept });
            self.step(replica, log, self.request(message), &bytes)
        })
    }

    /// A message of this very node, which brings no batches: the leader's own copy has them.
    pub(crate) fn tell(&self, message: Message) -> Result<Option<Reply>> {
        let message = match message {
            Message::Accept(accept) => Message::Accept(Accept { missing: Vec::new(), ..accept }),
            other => other,
        };
        self.message(message, &[]).map(|said| said.answer)
    }

    /// The decision is known, and here are some batches from an offset on: `None` when the copy is sealed, else from
    /// where on it still lacks batches.
    pub(crate) fn seal(&self, value: Value, offset: Offset, batches: Vec<Bytes>) -> Result<Option<Offset>> {
        let said = self.with(|replica, log| {
            let (missing, bytes) = behind(next_place(replica, &value), offset, batches)?;
            let message = Message::Sealed(SealedNotice { value, missing });
            self.step(replica, log, self.request(message), &bytes)
        })?;
        match said.answer {
            Some(Reply::Sealed) => Ok(None),
            Some(Reply::Refused(Refusal::Gap { end, .. })) => Ok(Some(end)),
            Some(Reply::Refused(Refusal::Holes { holes })) => {
                Err(Obstacle::Rotted { segment: self.descriptor.id, holes }.into())
            }
            other => Err(Error::Internal { message: format!("segment {}: {other:?}", self.descriptor.id) }),
        }
    }

    /// Metadata has given this copy up: from now on this disk only remembers how the segment was sealed.
    pub(crate) fn bury(&self, value: Value) -> Result<()> {
        self.with(|replica, log| self.step(replica, log, ReplicaInput::Trimmed { value }, &[]).map(drop))
    }

    fn message(&self, message: Message, bytes: &[(Offset, Bytes)]) -> Result<Said> {
        self.with(|replica, log| self.step(replica, log, self.request(message), bytes))
    }

    fn request(&self, message: Message) -> ReplicaInput {
        let segment = self.descriptor.id;
        ReplicaInput::Request(Request { segment, to: self.me, message })
    }

    /// The log has synced more: what the leader is told now.
    pub(crate) fn note_durable(&self) -> Result<Option<Reply>> {
        self.with(|replica, log| {
            // Under the lock the log ends where the machine's tape does.
            let end = log.as_ref().map_or(replica.durable_end(), |log| log.durable_offset());
            let end = end.min(replica.tape().end());
            self.step(replica, log, ReplicaInput::Synced { end }, &[]).map(|said| said.answer)
        })
    }

    /// An append of the leader of this very node: `write` puts it into the log, and the machine hears of it. `None`: this
    /// copy takes no appends any more.
    pub(crate) fn append_here<T>(
        &self,
        commit: Offset,
        write: impl FnOnce() -> Result<(T, Option<Batch>)>,
    ) -> Result<Option<T>> {
        self.with(|replica, _| {
            if !replica.takes_appends() {
                return Ok(None);
            }
            let (written, batch) = write()?;
            let Some(batch) = batch else { return Ok(Some(written)) }; // a repetition
            let (epoch, writer) = (replica.descriptor().epoch, replica.descriptor().leader.process);
            let append = Append { epoch, writer, from: replica.tape().last(), batches: vec![batch], commit };
            let outputs = replica.step(self.request(Message::Append(append)));
            assert!(
                matches!(&outputs[..], [ReplicaOutput::Write(_)]),
                "the leader's own copy says {outputs:?}"
            );
            Ok(Some(written))
        })
    }

    /// Runs on the machine, made from the disk if need be. After an error it is made anew.
    fn with<T>(&self, work: impl FnOnce(&mut Replica, &mut Option<Log>) -> Result<T>) -> Result<T> {
        let mut state = self.state.lock();
        let State { replica, log } = &mut *state;
        if log.is_none() {
            *log = self.log();
        }
        if replica.is_none() {
            *replica = Some(self.recover(log.as_ref())?);
        }
        let machine = replica.as_mut().expect("made above");
        let result = work(machine, log);
        if let Err(error) = &result
            && is_of_the_disk(error)
        {
            tracing::warn!(segment = %self.descriptor.id, %error, "the copy is read anew from the disk");
            *replica = None;
        }
        result
    }

    /// As after a restart. A log that was cut or damaged makes the replica suspect.
    fn recover(&self, log: Option<&Log>) -> Result<Replica> {
        let descriptor = self.descriptor.clone();
        let mut promises = promises::read(&self.store, self.descriptor.id)?;
        if let Some(sealed) = log.and_then(Log::sealed_value) {
            let value = codec::decode_seal(&sealed).map_err(|problem| Error::Internal {
                message: format!("the seal of segment {} cannot be read: {problem}", self.descriptor.id),
            })?;
            promises.get_or_insert_default().sealed = Some(value);
        }
        let promises = promises.unwrap_or_default();
        let tape = match (&promises.sealed, log) {
            (Some(value), _) => Tape::starting_at(Mark { end: value.end, digest: value.digest }),
            (None, Some(log)) => self.look_through(log)?,
            (None, None) => Tape::empty(descriptor.first()),
        };
        self.holed.note(self.descriptor.id, !tape.holes().is_empty() && promises.sealed.is_none());
        let has_forgotten = log.map_or(Ok(false), |log| has_forgotten(&self.store, log))?;
        let was_cut = has_forgotten || log.is_some_and(Log::is_suspect);
        let (replica, outputs) = Replica::recover(self.me, descriptor, promises, tape, was_cut, self.start);
        for output in outputs {
            if let ReplicaOutput::Persist(promises) = output {
                self.persist(&promises)?;
            }
        }
        Ok(replica)
    }

    /// Where the batches of the log end, and what of it rotted.
    fn look_through(&self, log: &Log) -> Result<Tape> {
        log.commit().map_err(|error| self.storage(&error))?;
        let tape = walk(log, |error| self.storage(error))?;
        if tape.holes().is_empty() && tape.last().digest == Digest(log.digest()) {
            return Ok(tape);
        }
        // The log still counts what rotted, or does not count yet what was filled.
        let holes = log.recount().map_err(|error| self.storage(&error))?;
        if !holes.is_empty() {
            tracing::error!(
                alarm = "damaged_copy", log = log.name(), segment = %self.descriptor.id, ?holes,
                "the copy of an open segment is damaged; what is missing comes from other copies"
            );
        }
        let tape = walk(log, |error| self.storage(error))?;
        if tape.last().digest != Digest(log.digest()) {
            let message = format!("the digest of {} changes while it is read", log.name());
            return Err(Error::Storage { node: self.me.node.0, message });
        }
        Ok(tape)
    }

    /// Does what the machine says. `bytes` are those of the message's batches, by the offset of each: the machine may want
    /// any of them written.
    fn step(
        &self,
        replica: &mut Replica,
        log: &Option<Log>,
        input: ReplicaInput,
        bytes: &[(Offset, Bytes)],
    ) -> Result<Said> {
        let mut said = Said::default();
        let own_log = || {
            let what = format!("the log of segment {} is not made yet", self.descriptor.id);
            log.as_ref().ok_or(Error::UnknownSegment { segment: what })
        };
        let outputs = replica.step(input);
        // Behind what is left out the batches of a producer need not follow each other.
        let is_whole = replica.tape().holes().is_empty();
        for output in outputs {
            match output {
                ReplicaOutput::Write(batches) => {
                    said.commit = Some(self.write(own_log()?, &batches, bytes, is_whole)?);
                }
                ReplicaOutput::Skip(to) => {
                    own_log()?.skip_to(to).map_err(|error| self.storage(&error))?;
                }
                ReplicaOutput::Sync => {
                    said.commit = None;
                    own_log()?.commit().map_err(|error| self.storage(&error))?;
                }
                ReplicaOutput::Cut(end) => {
                    tracing::info!(segment = %self.descriptor.id, end = end.0, "what lies behind the decided end goes");
                    own_log()?.truncate_to(end).map_err(|error| self.storage(&error))?;
                }
                // The seal of the log is the record of the decision.
                ReplicaOutput::Persist(promises) if promises.sealed.is_some() && !promises.trimmed => {}
                ReplicaOutput::Persist(promises) => {
                    self.persist(&promises)?;
                    if let Some(log) = log.as_ref().filter(|log| !promises.suspect && log.is_suspect()) {
                        log.clear_suspect().map_err(|error| self.storage(&error))?;
                    }
                }
                ReplicaOutput::Seal(value) => {
                    let log = own_log()?;
                    let sealed =
                        log.seal(&codec::encode_seal(&value)).map_err(|error| self.storage(&error))?;
                    assert_eq!(
                        (sealed.end.0, sealed.digest),
                        (value.end.0, value.digest.0),
                        "{}",
                        log.name()
                    );
                }
                ReplicaOutput::Answer(reply) => said.answer = Some(reply),
                ReplicaOutput::Delete => {
                    if let Some(log) = log {
                        self.store.delete_log(log.id()).map_err(|error| self.storage(&error))?;
                    }
                }
                ReplicaOutput::Alarm(alarm) => {
                    tracing::error!(alarm = ?alarm, segment = %self.descriptor.id, "a copy contradicts another");
                }
            }
        }
        Ok(said)
    }

    fn write(
        &self,
        log: &Log,
        batches: &[Batch],
        bytes: &[(Offset, Bytes)],
        is_whole: bool,
    ) -> Result<CommitTicket> {
        let mut commit = None;
        for batch in batches {
            let place = bytes.binary_search_by_key(&batch.base, |(base, _)| *base);
            let (_, bytes) = &bytes[place.expect("what is written came with the message")];
            let (parsed, _) = StoredBatch::parse(bytes).map_err(|problem| invalid(&problem.to_string()))?;
            let misplaced = |place: &dyn std::fmt::Debug| Error::Storage {
                node: self.me.node.0,
                message: format!("{}: {batch:?} would be at {place:?}", log.name()),
            };
            let end = log.end_offset().0;
            if (end, u64::from(parsed.record_count())) != (batch.base.0, batch.end.0 - batch.base.0) {
                return Err(misplaced(&end)); // before anything is written at a wrong place
            }
            let appended = if is_whole { log.append(&parsed) } else { log.append_copied(&parsed) };
            let appended = appended.map_err(|error| self.storage(&error))?;
            let place = (appended.base_offset.0, appended.end_offset.0, appended.duplicate);
            if place != (batch.base.0, batch.end.0, false) {
                return Err(misplaced(&place)); // a repetition: nothing was written
            }
            commit = Some(appended.commit);
        }
        commit.ok_or_else(|| Error::Internal { message: "a write of nothing".to_owned() })
    }

    fn persist(&self, promises: &Promises) -> Result<()> {
        promises::write(&self.store, &self.descriptor, promises).map_err(|error| self.storage(&error))
    }

    fn storage(&self, error: &walrus_log::Error) -> Error {
        let node = self.me.node.0;
        match error {
            walrus_log::Error::NoSpace { .. } => Error::NoSpace { node },
            other => Error::Storage { node, message: format!("segment {}: {other}", self.descriptor.id) },
        }
    }
}

/// Whether a log has records, and what was promised about it is not known, for the journal lost its end.
pub(crate) fn has_forgotten(store: &Store, log: &Log) -> Result<bool> {
    let is_written = log.end_offset() > log.base_offset() && !log.is_sealed();
    Ok(store.has_lost_promises()
        && is_written
        && promises::read(store, segment_of(log.id()))?.is_none_or(|promises| promises.suspect))
}

/// Reads a log from its base to its end: where its batches end, and what of it is damaged.
pub(crate) fn walk(log: &Log, storage: impl Fn(&walrus_log::Error) -> Error) -> Result<Tape> {
    let (mut next, end) = (log.base_offset(), log.end_offset());
    let mut tape = Tape::empty(next);
    while next < end {
        match log.read(next, WALK_BYTES) {
            Ok(slices) => {
                for batch in mark_batches(tape.last(), &slices.batches)? {
                    tape.push(batch);
                }
                next = slices.next_offset;
            }
            Err(walrus_log::Error::Corrupted { end: behind, .. }) if behind > next => {
                next = behind.min(end);
                tape.skip(next);
            }
            Err(error) => return Err(storage(&error)),
        }
    }
    Ok(tape)
}

/// Where the next batch of a value goes in a copy: behind its end, and behind what is lost there.
fn next_place(replica: &Replica, value: &Value) -> Mark {
    let last = replica.tape().last();
    Mark { end: value.past_lost(last.end), ..last }
}

/// Those of the batches from `offset` on that follow the copy's end; none if they do not reach it or leave a gap.
fn behind(last: Mark, offset: Offset, batches: Vec<Bytes>) -> Result<(Vec<Batch>, Placed)> {
    let mut next = offset;
    let mut bytes = batches.into_iter();
    let mut following = Vec::new();
    for batch in bytes.by_ref() {
        let (parsed, _) = StoredBatch::parse(&batch).map_err(|problem| invalid(&problem.to_string()))?;
        let base = next;
        next = Offset(next.0 + u64::from(parsed.record_count()));
        if base == last.end || !following.is_empty() {
            following.push(batch);
        }
    }
    let marked = mark_batches(last, &following)?;
    let placed = placed(&marked, following);
    Ok((marked, placed))
}

fn placed(marked: &[Batch], bytes: Vec<Bytes>) -> Placed {
    marked.iter().map(|batch| batch.base).zip(bytes).collect()
}

fn is_of_the_disk(error: &Error) -> bool {
    matches!(error, Error::NoSpace { .. } | Error::Storage { .. } | Error::UnknownSegment { .. })
}

#[cfg(test)]
mod tests {
    use walrus_log::batch::BatchBuilder;
    use walrus_log::{Options, ProducerTable};
    use walrus_model::{DiskId, Epoch, LeaderRef, NodeId, ProcessId, SegmentId, TopicId};

    use super::*;
    use crate::cluster::segment::log_spec;

    fn batch(value: &str) -> Bytes {
        let mut bytes = Vec::new();
        BatchBuilder::new().push(None, Some(value.as_bytes()), 1, &[]).build(&mut bytes).unwrap();
        bytes.into()
    }

    fn descriptor(number: u64, base: Option<u64>) -> Descriptor {
        let replica = ReplicaRef { node: NodeId(1), disk: DiskId::from_u128(1) };
        Descriptor {
            id: SegmentId::from_u128(u128::from(number) + 10),
            topic: TopicId::from_u128(3),
            partition: 0,
            number,
            base_offset: base.map(Offset),
            epoch: Epoch(u32::try_from(number).unwrap() + 1),
            leader: LeaderRef { node: NodeId(1), process: ProcessId::from_u128(2) },
            replicas: vec![replica],
            write_quorum: 1,
            fsync: None,
        }
    }

    /// The copy of the first segment, and its log, empty.
    fn empty_copy(directory: &tempfile::TempDir) -> (Copy, Log) {
        let store = Store::open(directory.path(), Options::small()).unwrap();
        let segment = descriptor(0, Some(0));
        let log = store.create_log(log_spec(&segment, ProducerTable::new(), None).unwrap()).unwrap();
        let me = segment.replicas[0];
        (Copy::new(segment, me, CutId(7), store, Arc::default()), log)
    }

    #[test]
    fn a_batch_that_would_not_be_in_its_place_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let (copy, log) = empty_copy(&directory);
        let at = |base: u64, end: u64| Batch { base: Offset(base), end: Offset(end), digest: Digest(0) };
        for misplaced in [at(1, 2), at(0, 2)] {
            let bytes = [(misplaced.base, batch("a"))];
            assert!(copy.write(&log, &[misplaced], &bytes, true).is_err());
            assert_eq!(log.end_offset().0, 0);
        }
    }

    /// A source had more than what was decided: the last batches that it sent were written in the place of the first.
    #[test]
    fn a_copy_is_filled_with_what_lies_below_the_end_though_more_came() {
        let directory = tempfile::tempdir().unwrap();
        let (copy, log) = empty_copy(&directory);
        let segment = copy.descriptor().clone();
        let batches: Vec<Bytes> = ["a", "b", "c", "d"].map(batch).into();
        let first = segment.first();
        let marked = mark_batches(Mark { end: first, digest: Digest(0) }, &batches).unwrap();
        let successor = Box::new(descriptor(1, Some(2)));
        let value = Value::without_loss(Offset(2), marked[1].digest, *successor);
        assert_eq!(copy.seal(value.clone(), value.end, Vec::new()).unwrap(), Some(first));
        assert_eq!(copy.seal(value, first, batches).unwrap(), None);
        let stored = log.read(Offset(0), 1 << 20).unwrap();
        let values: Vec<Vec<u8>> = stored
            .batches
            .iter()
            .map(|bytes| {
                let (parsed, _) = StoredBatch::parse(bytes).unwrap();
                parsed.records().next().unwrap().unwrap().value.unwrap().to_vec()
            })
            .collect();
        assert_eq!(values, [b"a", b"b"]);
    }
}
