//! Copies of segments on this node. So far what rotted in those that are not sealed; the others are in `replication`.

pub(crate) mod holes;
