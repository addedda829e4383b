//! The machines of `walrus-replica` at work: their messages go over the peers' connections, their batches into logs,
//! their promises into the store's journal.

pub(crate) mod answers;
pub(crate) mod catch_up;
pub(crate) mod copies;
pub(crate) mod copy;
pub(crate) mod departure;
pub(crate) mod follower;
pub(crate) mod holdings;
pub(crate) mod lag;
mod logs;
pub(crate) mod marks;
mod pace;
pub(crate) mod pages;
pub(crate) mod promises;
pub(crate) mod recovery;
pub(crate) mod repair;
pub(crate) mod retiring;
pub(crate) mod standing;
pub(crate) mod succession;
mod tombstones;
pub(crate) mod wire;
