//! Copies of segments on this node. So far the bytes of what a disk remembers of them, and what rotted in those that are not sealed;
//! the others are in `replication`.

pub(crate) mod codec;
pub(crate) mod holes;
