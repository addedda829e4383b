//! The retention rules, trims and holds of a log. They are in memory only.

use std::collections::BTreeMap;

use super::floor::Retention;
use crate::sync::{Mutex, atomic::AtomicBool};

/// The retention rules of a log, and flags that tell appends and cursors whether to ask the background to apply them.
#[derive(Default)]
pub(crate) struct RetentionState {
    pub(crate) rules: Mutex<Rules>,
    /// Whether any rule is set: then each filled block asks for a look at what may go.
    pub(crate) has_rules: AtomicBool,
    /// Whether the rules count consumption: then a cursor asks for a look when it has passed a block.
    pub(crate) is_consumed: AtomicBool,
    /// Whether a look was asked for and has not begun.
    pub(crate) is_asked: AtomicBool,
}

/// Everything that decides what a log may forget, apart from its blocks and the places of its cursors.
#[derive(Default)]
pub(crate) struct Rules {
    pub(crate) retention: Retention,
    /// The highest offset that a trim has asked for.
    pub(crate) trim: u64,
    /// Name and first offset of each hold, by the number of the hold.
    pub(crate) holds: BTreeMap<u64, (String, u64)>,
    pub(crate) next_hold: u64,
}
