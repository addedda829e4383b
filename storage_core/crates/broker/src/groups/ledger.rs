//! The ledger of a coordinator, in memory: the groups of one partition of `__groups`, who waits for an answer of theirs, and the
//! records that are to be appended, in their order.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::oneshot;
use walrus_groups::{
    Answer, Committed, Effect, Group, GroupName, GroupRecord, Key, Limits, Place, Record, Ticket,
};
use walrus_log::batch::Record as LogRecord;
use walrus_model::TopicId;

use crate::node::clock;
use crate::node::error::Result;
use crate::node::proto::peer::{GroupHandOver, GroupRequest, group_request};
use crate::owners::{self, Entry, Late, Unreadable};
use crate::peer::Request;

/// About how many bytes of records one append takes.
const LOT_BYTES: usize = 1 << 20;

/// What members and groups may ask for. The timeouts of sessions are those that Kafka takes by default.
pub(crate) static LIMITS: LazyLock<Limits> = LazyLock::new(|| Limits {
    session_timeout_ms: 6_000..=1_800_000,
    members_max: 10_000,
    bytes_max: 8 << 20,
    first_delay_ms: 500,
});

/// The groups of one partition of `__groups`.
#[derive(Default)]
pub(super) struct Ledger {
    groups: HashMap<GroupName, Kept>,
    /// Records that are to be appended, in their order.
    queue: VecDeque<Queued>,
    waiting: HashMap<Ticket, oneshot::Sender<Answer>>,
    next_ticket: u64,
    /// When something is due in which group.
    deadlines: BTreeSet<(u64, GroupName)>,
    /// Groups of which everything is to be recorded again; of the first one, only behind a place.
    again: VecDeque<GroupName>,
    again_behind: Option<Place>,
}

/// A group, and what of it is stored.
struct Kept {
    group: Group,
    /// The value of its newest record.
    value: Option<Vec<u8>>,
    /// Time of its newest record, milliseconds since the epoch: it has been without members and commits at least since then.
    newest_ms: i64,
    /// When something is due in it, as `deadlines` have it.
    deadline: Option<u64>,
}

/// A record that is to be appended.
struct Queued {
    name: GroupName,
    number: u64,
    entries: Vec<Entry>,
    /// The value that the group's record has then, if it is one of the group.
    value: Option<Option<Vec<u8>>>,
}

/// What one append holds.
pub(super) struct Part {
    name: GroupName,
    number: u64,
    timestamp_ms: i64,
    value: Option<Option<Vec<u8>>>,
}

/// What the records of a partition say of a group.
#[derive(Default)]
pub(super) struct ReplayedGroup {
    record: GroupRecord,
    value: Option<Vec<u8>>,
    offsets: BTreeMap<Place, Committed>,
    newest_ms: i64,
}

impl Ledger {
    /// A request of a group, which is made if there is none: the answer comes once `act` or what happens later gives it.
    pub(super) fn ask(
        &mut self,
        name: &GroupName,
        act: impl FnOnce(&mut Group, Ticket, u64) -> Vec<Effect>,
    ) -> oneshot::Receiver<Answer> {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(ticket, sender);
        self.act(name, |group, now_ms| ((), act(group, ticket, now_ms)));
        receiver
    }

    /// Does something with a group, which is made if there is none, and carries out what follows.
    pub(super) fn act<R>(
        &mut self,
        name: &GroupName,
        act: impl FnOnce(&mut Group, u64) -> (R, Vec<Effect>),
    ) -> R {
        let fresh = || Kept { group: Group::new(LIMITS.clone()), value: None, newest_ms: 0, deadline: None };
        let kept = self.groups.entry(name.clone()).or_insert_with(fresh);
        let (result, effects) = act(&mut kept.group, now_ms());
        self.carry_out(name, effects);
        result
    }

    /// A group, if there is one.
    pub(super) fn group(&self, name: &GroupName) -> Option<&Group> {
        self.groups.get(name).map(|kept| &kept.group)
    }

