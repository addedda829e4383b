//! Assembles one log from its blocks: blocks that do not count any more are freed, the others follow each other up to
//! where the log is torn.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::rebuild::{Chain, Findings, Rebuild};
use super::report::CorruptedRange;
use super::slots::FoundBlock;
use crate::error::Result;
use crate::format::block_header::BlockHeader;
use crate::log::directory::Directory;
use crate::log::restore::Contents;
use crate::log::state::LogState;
use crate::resources::journal::{Compaction, Record};
use crate::seeded;
use crate::types::Offset;

impl Rebuild<'_> {
    /// Assembles the log from its blocks, which come in any order.
    pub(super) fn run(mut self, mut found: Vec<FoundBlock>) -> Result<(Arc<LogState>, Findings)> {
        let entry = self.entry;
        found.sort_unstable_by_key(|found| (found.header.base_offset, found.header.sequence));
        let live = self.drop_dead(found)?;
        let last_sequence = live.iter().map(|found| found.header.sequence).max().unwrap_or(0);
        let mut chain = Chain {
            directory: Directory::default(),
            end: live.first().map_or(entry.start, |first| first.header.base_offset.min(entry.start)),
            producers: entry.producers_behind_trim(),
            digest: entry.trimmed_digest,
            size_bytes: 0,
            resume: None,
            is_torn: false,
            is_cut: false,
        };
        let torn_group = self.torn_group(&live)?;
        let mut rest = VecDeque::from(live);
        for index in 0.. {
            let Some(found) = rest.pop_front() else { break };
            chain.is_torn |= torn_group == Some(index);
            if chain.is_torn {
                self.take_away(&mut chain, &found)?;
            } else {
                self.add(&mut chain, &found, rest.make_contiguous())?;
            }
        }
        // Synced offsets that no block has any more are damage, and are not given again.
        let known = self.known();
        if chain.end < known {
            chain.directory.fences.push((chain.end, known));
            chain.close_resume();
            chain.end = known;
        }
        // The log was trimmed and nothing of it was synced: no offset below its start is given again.
        if chain.end < entry.start {
            chain.close_resume();
            chain.end = entry.start;
        }
        if chain.is_cut && !seeded!(FollowersNotCut) {
            // Until the slots of the blocks behind are zeroed, those blocks would follow again once the log has grown,
            // so they are cut as by a truncation. The log goes on in a new block, since a position is not used twice
            // under one sequence.
            chain.close_resume();
            let before = self.resources.blocks.peek_sequence();
            self.resources.journal.append(&Record::LogTruncated { log: self.id, end: chain.end, before })?;
        }
        if entry.sealed.is_some() {
            chain.close_resume();
        }
        self.finish(chain, last_sequence)
    }

    /// Frees blocks that compactions, truncations and trims have left over.
    fn drop_dead(&mut self, found: Vec<FoundBlock>) -> Result<Vec<FoundBlock>> {
        let (cut, live): (Vec<_>, Vec<_>) = found.into_iter().partition(|FoundBlock { header, .. }| {
            header.base_offset >= self.cap(header.sequence) || self.is_replaced(header)
        });
        // A trim may have left blocks though the log's start lies behind them, and its digest and producers do not
        // cover them yet.
        let below = live.iter().take_while(|found| found.header.base_offset < self.entry.freed).count();
        let mut live = live;
        let kept = live.split_off(below);
        for dead in cut.into_iter().chain(live) {
            self.findings.foreign.extend(dead.let_go(&self.resources.blocks)?);
        }
        Ok(kept)
    }

    /// Whether another block stands for this one after a compaction, or the journal does not name a compacted block.
    fn is_replaced(&self, header: &BlockHeader) -> bool {
        let &BlockHeader { sequence, base_offset, replaces_to, .. } = header;
        let compactions = &self.entry.compactions;
        let is_said = replaces_to == 0 || compactions.iter().any(|said| said.sequence == sequence);
        let is_replaced = |said: &Compaction| sequence < said.sequence && said.has(base_offset);
        !is_said || compactions.iter().any(is_replaced)
    }

    fn finish(self, chain: Chain, last_sequence: u64) -> Result<(Arc<LogState>, Findings)> {
        let Self { resources, queues, id, entry, is_vouched_for, mut findings, .. } = self;
        let Chain { directory, end, producers, digest, size_bytes, resume, is_torn, .. } = chain;
        for &(start, end) in &directory.fences {
            tracing::error!(log = %id, start, end, "stored batches are damaged");
            resources.corrupted_ranges.fetch_add(1, Ordering::Relaxed);
            findings.corrupted.push(CorruptedRange { log: id, start: Offset(start), end: Offset(end) });
        }
        let was_cut = is_torn || !findings.torn_tails.is_empty();
        let may_lack = entry.sealed.is_none() && !is_vouched_for;
        // Damage in the middle of a log is known in full; behind damage at its end there may have been more.
        let ends_damaged = directory.fences.last().is_some_and(|(_, fence_end)| *fence_end == end);
        let suspect = was_cut || ends_damaged || may_lack;
        if suspect && !entry.suspect {
            resources.journal.append(&Record::Suspect { log: id, end })?;
        }
        let contents = Contents { directory, end, producers, digest, size_bytes, resume, last_sequence };
        let log = LogState::restored(Arc::clone(resources), Arc::clone(queues), id, entry, contents);
        log.suspect.fetch_or(suspect, Ordering::AcqRel);
        Ok((Arc::new(log), findings))
    }
}
