//! Owners decide, without any I/O: each partition of one of Walrus's own topics has one, the node that leads the partition's open
//! segment. [`Tenure`] is what one node knows of owning one partition: under which segment it serves, what it appends next and to
//! which segment, what it trims. [`Ledger`] is what is kept there in memory: cursors, or consumer groups.
//!
//! What a driver owes a [`Tenure`]: before [`Tenure::begin`] it has asked every other node to hand over below that segment, and has
//! replayed all that is stored. It has one append in flight. Where late records are wrong, it appends to the segment that
//! [`Tenure::appends_to`] names and to no other, and calls [`Tenure::resign`] when nobody knows what became of an append.

mod ledger;
mod tenure;

pub use ledger::{Entry, Late, Ledger};
pub use tenure::{ServedSegment, Step, Tenure, Term, Trim, Worth};
