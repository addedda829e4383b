//! Readers that go through a partition page by page, each page from whatever node answers, as that node knows the metadata.

use super::retention::TOMBSTONES_STAY_MS;
use super::*;
use crate::record::Record;

/// Records in a page of a reader.
const PAGE: usize = 4;

/// A reader on its way.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    /// Where it began; `None` if it has not.
    from: Option<Offset>,
    next: Offset,
    /// The last record of each key that it has seen.
    seen: BTreeMap<u8, Record>,
    /// The earliest and the latest time of the metadata by which a page was read.
    earliest_ms: u64,
    latest_ms: u64,
}

impl World {
    /// Reads a page from a node. At the end of what is sealed the reader has seen the last value of each key; it answers whether it
    /// got there.
    pub fn read_page(&self, id: NodeId, known: &Committed, reader: &mut Reader) -> Result<bool, Violation> {
        let Some(topic) = known.state.topics.get(&TOPIC) else { return Ok(false) };
        let partition = &topic.partitions[0];
        if reader.from.is_none_or(|_| reader.next < partition.log_start()) {
            let at = partition.log_start();
            *reader = Reader { from: Some(at), next: at, earliest_ms: u64::MAX, ..Reader::default() };
        }
        let reached_ms = known.state.reached_ms();
        let has_next = |listed: &&metadata::Segment| {
            let base = listed.descriptor.base_offset;
            matches!(&listed.state, SegmentState::Sealed(value) if reader.next < value.end && base <= Some(reader.next))
        };
        let Some(listed) = partition.segments.iter().find(has_next) else {
            let is_behind = reader.next
                >= partition
                    .segments
                    .last()
                    .and_then(|last| last.descriptor.base_offset)
                    .unwrap_or(Offset(0));
            return if is_behind { self.check_seen(reader).map(|()| true) } else { Ok(false) };
        };
        let (segment, node) = (listed.descriptor.id, self.node(id));
        if !node.up || !self.has_whole(node, segment) {
            return Ok(false);
        }
        let Some((_, end)) = self.range(segment) else { return Ok(false) };
        let there = self.records_on(node, segment);
        let mut rest = there.into_iter().filter(|record| record.offset >= reader.next);
        let page: Vec<Record> = rest.by_ref().take(PAGE).collect();
        reader.next = rest.next().map_or(end, |next| next.offset);
        reader.seen.extend(page.into_iter().map(|record| (record.key(), record)));
        reader.earliest_ms = reader.earliest_ms.min(reached_ms);
        reader.latest_ms = reader.latest_ms.max(reached_ms);
        Ok(false)
    }

    /// Checks what a reader saw between its beginning and its end: of each key the last record, unless it is a tombstone and the
    /// reader took longer than tombstones stay.
    fn check_seen(&self, reader: &Reader) -> Checked {
        if self.promised.is_forgotten {
            return Ok(());
        }
        let from = reader.from.unwrap_or(Offset(0)).max(self.promised.gone_to);
        let is_fast = reader.latest_ms < reader.earliest_ms.saturating_add(TOMBSTONES_STAY_MS);
        for (key, newest) in super::views::last_of_keys(&self.all_records()) {
            let seen = reader.seen.get(&key);
            if newest.offset < from || newest.offset >= reader.next || seen == Some(&newest) {
                continue;
            }
            let is_deleted =
                newest.is_tombstone() && (!is_fast || seen.is_none_or(|seen| seen.is_tombstone()));
            if !is_deleted {
                return violation(format!(
                    "S16: a reader saw {seen:?} last of a key, and {newest:?} is behind it"
                ));
            }
        }
        Ok(())
    }
}
