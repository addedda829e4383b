//! The ends of segments whose leaders cannot say where they are: who takes that up, and how it is decided.

pub(crate) mod publish;
pub(crate) mod recovery;
pub(crate) mod succession;
