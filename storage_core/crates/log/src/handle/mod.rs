//! What a log can be asked for that needs the commit of its store, or follows from one: appends and their tickets, cursors,
//! seals, trims, truncations, groups, compactions.

mod arrival;
mod clean;
mod compaction;
pub(crate) mod cursors;
pub(crate) mod group;
mod holes;
mod lifecycle;
pub(crate) mod log;
pub(crate) mod retention;
pub(crate) mod ticket;

pub use arrival::Arrival;
pub use compaction::Compacted;
pub use cursors::Cursor;
pub use log::{Appended, Log, Sealed};
pub use retention::Hold;
pub use ticket::CommitTicket;
