//! What the whole node shares and every room may use.

pub(crate) mod budget;
pub(crate) mod names;
