//! What the logs of a store stand on: blocks in files, the journal, space, memory for tails. Nothing here knows a log.

pub(crate) mod arrivals;
pub(crate) mod blocks;
pub(crate) mod group;
pub(crate) mod indexes;
pub(crate) mod journal;
pub(crate) mod space;
pub(crate) mod tail;
