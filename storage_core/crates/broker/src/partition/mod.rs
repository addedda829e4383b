//! The appends of a partition: their order, the leader of its open segment, and the planned end of it.

pub(crate) mod follower;
pub(crate) mod fullness;
pub(crate) mod leader;
pub(crate) mod leadership;
pub(crate) mod roll;
pub(crate) mod sequencer;
pub(crate) mod submission;
pub(crate) mod ticket;
mod window;
