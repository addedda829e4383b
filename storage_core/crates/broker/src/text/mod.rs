//! The original's text protocol: REGISTER, PUT, GET, STATE, METRICS, and ours beside them.

mod answer;
mod arrivals;
pub(crate) mod codec;
pub(crate) mod command;
mod execution;
mod listener;
mod session;
mod traffic;

pub(crate) use listener::serve;
