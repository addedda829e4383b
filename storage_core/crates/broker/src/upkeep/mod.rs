//! Loops that keep this node's copies, and the segments that it leads, as they should be.

pub(crate) mod catch_up;
pub(crate) mod compaction;
pub(crate) mod departure;
mod emptied;
mod fate;
mod giving_up;
pub(crate) mod hand_over;
pub(crate) mod holes;
pub(crate) mod lag;
pub(crate) mod left;
pub(crate) mod repair;
pub(crate) mod retiring;
pub(crate) mod space;
pub(crate) mod spread;
pub(crate) mod successors;
pub(crate) mod wholeness;
