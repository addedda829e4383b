//! The commit that writes and syncs what all logs of a store have, and the tasks and threads that wait for it.

pub(crate) mod committer;
mod marks;
mod registry;
pub(crate) mod thread;
mod waiters;
mod write;
