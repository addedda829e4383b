//! What this node knows of its cluster, for whoever must ask before it acts.

pub(crate) mod barrier;
mod known;
