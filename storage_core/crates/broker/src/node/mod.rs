//! The things that the whole node shares and every room may use.

pub(crate) mod awake;
pub(crate) mod budget;
pub(crate) mod clock;
pub(crate) mod config;
pub(crate) mod differences;
pub(crate) mod error;
pub(crate) mod listener_options;
pub(crate) mod locks;
pub mod metrics;
pub(crate) mod names;
pub(crate) mod obstacle;
pub(crate) mod patience;
pub mod proto;
pub(crate) mod secret;
pub(crate) mod spans;
pub(crate) mod start_error;
mod store_counters;
pub(crate) mod strangers;
pub(crate) mod tasks;
pub(crate) mod versions;
