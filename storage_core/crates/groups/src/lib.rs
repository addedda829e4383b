//! A consumer group of Kafka's classic protocol (KIP-62, KIP-345, KIP-394) as a pure state machine: who its members are, which
//! generation they form, what each of them reads, and how far the group has come. The machine is told what happened and answers
//! what to do; it does no I/O and knows no clock, no randomness and no task.
//!
//! What a driver owes a [`Group`]: calls come one at a time, and `now` never goes back. The effects of a call are carried out in
//! their order. A record is appended to the log under which the driver coordinates the group, records of one group in the order
//! of their numbers; [`Group::stored`] is called once a record is on a write quorum of disks, and [`Group::not_stored`] when it
//! will never be, or when nobody knows. After that the driver no longer coordinates the group: another one restores it from the
//! records. Nothing is answered that a record has to bear out before the record is stored.

mod effect;
mod group;
mod joining;
mod leaving;
mod member;
mod offsets;
mod record;
mod request;
mod sharing;

pub use effect::{Answer, Effect, Joined, Refusal, Synced, Ticket};
pub use group::{Group, Limits, Phase};
pub use member::{MemberView, Protocol};
pub use offsets::{Committed, Place};
pub use record::{GroupRecord, MemberRecord, Record};
pub use request::{Commit, Join, Leave, Sync, Who};
