//! What the whole node shares and every room may use.

pub(crate) mod budget;
pub(crate) mod names;
pub(crate) mod refusal;
pub(crate) mod secret;
pub(crate) mod start_error;
pub(crate) mod strangers;
pub(crate) mod versions;
