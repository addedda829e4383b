//! What is asked of a log's retention: its rules, trims and holds. They are in memory only.

use std::collections::BTreeMap;

use super::floor::Retention;
use crate::sync::{Mutex, atomic::AtomicBool};

/// What is asked of a log's retention, and whether anybody has to look.
#[derive(Default)]
pub(crate) struct RetentionState {
    pub(crate) rules: Mutex<Rules>,
    /// There are rules: a look is asked for when a block is filled.
    pub(crate) has_rules: AtomicBool,
    /// Consumption counts: cursors ask for a look when they have passed a block.
    pub(crate) is_consumed: AtomicBool,
    /// A look is on its way.
    pub(crate) is_asked: AtomicBool,
}

/// All that decides what a log may forget, but for the log itself and its cursors.
#[derive(Default)]
pub(crate) struct Rules {
    pub(crate) retention: Retention,
    /// The highest trim asked for.
    pub(crate) trim: u64,
    /// (who, from which offset on), by number.
    pub(crate) holds: BTreeMap<u64, (String, u64)>,
    pub(crate) next_hold: u64,
}