    /// All groups.
    pub(super) fn groups(&self) -> impl Iterator<Item = (&GroupName, &Group)> {
        self.groups.iter().map(|(name, kept)| (name, &kept.group))
    }

    /// Whether something is due by now in any group.
    pub(super) fn is_due(&self) -> bool {
        self.deadlines.first().is_some_and(|(due_ms, _)| *due_ms <= now_ms())
    }

    /// Does what is due by now.
    pub(super) fn tick(&mut self) {
        let now_ms = now_ms();
        while let Some((_, name)) = self.deadlines.first().filter(|(due_ms, _)| *due_ms <= now_ms).cloned() {
            self.act(&name, |group, _| ((), group.tick(now_ms)));
        }
    }

    /// Has groups forgotten that have had neither members nor commits for a time; `now_ms` counts since the epoch.
    pub(super) fn expire(&mut self, now_ms: i64, after: Duration) {
        let after_ms = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
        let is_over = |kept: &Kept| {
            kept.newest_ms > 0 && kept.newest_ms.saturating_add(after_ms) <= now_ms && kept.group.is_idle()
        };
        let over = self.groups.iter().filter(|(_, kept)| is_over(kept)).map(|(name, _)| name.clone());
        for name in over.collect::<Vec<_>>() {
            tracing::info!(
                org = name.org,
                group = name.name,
                "a consumer group is forgotten: it was not used for long"
            );
            self.act(&name, |group, _| ((), group.delete(None)));
        }
    }

    fn carry_out(&mut self, name: &GroupName, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Answer { ticket, answer } => {
                    if let Some(sender) = self.waiting.remove(&ticket) {
                        drop(sender.send(answer)); // whoever asked may be gone
                    }
                }
                Effect::Store { number, record } => self.queue.push_back(queued(name, number, &record)),
            }
        }
        let Some(kept) = self.groups.get_mut(name) else { return };
        let deadline = kept.group.next_deadline_ms();
        if deadline != kept.deadline {
            let place = |due_ms: u64| (due_ms, name.clone());
            kept.deadline.map(|due_ms| self.deadlines.remove(&place(due_ms)));
            self.deadlines.extend(deadline.map(place));
            kept.deadline = deadline;
        }
        if kept.group.is_blank() {
            self.groups.remove(name);
        }
    }

    /// Adds what has to be recorded again of the first group that waits for that, as much as there is room for.
    fn add_again(&mut self, entries: &mut Vec<Entry>, bytes: &mut usize) {
        while let Some(name) = self.again.front() {
            if let Some(kept) = self.groups.get(name) {
                let behind = self.again_behind.take();
                if behind.is_none() {
                    let key = Key::Group(name.clone()).encode();
                    entries.extend(
                        kept.value.clone().map(|value| entry(key, Some(value), kept.newest_ms, bytes)),
                    );
                }
                let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
                for (place, committed) in kept.group.offsets().range((from, Bound::Unbounded)) {
                    if *bytes >= LOT_BYTES {
                        return;
                    }
                    let key = Key::Offset(name.clone(), *place).encode();
                    entries.push(entry(key, Some(committed.encode()), kept.newest_ms, bytes));
                    self.again_behind = Some(*place);
                }
            }
            self.again_behind = None;
            self.again.pop_front();
            if *bytes >= LOT_BYTES {
                return;
            }
        }
    }
}

impl owners::Ledger for Ledger {
    const WHAT: &'static str = "consumer groups";
    // A generation or an offset of a coordinator that was replaced would undo what the next one has told.
    const LATE: Late = Late::Wrong;
    type Replayed = HashMap<GroupName, ReplayedGroup>;
    type Handed = ();
    type Lot = Vec<Part>;

    fn nothing() -> Entry {
        Entry { key: Key::Nothing.encode(), value: None, timestamp_ms: clock::now_ms() }
    }

