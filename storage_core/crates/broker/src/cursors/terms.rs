//! What the parts of a shared cursor say to each other.

use walrus_model::TopicId;

use crate::node::names::TopicName;

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
    pub(super) name: TopicName,
}

/// What a holder tells with its wish for the next entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Settlement {
    pub(super) delivered: Vec<EntryRef>,
    /// Everything else that it holds.
    pub(super) kept: Vec<EntryRef>,
}

/// When a settlement must have been heard, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settle {
    /// Heard if possible; the client waits for something else.
    Soon,
    /// Heard, whatever it takes; no client waits.
    Finally,
    /// Durable on return.
    Durable,
}
