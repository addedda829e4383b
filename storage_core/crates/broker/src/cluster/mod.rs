//! What this node knows of its cluster, for whoever must ask before it acts.

pub(crate) mod barrier;
pub(crate) mod control;
mod known;
pub(crate) mod liveness;
pub(crate) mod news;
pub(crate) mod routing;
pub(crate) mod segment;
pub(crate) mod standing;