    fn hand_over_request(partition: u32, number: u64, metadata_version: u64) -> Request {
        let asked = GroupHandOver { partition, number, metadata_version };
        Request::Group(GroupRequest { request: Some(group_request::Request::HandOver(asked)) })
    }

    fn handed_over(_: Bytes) -> Result<Vec<()>> {
        Ok(Vec::new())
    }

    fn replay(known: &mut Self::Replayed, record: &LogRecord<'_>) -> std::result::Result<(), Unreadable> {
        take_in(known, record).map_err(|problem| Unreadable(format!("offset {}: {problem}", record.offset)))
    }

    fn begin(&mut self, known: Self::Replayed, _: Vec<()>) {
        *self = Self::default();
        let now_ms = now_ms();
        for (name, ReplayedGroup { record, value, offsets, newest_ms }) in known {
            if value.is_none() && offsets.is_empty() {
                continue; // it was forgotten
            }
            let group = Group::restored(LIMITS.clone(), record, offsets, now_ms);
            self.groups.insert(name.clone(), Kept { group, value, newest_ms, deadline: None });
            self.carry_out(&name, Vec::new());
        }
    }

    fn end(&mut self) -> Vec<()> {
        let mut ended = std::mem::take(self);
        for (name, kept) in std::mem::take(&mut ended.groups) {
            let effects = kept.group.resign();
            ended.carry_out(&name, effects);
        }
        Vec::new()
    }

    fn has_lot(&self) -> bool {
        !self.queue.is_empty() || !self.again.is_empty()
    }

    /// What is recorded again comes first: it is as it is stored now, which is before what is queued.
    fn next_lot(&mut self) -> Option<(Vec<Part>, Vec<Entry>)> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        self.add_again(&mut entries, &mut bytes);
        let mut parts = Vec::new();
        let timestamp_ms = clock::now_ms();
        while let Some(next) = self.queue.front() {
            let length: usize = next.entries.iter().map(length).sum();
            if !entries.is_empty() && bytes + length > LOT_BYTES {
                break;
            }
            let Some(Queued { name, number, entries: more, value }) = self.queue.pop_front() else { break };
            bytes += length;
            entries.extend(more.into_iter().map(|entry| Entry { timestamp_ms, ..entry }));
            parts.push(Part { name, number, timestamp_ms, value });
        }
        (!entries.is_empty()).then_some((parts, entries))
    }

    fn recorded(&mut self, lot: Vec<Part>, _: u64) {
        let now_ms = now_ms();
        for Part { name, number, timestamp_ms, value } in lot {
            let Some(kept) = self.groups.get_mut(&name) else { continue };
            kept.newest_ms = timestamp_ms;
            if let Some(value) = value {
                kept.value = value;
            }
            let effects = kept.group.stored(number, now_ms);
            self.carry_out(&name, effects);
        }
    }

    fn entries(&self) -> u64 {
        self.groups.values().map(|kept| kept.group.offsets().len() as u64 + 1).sum()
    }

    fn drop_dead(&mut self, live: &HashSet<TopicId>, _: u64) {
        for kept in self.groups.values_mut() {
            kept.group.retain_offsets(|place| live.contains(&place.topic));
        }
    }

    fn record_again(&mut self, _: u64) {
        (self.again, self.again_behind) = (self.groups.keys().cloned().collect(), None);
    }

    fn records_again(&self) -> bool {
        !self.again.is_empty()
    }
}

fn take_in(
    known: &mut HashMap<GroupName, ReplayedGroup>,
    record: &LogRecord<'_>,
) -> std::result::Result<(), walrus_groups::Unreadable> {
    let key = Key::decode(record.key.unwrap_or_default())?;
    let (Key::Group(name) | Key::Offset(name, _)) = &key else { return Ok(()) };
    let group = known.entry(name.clone()).or_default();
    group.newest_ms = group.newest_ms.max(record.timestamp_ms);
    match key {
        Key::Nothing => {}
        Key::Group(_) => {
            group.record = record.value.map(GroupRecord::decode).transpose()?.unwrap_or_default();
            group.value = record.value.map(<[u8]>::to_vec);
        }
        Key::Offset(_, place) => match record.value.map(Committed::decode).transpose()? {
            Some(committed) => drop(group.offsets.insert(place, committed)),
            None => drop(group.offsets.remove(&place)),
        },
    }
    Ok(())
}

