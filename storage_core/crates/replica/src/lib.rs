//! Replication of a segment as pure state machines: [`Leader`], [`Replica`] and [`Recoverer`]. A machine is told what
//! happened (`step`) and answers what to do; it does no I/O and knows no clock, no randomness and no task. The broker,
//! the simulator and the model checker drive the same types.
//!
//! The rules are in `docs/internals/replication.md`; comments here name them as R1 to R15, invariants as S1 to S11.
//!
//! What a driver owes each machine: inputs come one at a time; the outputs of a step are carried out in their order,
//! and none before what is written or persisted in front of it is done. When one fails, the machine is dropped, as if
//! the process had died. Messages may be lost, repeated, delayed and overtaken.

mod batch;
#[cfg(feature = "seeded-bugs")]
mod bug;
mod claim;
mod cut;
mod leader;
mod message;
mod recoverer;
mod replica;
mod tape;

/// Whether a mistake is switched on; a constant `false` without the feature.
macro_rules! seeded {
    ($bug:ident) => {{
        #[cfg(feature = "seeded-bugs")]
        let on = crate::bug::has(crate::bug::Bug::$bug);
        #[cfg(not(feature = "seeded-bugs"))]
        let on = false;
        on
    }};
}
pub(crate) use seeded;

pub use batch::{Batch, Mark};
#[cfg(feature = "seeded-bugs")]
pub use bug::{BUGS, Bug, seed_bug};
pub use claim::{Doubt, OwnCopy, Part, Tail};
pub use cut::CutId;
pub use leader::{Leader, LeaderInput, LeaderOutput, LeaderPhase};
pub use message::{
    Accept, Append, Assigned, Fence, FenceAnswer, Message, Refusal, Reply, Request, SealedNotice,
};
pub use recoverer::{Candidate, Recoverer, RecovererInput, RecovererOutput, RecovererPhase, choose};
pub use replica::{Alarm, Promises, Replica, ReplicaInput, ReplicaOutput};
pub use tape::Tape;
