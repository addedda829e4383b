//! The commit that writes and syncs what all logs of a store have, who waits for it, and the threads that follow it.

pub(crate) mod engine;
pub(crate) mod tending;
pub(crate) mod thread;
pub(crate) mod waiters;