/// A record as entries; their time is that of the append.
fn queued(name: &GroupName, number: u64, record: &Record) -> Queued {
    let of_group = |value| Entry { key: Key::Group(name.clone()).encode(), value, timestamp_ms: 0 };
    let of_place = |place: &Place, value| Entry {
        key: Key::Offset(name.clone(), *place).encode(),
        value,
        timestamp_ms: 0,
    };
    let forgotten = |places: &BTreeSet<Place>| places.iter().map(|place| of_place(place, None)).collect();
    let (entries, value) = match record {
        Record::Group(record) => {
            let value = Some(record.encode());
            (vec![of_group(value.clone())], Some(value))
        }
        Record::Offsets(offsets) => {
            let entries = offsets.iter().map(|(place, committed)| of_place(place, Some(committed.encode())));
            (entries.collect(), None)
        }
        Record::Forgotten(places) => (forgotten(places), None),
        Record::Gone { offsets } => {
            let mut entries: Vec<Entry> = forgotten(offsets);
            entries.push(of_group(None));
            (entries, Some(None))
        }
    };
    Queued { name: name.clone(), number, entries, value }
}

fn entry(key: Vec<u8>, value: Option<Vec<u8>>, timestamp_ms: i64, bytes: &mut usize) -> Entry {
    let entry = Entry { key, value, timestamp_ms };
    *bytes += length(&entry);
    entry
}

/// About how many bytes an entry takes.
fn length(entry: &Entry) -> usize {
    entry.key.len() + entry.value.as_ref().map_or(0, Vec::len) + 16
}

