//! A consumer group of Kafka's classic protocol (KIP-62, KIP-345, KIP-394) as a pure state machine: who its members are, which
//! generation they form, what each of them reads, and how far the group has come. The machine is told what happened and answers
//! what to do; it does no I/O and knows no clock, no randomness and no task.
//!
//! What a driver owes a [`Group`]: calls come one at a time, and `now` never goes back. The effects of a call are carried out in
//! their order. The driver appends records to the log under which it coordinates the group, in the order of their numbers, and
//! calls [`Group::stored`] once a record is on a write quorum of disks. When a record will never be stored, or nobody knows whether
//! it is, the driver calls [`Group::resign`] and coordinates the group no more: another one restores it from the records. The group
//! answers nothing that a record has to bear out before that record is stored.
//!
//! A [`Coordinator`] is that driver for all groups of one log, as far as nothing has to be done: it keeps their records in the order
//! in which they are appended, and knows when something is due.

mod codec;
mod coordinator;
mod effect;
mod forgetting;
mod group;
mod joining;
mod leaving;
mod member;
mod offsets;
mod queued;
mod record;
mod replayed;
mod request;
mod sharing;
mod subscription;

pub use codec::{GroupName, Key, Unreadable};
pub use coordinator::{Coordinator, Forgetting, Lot};
pub use effect::{Answer, Effect, Joined, Refusal, Synced, Ticket};
pub use group::{Group, Limits, Phase};
pub use member::MemberView;
pub use offsets::{Committed, Place};
pub use record::{GroupRecord, MemberRecord, Record};
pub use replayed::Replayed;
pub use request::{Commit, Join, Leave, Protocol, Sync, Who};
