//! The retention of one log as its users set it: rules, holds, and trims that respect them.

use std::sync::atomic::Ordering;

use super::log::Log;
use crate::clock::now_ms;
use crate::commit::committer::Committer;
use crate::error::{Error, Result};
use crate::log::floor::{Floor, Retention};
use crate::types::Offset;

/// Keeps a log's records from an offset on, against its retention and trims, until it is dropped. A restart forgets
/// it.
#[must_use = "nothing is held once it is dropped"]
pub struct Hold {
    log: Log,
    number: u64,
}

impl Log {
    /// Sets the rules by which this open store forgets records of the log in the background. It forgets whole blocks,
    /// and looks whenever a block is filled, a named cursor has passed one, or one has become old. A restart forgets
    /// the rules.
    pub fn set_retention(&self, retention: Retention) {
        self.resources().assert_origin();
        let state = self.state();
        let (has_rules, has_age) = (retention != Retention::default(), retention.age.is_some());
        state.retention.has_rules.store(has_rules, Ordering::Relaxed);
        state.retention.is_consumed.store(!retention.consumed_by.is_empty(), Ordering::Relaxed);
        state.retention.rules.lock().retention = retention;
        let Committer { registry, queues, .. } = &*self.member().committer;
        registry.set_aged(state.id, has_age);
        if has_age {
            queues.chores.apply_aged_retention_later();
        }
        if has_rules {
            state.ask_retention();
        }
    }

    /// The rules that [`Log::set_retention`] has set.
    pub fn retention(&self) -> Retention {
        self.resources().assert_origin();
        self.state().retention.rules.lock().retention.clone()
    }

    /// First offset that the log has to keep now, and why.
    pub fn floor(&self) -> Floor {
        self.resources().assert_origin();
        self.state().floor(now_ms())
    }

    /// Forgets records below `before`, as far as nobody holds them; held records go when their hold is dropped or
    /// advanced. Durable on return, unless the log never syncs. Gives the offset where the log begins now, and why.
    pub fn trim(&self, before: Offset) -> Result<Floor> {
        self.resources().check_open()?;
        let state = self.state();
        let (start, end) = (self.start_offset(), self.durable_offset());
        if before > end {
            return Err(Error::OffsetOutOfRange { requested: before, start, end });
        }
        let mut rules = state.retention.rules.lock();
        rules.trim = rules.trim.max(before.0);
        drop(rules);
        let floor = state.floor(now_ms());
        self.member().delete_before(floor.offset.0)?;
        Ok(floor)
    }

    /// Holds the records from `offset` on; `by` names the holder in [`FloorReason::Held`](crate::FloorReason::Held).
    pub fn hold(&self, by: &str, offset: Offset) -> Hold {
        self.resources().assert_origin();
        let mut rules = self.state().retention.rules.lock();
        let number = rules.next_hold;
        rules.next_hold += 1;
        rules.holds.insert(number, (by.to_owned(), offset.0));
        drop(rules);
        Hold { log: self.clone(), number }
    }
}

impl Hold {
    /// Moves the hold to another offset.
    pub fn advance(&self, to: Offset) {
        self.log.resources().assert_origin();
        if let Some((_, at)) = self.log.state().retention.rules.lock().holds.get_mut(&self.number) {
            *at = to.0;
        }
        self.log.state().ask_retention();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let state = self.log.state();
        // A forked child holds nothing, and must not wait for locks of its parent.
        if self.log.resources().check_origin().is_err() {
            return;
        }
        state.retention.rules.lock().holds.remove(&self.number);
        state.ask_retention();
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hold").field("log", &self.log).field("number", &self.number).finish()
    }
}
