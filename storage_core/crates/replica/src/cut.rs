//! Cuts of torn tails, which only the replicas name.

/// One cut of a torn tail, by the process incarnation that found it at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CutId(pub u128);
