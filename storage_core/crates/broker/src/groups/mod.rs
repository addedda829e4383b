//! Consumer groups of Kafka's clients.
//!
//! A group has its place in a partition of the internal topic `__groups`, by its organisation and name. Whoever leads that
//! partition's open segment coordinates it. `walrus_groups` decides what a group does; `ledger` holds the groups of a partition and
//! those who wait for an answer, `service` finds the coordinator and asks it, `calls` asks it
//! for another node, `time` does what is due, `marks` tells the metadata how
//! far groups have read, `lag` shows how far they are behind. How owners take over and record is the business of [`crate::owners`].

mod calls;
mod lag;
mod ledger;
mod marks;
mod service;
mod time;

pub(crate) use calls::{GroupDetails, GroupSummary};
pub(crate) use lag::keep_measured;
pub(crate) use ledger::LIMITS;
pub(crate) use marks::keep_told;
pub(crate) use service::{GroupService, GroupView};
pub(crate) use time::keep_time;
