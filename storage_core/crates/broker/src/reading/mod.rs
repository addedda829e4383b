//! Reading records, whichever node stores them.

pub(crate) mod reader;
