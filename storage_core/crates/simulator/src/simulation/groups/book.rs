//! The ledger of a simulated coordinator: the groups, with a clock that is set, and who waits for which answer.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use walrus_groups::{Answer, Coordinator, Limits, Lot, Replayed, Ticket};
use walrus_model::TopicId;
use walrus_owners::{Entry, Ledger};

use super::asks::Asker;

/// What is around a coordinator in its process: clocks, and those who wait for answers.
#[derive(Debug, Default)]
pub(super) struct Desk {
    /// Time that does not jump.
    pub(super) now_ms: u64,
    /// What the clock on the wall says.
    pub(super) wall_ms: i64,
    pub(super) waiting: BTreeMap<Ticket, Asker>,
    pub(super) told: Vec<(Asker, Answer)>,
}

impl Desk {
    /// Takes the answers that there are since the last call.
    pub(super) fn take_told(&mut self) -> Vec<(Asker, Answer)> {
        std::mem::take(&mut self.told)
    }

    pub(super) fn tell(&mut self, answers: Vec<(Ticket, Answer)>) {
        for (ticket, answer) in answers {
            self.told.extend(self.waiting.remove(&ticket).map(|asker| (asker, answer)));
        }
    }
}

/// The ledger of one coordinator.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) coordinator: Coordinator,
    desk: Rc<RefCell<Desk>>,
}

impl Book {
    pub(super) fn new(desk: Rc<RefCell<Desk>>) -> Self {
        let coordinator = Coordinator::new(limits(), Replayed::default(), desk.borrow().now_ms);
        Self { coordinator, desk }
    }
}

impl Ledger for Book {
    type Replayed = Replayed;
    type Handed = ();
    type Lot = Lot;

    fn begin(&mut self, known: Replayed, _: Vec<()>) {
        self.coordinator = Coordinator::new(limits(), known, self.desk.borrow().now_ms);
    }

    fn end(&mut self) -> Vec<()> {
        let mut desk = self.desk.borrow_mut();
        let fresh = Coordinator::new(limits(), Replayed::default(), desk.now_ms);
        let answers = std::mem::replace(&mut self.coordinator, fresh).resign();
        desk.tell(answers);
        desk.waiting.clear();
        Vec::new()
    }

    fn has_lot(&self) -> bool {
        self.coordinator.has_lot()
    }

    fn next_lot(&mut self) -> Option<(Lot, Vec<Entry>)> {
        self.coordinator.next_lot(self.desk.borrow().wall_ms)
    }

    fn recorded(&mut self, lot: Lot, _: u64) {
        self.coordinator.recorded(lot, self.desk.borrow().now_ms);
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

fn limits() -> Limits {
    Limits { session_timeout_ms: 1_000..=60_000, members_max: 100, bytes_max: 10_000, first_delay_ms: 500 }
}
