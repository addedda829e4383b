//! Shared cursors of topics: `GET` of the text protocol, at least once, the same for every node.
//!
//! A cursor belongs to a topic's uuid. Its place is a partition of the internal topic `__cursors`, and whoever leads
//! that partition's open segment owns it: reserves entries for connections and records there what was delivered.
//! `reservation`, `progress` and `ledger` decide, `owner` stores and reads, `hand_over` takes over from the owner before,
//! `service` finds the owner, `consumer` is what a connection holds.

mod consumer;
mod hand_over;
mod ledger;
mod messages;
mod owner;
mod pages;
mod progress;
mod reservation;
mod service;
mod terms;

pub use consumer::Consumer;
pub use service::CursorService;
