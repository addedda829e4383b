//! Copies of segments on this node. The machines of `walrus-replica` are at work here: their batches go into logs, their
//! promises into the store's journal.

pub(crate) mod answers;
mod claims;
pub(crate) mod codec;
pub(crate) mod copy;
pub(crate) mod high_watermark;
pub(crate) mod holdings;
pub(crate) mod holes;
pub(crate) mod left;
mod logs;
pub(crate) mod marks;
pub(crate) mod pace;
pub(crate) mod pages;
pub(crate) mod promises;
pub(crate) mod remains;
pub(crate) mod table;
mod tombstones;
pub(crate) mod wire;