/// Milliseconds that this process has kept time; they never go back, and do not jump with the clock.
fn now_ms() -> u64 {
    static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(BEGINNING.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use walrus_groups::Commit;
    use walrus_log::batch::{Batch, BatchBuilder};

    use super::*;
    use crate::owners::Ledger as _;

    const WEEK: Duration = Duration::from_secs(7 * 24 * 3_600);
    const WEEK_MS: i64 = 7 * 24 * 3_600_000;

    fn name(name: &str) -> GroupName {
        GroupName { org: "default".to_owned(), name: name.to_owned() }
    }

    fn place(partition: u32) -> Place {
        Place { topic: TopicId::from_u128(1), partition }
    }

    fn commit(ledger: &mut Ledger, group: &str, partition: u32, offset: i64) -> oneshot::Receiver<Answer> {
        let committed = Committed { offset, leader_epoch: -1, metadata: String::new() };
        let commit = Commit { who: None, offsets: [(place(partition), committed)].into() };
        ledger.ask(&name(group), |group, ticket, now_ms| group.commit(commit, ticket, now_ms))
    }

    /// Everything that is queued is stored; the entries that were appended for that.
    fn store_all(ledger: &mut Ledger) -> Vec<Entry> {
        let mut appended = Vec::new();
        while let Some((lot, entries)) = ledger.next_lot() {
            ledger.recorded(lot, 0);
            appended.extend(entries);
        }
        appended
    }

    /// A ledger that has replayed entries in their order.
    fn replayed(entries: &[Entry]) -> Ledger {
        let mut builder = BatchBuilder::new();
        for Entry { key, value, timestamp_ms } in entries {
            builder.push(Some(key), value.as_deref(), *timestamp_ms, &[]);
        }
        let mut bytes = Vec::new();
        builder.build(&mut bytes).unwrap();
        let mut known = HashMap::new();
        for record in Batch::parse(&bytes).unwrap().0.records() {
            Ledger::replay(&mut known, &record.unwrap()).unwrap();
        }
        let mut ledger = Ledger::default();
        ledger.begin(known, Vec::new());
        ledger
    }

    fn offset(ledger: &Ledger, group: &str, partition: u32) -> Option<i64> {
        ledger.group(&name(group))?.offsets().get(&place(partition)).map(|committed| committed.offset)
    }

    #[test]
    fn a_group_that_nobody_uses_is_forgotten_by_a_record_and_not_before_its_time() {
        let mut ledger = Ledger::default();
        drop(commit(&mut ledger, "g", 0, 7));
        let mut log = store_all(&mut ledger);
        let used_ms = log[0].timestamp_ms;
        ledger.expire(used_ms + WEEK_MS - 1, WEEK);
        assert!(!ledger.has_lot());
        drop(commit(&mut ledger, "g", 1, 8));
        ledger.expire(used_ms + 2 * WEEK_MS, WEEK);
        log.extend(store_all(&mut ledger));
        assert_eq!(offset(&ledger, "g", 1), Some(8), "it is in use: a commit was on its way");
        ledger.expire(used_ms + 3 * WEEK_MS, WEEK);
        assert_eq!(offset(&ledger, "g", 1), Some(8), "not before it is stored");
        log.extend(store_all(&mut ledger));
        assert!(ledger.group(&name("g")).is_none());
        assert!(replayed(&log).group(&name("g")).is_none());
    }

    #[test]
    fn what_is_recorded_again_stands_before_what_came_meanwhile() {
        let mut ledger = Ledger::default();
        for partition in 0..3 {
            drop(commit(&mut ledger, "g", partition, 1));
        }
        drop(commit(&mut ledger, "gone", 0, 1));
        store_all(&mut ledger);
        ledger.act(&name("gone"), |group, _| ((), group.delete(None)));
        store_all(&mut ledger);
        ledger.record_again(100);
        drop(commit(&mut ledger, "g", 1, 2));
        assert!(ledger.records_again());
        let again = store_all(&mut ledger);
        assert!(!ledger.records_again() && !ledger.has_lot());
        let next = replayed(&again);
        let offsets: Vec<_> = (0..3).map(|partition| offset(&next, "g", partition)).collect();
        assert_eq!(offsets, [Some(1), Some(2), Some(1)]);
        assert!(next.group(&name("gone")).is_none());
    }

    #[test]
    fn a_group_of_many_offsets_is_recorded_again_in_lots() {
        let mut ledger = Ledger::default();
        let committed = Committed { offset: 1, leader_epoch: -1, metadata: "m".repeat(4_000) };
        let offsets = (0..1_000).map(|partition| (place(partition), committed.clone())).collect();
        let wish = Commit { who: None, offsets };
        drop(ledger.ask(&name("g"), |group, ticket, now_ms| group.commit(wish, ticket, now_ms)));
        store_all(&mut ledger);
        ledger.record_again(100);
        let mut lots = Vec::new();
        while let Some((lot, entries)) = ledger.next_lot() {
            ledger.recorded(lot, 0);
            lots.push(entries);
        }
        assert!((4..=5).contains(&lots.len()), "{} lots", lots.len());
        let next = replayed(&lots.concat());
        assert!((0..1_000).all(|partition| offset(&next, "g", partition) == Some(1)));
    }

    #[test]
    fn whoever_waits_is_told_when_the_coordinator_ends() {
        let mut ledger = Ledger::default();
        let mut waiting = commit(&mut ledger, "g", 0, 7);
        assert!(waiting.try_recv().is_err());
        ledger.end();
        let refused = Answer::Committed(Err(walrus_groups::Refusal::NotCoordinator));
        assert_eq!(waiting.try_recv(), Ok(refused));
        assert!(!ledger.has_lot() && ledger.entries() == 0);
    }
}
