//! The ledger of an owner: what it keeps in memory. It does no I/O.

use std::collections::HashSet;

use walrus_model::TopicId;

/// What a record means that an owner appends after another one has taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// Nothing: records that contradict each other are never written, so the owner goes on until all of its own are stored.
    Harmless,
    /// It would undo what the next owner has answered. The owner appends to no other segment than the one under which it serves.
    /// What it cannot store it must not have answered: the owner ends then, and takes over again from what is stored.
    Wrong,
}

/// A record as it is appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What the record is about.
    pub key: Vec<u8>,
    /// None takes the key out.
    pub value: Option<Vec<u8>>,
    /// Milliseconds since the epoch.
    pub timestamp_ms: i64,
}

/// What an owner keeps in memory of one partition, and what of it is to be recorded.
pub trait Ledger {
    /// What the records of a partition say together.
    type Replayed;
    /// What an owner tells the next one beyond the records.
    type Handed;
    /// What one append holds.
    type Lot;

    /// Begins with what the records say, and what others handed over.
    fn begin(&mut self, known: Self::Replayed, handed: Vec<Self::Handed>);

    /// Ends; whoever waits is told. Answers what the next owner cannot know from the records.
    fn end(&mut self) -> Vec<Self::Handed>;

    /// Whether anything is to be recorded.
    fn has_lot(&self) -> bool;

    /// What the next append holds, one at least, if anything is to be recorded.
    fn next_lot(&mut self) -> Option<(Self::Lot, Vec<Entry>)>;

    /// The entries of a lot are on a write quorum of disks, one after the other from an offset on.
    fn recorded(&mut self, lot: Self::Lot, base_offset: u64);

    /// Number of records that are needed to know what the ledger has.
    fn entries(&self) -> u64;

    /// Drops what is of topics that are not `live`, as far as it was recorded below `base`.
    fn drop_dead(&mut self, live: &HashSet<TopicId>, base: u64);

    /// Has everything that was recorded below `base` recorded again.
    fn record_again(&mut self, base: u64);

    /// Whether something has yet to be recorded again.
    fn records_again(&self) -> bool;
}
