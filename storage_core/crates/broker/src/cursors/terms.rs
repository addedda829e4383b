//! The terms in which the parts of a shared cursor speak to each other.

use walrus_model::TopicId;

use crate::node::names::TopicPath;

/// An entry of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryRef {
    pub(crate) partition: u32,
    pub(crate) offset: u64,
}

/// A topic as a cursor knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopicRef {
    pub(super) id: TopicId,
    pub(super) path: TopicPath,
}

/// What a holder reports with its wish for the next entry.
#[derive(Clone, Debug, Default)]
pub(super) struct HolderReport {
    pub(super) delivered: Vec<EntryRef>,
    /// All entries that it holds and that are not delivered.
    pub(super) kept: Vec<EntryRef>,
}

/// How urgent it is that an owner hears of deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// It should hear of them, but not for long: the client waits for something else.
    Soon,
    /// It must hear of them, whatever it takes; no client waits.
    Finally,
    /// They must be durable on return.
    Durable,
}
