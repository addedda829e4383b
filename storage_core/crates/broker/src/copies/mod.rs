//! Copies of segments on this node. So far the bytes of what a disk remembers of them, and what rotted in those that are not sealed, and the logs of disks that have no votes any more;
//! the others are in `replication`.

pub(crate) mod codec;
pub(crate) mod holes;
pub(crate) mod left;
