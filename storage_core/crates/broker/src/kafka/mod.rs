//! Kafka's protocol: what a client of any library for Kafka needs to produce, to fetch, to share work in groups, and to
//! look after a cluster.
//!
//! `frame` and `schema` look at bytes of strangers before anything is allocated for what these claim; `kafka_protocol` decodes
//! what they let through. `session` keeps one connection, whose requests are answered in their order; each API has a file.

mod admin;
mod answer;
mod api_versions;
mod apis;
mod clients;
mod context;
mod creation;
mod dispatch;
mod epochs;
mod errors;
mod fetch;
mod fetch_answer;
mod fetched;
pub(crate) mod frame;
mod groups;
mod init_producer_id;
mod leaders;
mod list_offsets;
mod listener;
mod metadata;
mod offset_for_leader_epoch;
mod produce;
mod refusals;
pub(crate) mod request;
mod schema;
mod session;
mod telling;
mod traffic;
pub(crate) mod validation;
mod window;

#[cfg(test)]
pub(crate) mod tried;

pub(crate) use context::Listener;
pub(crate) use listener::serve;
pub(crate) use traffic::traffic;
