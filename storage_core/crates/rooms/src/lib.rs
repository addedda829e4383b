//! The references between the files of the broker and of the engine, and the rules that keep these in rooms: a room knows
//! those below it, none beside or above it; no files know each other in a circle; few name the facade; a type gets its
//! methods in its own room. `layout.rs` has the rooms.

mod circles;
mod crates;
mod layout;
mod references;
mod rules;
mod summary;
mod tree;

pub use circles::circles;
pub use crates::{Crates, told};
pub use layout::{BROKER, Facade, LAYOUTS, LOG, Layout, METADATA};
pub use references::{Impl, Knowledge, Thing};
pub use rules::{Violation, rooms, violations};
pub use summary::{drawing, summary};
pub use tree::{Sources, read_sources};
