//! What somebody needs who writes a log again, into another one, with only the last record of each key: a map of the keys
//! in fixed memory, and a sieve that makes the batches that stay. It knows no log: batches come in, bytes go out.

mod keys;
mod sieve;

pub use keys::{KeyMap, Noted};
pub use sieve::{Sieve, SieveRules, Sieved};
