//! Owners: each partition of one of Walrus's own topics has one, the node that leads the partition's open segment. It keeps in
//! memory what the partition's records say together, serves it, and records there what changes.
//!
//! Cursors and consumer groups are kept so. `ledger` is what each of the two has to bring, `owner` takes over, records, and
//! lets old records go, `hand_over` asks those who served before, `finder` finds the owner and asks it, again when it
//! moves, `marks` tells how far somebody has read.

mod finder;
mod hand_over;
mod ledger;
mod marks;
mod owner;

pub(crate) use finder::Finder;
pub(crate) use ledger::{Ledger, Unreadable};
pub(crate) use marks::keep_told;
pub(crate) use owner::Owner;
