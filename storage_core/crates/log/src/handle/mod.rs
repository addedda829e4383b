//! Handles of logs, and everything asked of a log that needs the commit of its store or follows from one: appends and
//! their tickets, cursors, seals, trims, truncations, groups, compactions; and the close of the store.

mod arrival;
mod clean;
mod compaction;
pub(crate) mod cursors;
pub(crate) mod group;
mod holes;
pub(crate) mod life;
mod log;
mod member;
mod places;
mod reshape;
mod retention;
mod seal;
mod tending;
mod ticket;
mod trim;
mod truncate;

pub use arrival::Arrival;
pub use compaction::CompactionReport;
pub use cursors::Cursor;
pub use log::{AppendReceipt, Log, Seal};
pub use retention::Hold;
pub use ticket::CommitTicket;
