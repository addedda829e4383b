//! Where a segment ends whose leader cannot say so: who takes that up, and how it is decided.

pub(crate) mod publish;
pub(crate) mod recovery;
pub(crate) mod succession;
