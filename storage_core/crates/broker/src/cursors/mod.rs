//! Shared cursors of topics, for `GET` of the text protocol: entries go out at least once, whichever node is asked.
//!
//! A cursor belongs to a topic's uuid. Its place is a partition of the internal topic `__cursors`, and whoever leads
//! that partition's open segment owns it: reserves entries for connections and records there what was delivered.
//! `reservation`, `progress` and `ledger` decide, `owner` reads ahead, `service` asks the owner of a topic's cursor, `consumer` is
//! what a connection holds, `marks` tells the metadata how far cursors have come. How owners are found, take over and record is
//! the business of [`crate::owners`].

mod consumer;
mod ledger;
mod marks;
mod messages;
mod owner;
mod pages;
mod progress;
mod reservation;
mod service;
mod terms;

pub use consumer::Consumer;
pub(crate) use marks::keep_told;
pub use service::CursorService;
