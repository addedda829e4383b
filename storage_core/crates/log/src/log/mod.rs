//! A log in memory and in its blocks: appends, reads, and its part in a commit. Nothing here waits for a commit.

pub(crate) mod block;
pub(crate) mod capture;
pub(crate) mod floor;
mod mend;
pub(crate) mod open_block;
pub(crate) mod producers;
mod reader;
pub(crate) mod scan;
pub(crate) mod state;
pub(crate) mod times;

pub use floor::{Floor, FloorReason, Retention};
pub use producers::{Admission, ProducerTable};
pub use reader::Slices;
