//! The text protocol: the original's REGISTER, PUT, GET, STATE and METRICS, and commands that Walrus adds.

mod answer;
mod arrivals;
pub(crate) mod codec;
pub(crate) mod command;
mod execution;
mod listener;
mod session;
mod traffic;

pub(crate) use listener::serve;
pub(crate) use traffic::traffic;
