//! Retention of one log: its rules, who holds what, and the trims that follow.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::log::Log;
use crate::clock::now_ms;
use crate::error::{Error, Result};
use crate::log::floor::{BlockStanding, Floor, Retention, Standing, floor};
use crate::log::state::LogState;
use crate::page::PAGE_BYTES;
use crate::sync::{Mutex, atomic::AtomicBool};
use crate::types::Offset;

#[derive(Default)]
pub(crate) struct Retaining {
    rules: Mutex<Rules>,
    /// There are rules: a look is asked for when a block is filled.
    has_rules: AtomicBool,
    /// Consumption counts: cursors ask for a look when they have passed a block.
    is_consumed: AtomicBool,
    /// A look is on its way.
    is_asked: AtomicBool,
}

#[derive(Default)]
struct Rules {
    retention: Retention,
    /// The highest trim asked for.
    trim: u64,
    /// (who, from which offset on), by number.
    holds: BTreeMap<u64, (String, u64)>,
    next_hold: u64,
}

/// Keeps a log's records from an offset on, against its retention and trims, until it is dropped. Not remembered over a
/// restart.
#[must_use = "nothing is held once it is dropped"]
pub struct Hold {
    log: Log,
    number: u64,
}

impl Log {
    /// What this open store forgets of the log by itself, in the background: whole blocks, whenever one is filled, a
    /// named cursor has passed one, or has become old. Not remembered over a restart.
    pub fn set_retention(&self, retention: Retention) {
        self.state().engine.assert_origin();
        let state = self.state();
        let (has_rules, has_age) = (retention != Retention::default(), retention.age.is_some());
        state.retaining.has_rules.store(has_rules, Ordering::Relaxed);
        state.retaining.is_consumed.store(!retention.consumed_by.is_empty(), Ordering::Relaxed);
        state.retaining.rules.lock().retention = retention;
        state.engine.retain_in_background(state, has_rules, has_age);
    }

    /// What [`Log::set_retention`] said.
    pub fn retention(&self) -> Retention {
        self.state().engine.assert_origin();
        self.state().retaining.rules.lock().retention.clone()
    }

    /// Where the log may begin now, and why.
    pub fn floor(&self) -> Floor {
        self.state().engine.assert_origin();
        self.state().floor(now_ms())
    }

    /// Forgets records below `before`, as far as nobody holds them: what is held goes when it is let go. Durable on
    /// return, but where the log never syncs. Gives where the log begins now, and why.
    pub fn trim(&self, before: Offset) -> Result<Floor> {
        self.state().engine.check_open()?;
        let state = self.state();
        let (start, end) = (self.start_offset(), self.durable_offset());
        if before > end {
            return Err(Error::OffsetOutOfRange { requested: before, start, end });
        }
        let mut rules = state.retaining.rules.lock();
        rules.trim = rules.trim.max(before.0);
        drop(rules);
        let floor = state.floor(now_ms());
        state.delete_before(floor.offset.0)?;
        Ok(floor)
    }

    /// Holds the records from an offset on; `by` names who does, for the reasons of floors.
    pub fn hold(&self, by: &str, offset: Offset) -> Hold {
        self.state().engine.assert_origin();
        let mut rules = self.state().retaining.rules.lock();
        let number = rules.next_hold;
        rules.next_hold += 1;
        rules.holds.insert(number, (by.to_owned(), offset.0));
        drop(rules);
        Hold { log: self.clone(), number }
    }
}

impl Hold {
    /// Holds from another offset on.
    pub fn advance(&self, to: Offset) {
        self.log.state().engine.assert_origin();
        if let Some((_, at)) = self.log.state().retaining.rules.lock().holds.get_mut(&self.number) {
            *at = to.0;
        }
        self.log.state().ask_retain();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let state = self.log.state();
        // A forked child holds nothing, and must not wait for locks of its parent.
        if state.engine.check_origin().is_err() {
            return;
        }
        state.retaining.rules.lock().holds.remove(&self.number);
        state.ask_retain();
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hold").field("log", &self.log).field("number", &self.number).finish()
    }
}

impl LogState {
    /// Looks at the log as it is, and decides.
    fn floor(&self, now_ms: i64) -> Floor {
        let rules = self.retaining.rules.lock();
        let mut holds: Vec<_> = rules.holds.values().cloned().collect();
        let start = self.start.load(Ordering::Acquire);
        let place = |name: &String| self.cursor_place(name).unwrap_or(start);
        let consumers: Vec<u64> = rules.retention.consumed_by.iter().map(place).collect();
        holds.extend(rules.retention.pinned_by.iter().map(|name| (name.clone(), place(name))));
        let closed = |block: &Arc<crate::log::block::Block>| {
            let closed = block.closed.get()?;
            let bytes = closed.data_end - PAGE_BYTES;
            Some(BlockStanding { end: closed.end_offset, max_timestamp: closed.max_timestamp, bytes })
        };
        let blocks: Vec<_> = self.directory.read().blocks.iter().map_while(closed).collect();
        let standing = Standing {
            start,
            end: self.readable.load(Ordering::Acquire),
            now_ms,
            blocks: &blocks,
            size_bytes: self.size_bytes.load(Ordering::Relaxed),
            trim: rules.trim,
            consumers: &consumers,
            holds: &holds,
        };
        floor(&rules.retention, &standing)
    }

    /// Asks the background for a look, once.
    pub(crate) fn ask_retain(&self) {
        if !self.retaining.is_asked.swap(true, Ordering::AcqRel) {
            self.engine.tending.retain(self.id);
        }
    }

    /// A block was filled: it may be one too many.
    pub(crate) fn ask_retain_if_ruled(&self) {
        if self.retaining.has_rules.load(Ordering::Relaxed) {
            self.ask_retain();
        }
    }

    /// A cursor went on: where that counts, its log may begin later.
    pub(crate) fn note_consumed(&self, next: u64) {
        if self.retaining.is_consumed.load(Ordering::Relaxed) && self.frees_blocks(next) {
            self.ask_retain();
        }
    }

    /// Whether a log that begins there has a block less.
    fn frees_blocks(&self, start: u64) -> bool {
        let directory = self.directory.read();
        let first = directory.blocks.first().and_then(|block| block.closed.get());
        first.is_some_and(|closed| closed.end_offset <= start)
    }

    /// Forgets what may go, where that gives space back or was asked for: the background thread's part.
    pub(crate) fn retain(&self) -> Result<()> {
        self.retaining.is_asked.store(false, Ordering::Release);
        let Floor { offset: Offset(offset), .. } = self.floor(now_ms());
        let is_asked_for = self.retaining.rules.lock().trim >= offset;
        if offset > self.start.load(Ordering::Acquire) && (is_asked_for || self.frees_blocks(offset)) {
            self.delete_before(offset)?;
        }
        Ok(())
    }
}
