//! The ledger of a coordinator, in memory: the groups of one partition of `__groups`, with the clocks of this node and those who wait
//! for an answer.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::oneshot;
use walrus_groups::{
    Answer, Coordinator, Effect, Forgetting, Group, GroupName, Key, Limits, Lot, Replayed, Ticket,
};
use walrus_log::batch::Record as LogRecord;
use walrus_model::TopicId;
use walrus_owners::{Entry, Late};

use crate::node::clock;
use crate::node::error::Result;
use crate::node::patience;
use crate::node::proto::peer::{GroupHandOver, GroupRequest, group_request};
use crate::owners::{self, Unreadable};
use crate::peer::Request;

/// What members and groups may ask for. The timeouts of sessions are those that Kafka takes by default.
pub(crate) static LIMITS: LazyLock<Limits> = LazyLock::new(|| Limits {
    session_timeout_ms: 6_000..=1_800_000,
    members_max: 10_000,
    bytes_max: 8 << 20,
    first_delay_ms: 500,
});

/// When groups are forgotten.
const FORGETTING: Forgetting = Forgetting {
    after_ms: patience::GROUP_EXPIRY.as_secs() * 1_000,
    hold_ms: patience::GROUP_EXPIRY_HOLD.as_secs() * 1_000,
};

/// The groups of one partition of `__groups`.
pub(super) struct Ledger {
    coordinator: Coordinator,
    waiting: HashMap<Ticket, oneshot::Sender<Answer>>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::of(Replayed::default())
    }
}

impl Ledger {
    fn of(known: Replayed) -> Self {
        Self { coordinator: Coordinator::new(LIMITS.clone(), known, now_ms()), waiting: HashMap::new() }
    }

    /// A request of a group, which is made if there is none: the answer comes once `act` or what happens later gives it.
    pub(super) fn ask(
        &mut self,
        name: &GroupName,
        act: impl FnOnce(&mut Group, Ticket, u64) -> Vec<Effect>,
    ) -> oneshot::Receiver<Answer> {
        let ticket = self.coordinator.ask(name, now_ms(), act);
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(ticket, sender);
        self.answer();
        receiver
    }

    /// Does something with a group, which is made if there is none, and carries out what follows.
    pub(super) fn act<R>(
        &mut self,
        name: &GroupName,
        act: impl FnOnce(&mut Group, u64) -> (R, Vec<Effect>),
    ) -> R {
        let result = self.coordinator.act(name, now_ms(), act);
        self.answer();
        result
    }

    /// A group, if there is one.
    pub(super) fn group(&self, name: &GroupName) -> Option<&Group> {
        self.coordinator.group(name)
    }

    /// All groups.
    pub(super) fn groups(&self) -> impl Iterator<Item = (&GroupName, &Group)> {
        self.coordinator.groups()
    }

    /// Does what is due by now.
    pub(super) fn tick(&mut self) {
        self.coordinator.tick(now_ms());
        self.answer();
    }

    /// Gives everybody more time where this process stood still: they could not be heard.
    pub(super) fn stood_still(&mut self, time: Duration) {
        let for_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.coordinator.stood_still(for_ms, now_ms());
    }

    /// Has groups forgotten that nobody has used for long, by a time since the epoch that most of the nodes have reached.
    pub(super) fn expire(&mut self, reached_ms: i64) {
        for GroupName { org, name } in self.coordinator.expire(now_ms(), reached_ms, FORGETTING) {
            tracing::info!(org, group = name, "a consumer group is forgotten: it was not used for long");
        }
        self.answer();
    }

    fn answer(&mut self) {
        for (ticket, answer) in self.coordinator.take_answers() {
            if let Some(sender) = self.waiting.remove(&ticket) {
                drop(sender.send(answer)); // whoever asked may be gone
            }
        }
    }
}

impl walrus_owners::Ledger for Ledger {
    type Replayed = Replayed;
    type Handed = ();
    type Lot = Lot;

    fn begin(&mut self, known: Replayed, _: Vec<()>) {
        *self = Self::of(known);
    }

    fn end(&mut self) -> Vec<()> {
        let Self { coordinator, mut waiting } = std::mem::take(self);
        for (ticket, answer) in coordinator.resign() {
            if let Some(sender) = waiting.remove(&ticket) {
                drop(sender.send(answer));
            }
        }
        Vec::new()
    }

    fn has_lot(&self) -> bool {
        self.coordinator.has_lot()
    }

    fn next_lot(&mut self) -> Option<(Lot, Vec<Entry>)> {
        self.coordinator.next_lot(clock::now_ms())
    }

    fn recorded(&mut self, lot: Lot, _: u64) {
        self.coordinator.recorded(lot, now_ms());
        self.answer();
    }

    fn entries(&self) -> u64 {
        self.coordinator.entries()
    }

    fn drop_dead(&mut self, live: &HashSet<TopicId>, _: u64) {
        self.coordinator.drop_dead(live);
    }

    fn record_again(&mut self, _: u64) {
        self.coordinator.record_again();
    }

    fn records_again(&self) -> bool {
        self.coordinator.records_again()
    }
}

impl owners::Ledger for Ledger {
    const WHAT: &'static str = "consumer groups";
    // A generation or an offset of a coordinator that was replaced would undo what the next one has told.
    const LATE: Late = Late::Wrong;

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

    fn replay(known: &mut Replayed, record: &LogRecord<'_>) -> std::result::Result<(), Unreadable> {
        let taken = known.take_in(record.key.unwrap_or_default(), record.value, record.timestamp_ms);
        taken.map_err(|problem| Unreadable(format!("offset {}: {problem}", record.offset)))
    }
}

/// Milliseconds that this process has kept time; they never go back, and do not jump with the clock.
fn now_ms() -> u64 {
    static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(BEGINNING.elapsed().as_millis()).unwrap_or(u64::MAX)
}
