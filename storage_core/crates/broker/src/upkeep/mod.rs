//! Loops that keep this node's copies as they should be. So far those of holes; the others are in `replication`.

pub(crate) mod holes;
pub(crate) mod wholeness;
