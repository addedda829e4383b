//! What a reader of the listed segments sees, compared with everything that was ever acknowledged or decided.

use super::retention::TOMBSTONES_STAY_MS;
use super::*;
use crate::record::Record;

impl World {
    /// The records of the sealed segments that these metadata list, from the partition's start on, and where these segments end.
    pub(super) fn view(&self, state: &Metadata) -> (Vec<Record>, Offset) {
        let Some(topic) = state.topics.get(&TOPIC) else { return (Vec::new(), Offset(0)) };
        let partition = &topic.partitions[0];
        let start = partition.log_start();
        let is_sealed = |listed: &&metadata::Segment| matches!(listed.state, SegmentState::Sealed(_));
        let sealed = partition.segments.iter().filter(is_sealed).map(|listed| listed.descriptor.id);
        let (mut all, mut end) = (Vec::new(), start);
        for segment in sealed {
            all.extend(self.records(segment).into_iter().filter(|record| record.offset >= start));
            end = self.range(segment).map_or(end, |(_, to)| to);
        }
        (all, end)
    }

    /// Checks what a reader of the listed segments sees: nothing that was never written, of each key its last record, unless that
    /// is gone or a tombstone, and nothing of a key whose last record is a tombstone but older tombstones.
    pub(super) fn check_view(&mut self) -> Checked {
        if !self.setting.cleans || self.promised.is_forgotten {
            return Ok(());
        }
        let Some(start) = self.partition().map(metadata::Partition::log_start) else { return Ok(()) };
        let (view, end) = self.view(&self.metadata.state);
        let all = self.all_records();
        let written: BTreeSet<Record> = all.iter().copied().collect();
        if let Some(strange) = view.iter().find(|record| !written.contains(record)) {
            return violation(format!("S5: {strange:?} is read and was never acknowledged or decided"));
        }
        let (last_seen, last) = (last_of_keys(&view), last_of_keys(&all));
        // What was called gone may be gone, though the metadata have forgotten that they did.
        let start = start.max(self.promised.gone_to);
        for (key, newest) in &last {
            let seen = last_seen.get(key);
            if newest.offset < start || newest.offset >= end || seen == Some(newest) {
                continue;
            }
            match seen {
                _ if !newest.is_tombstone() => {
                    return violation(format!(
                        "S12: the last value of a key is gone: {newest:?}, read {seen:?}"
                    ));
                }
                Some(older) if !older.is_tombstone() => {
                    return violation(format!(
                        "S13: {newest:?} deleted a key that has a value again: {older:?}"
                    ));
                }
                _ => self.check_tombstone(newest)?,
            }
        }
        self.note_alone(&view, &last);
        Ok(())
    }

    /// Checks that a tombstone that is gone was for long enough all that was left of its key.
    fn check_tombstone(&self, gone: &Record) -> Checked {
        match self.promised.alone_since.get(&gone.offset) {
            Some(since) if since + TOMBSTONES_STAY_MS > self.now_ms => {
                violation(format!("S14: {gone:?} is gone at {}, and was alone since {since}", self.now_ms))
            }
            _ => Ok(()),
        }
    }

    /// Notes the tombstones that are all that is left of their keys.
    fn note_alone(&mut self, view: &[Record], last: &BTreeMap<u8, Record>) {
        let now_ms = self.now_ms;
        for tombstone in last.values().filter(|record| record.is_tombstone()) {
            let older = view.iter().any(|record| {
                record.key() == tombstone.key() && record.offset < tombstone.offset && !record.is_tombstone()
            });
            if !older && view.contains(tombstone) {
                Arc::make_mut(&mut self.promised).alone_since.entry(tombstone.offset).or_insert(now_ms);
            }
        }
    }

    /// Checks what a command has done to what is read: nothing goes but what clients deleted or what is old enough by the real time.
    pub(super) fn check_change(&mut self, before: &Metadata) -> Checked {
        let of = |state: &Metadata| state.topics.get(&TOPIC).map(|topic| topic.partitions[0].clone());
        let (Some(old), Some(new)) = (of(before), of(&self.metadata.state)) else { return Ok(()) };
        if !self.setting.cleans || old.version == new.version {
            return Ok(());
        }
        let (from, to) = (old.log_start(), new.log_start());
        let promised = &self.promised;
        let allowed = promised.deleted_to.max(promised.gone_to);
        let age_ms = before.topics[&TOPIC].config.retention().age_ms;
        let is_kept = |record: &&Record| {
            let sent_ms = promised.times.get(&record.batch).copied().unwrap_or(0);
            age_ms.is_none_or(|age_ms| sent_ms + age_ms > self.now_ms)
        };
        let gone = |record: &&Record| record.offset >= from.max(allowed) && record.offset < to;
        let (mut view, _) = self.view(before);
        view.extend(self.all_records().into_iter().filter(|record| record.offset >= view_end(&old)));
        if let Some(kept) = view.iter().filter(gone).find(is_kept) {
            return violation(format!("S15: {kept:?} is gone, and the topic keeps it"));
        }
        let promised = Arc::make_mut(&mut self.promised);
        promised.gone_to = promised.gone_to.max(to);
        promised.trimmed_below = promised.trimmed_below.max(new.trimmed_below);
        self.check_view()
    }

    /// Checks, after a copy was deleted, that what is listed is on as many disks as had to acknowledge it, in whatever form (S7).
    pub(super) fn check_spread(&self) -> Checked {
        let Some(partition) = self.partition() else { return Ok(()) };
        for listed in &partition.segments {
            let id = listed.descriptor.id;
            if listed.descriptor.number < self.promised.trimmed_below
                || !matches!(listed.state, SegmentState::Sealed(_))
            {
                continue;
            }
            let Some((base, end)) = self.range(id) else { continue };
            let range = (base.max(partition.log_start()), end); // what was trimmed before is on no disk
            let wanted = listed.descriptor.write_quorum();
            let has_all = |node: &&Arc<Node>| !node.lost && self.covers(node, range);
            let disks = self.nodes.iter().filter(has_all).count();
            if range.0 < range.1 && disks + self.losses < wanted {
                return violation(format!(
                    "S7: {id:?}, number {}, is left on {disks} disks",
                    listed.descriptor.number
                ));
            }
        }
        Ok(())
    }

    /// Whether the whole copies on a disk together have all of a range of offsets.
    fn covers(&self, node: &Node, (from, end): (Offset, Offset)) -> bool {
        let has = |segment: &SegmentId| {
            self.has_whole(node, *segment)
                || node.held.get(segment).is_some_and(|held| {
                    let value = self.promised.decided.get(segment);
                    !held.stored.promises.trimmed
                        && value
                            .is_some_and(|value| held.stored.holds(self.descriptor(*segment).first(), value))
                })
        };
        let whole = node.plain.keys().chain(node.held.keys()).filter(|segment| has(segment));
        let mut ranges: Vec<(Offset, Offset)> = whole.filter_map(|segment| self.range(*segment)).collect();
        ranges.sort_unstable();
        let reached =
            ranges.into_iter().fold(from, |at, (start, to)| if start <= at { at.max(to) } else { at });
        reached >= end
    }
}

fn view_end(partition: &metadata::Partition) -> Offset {
    partition.segments.last().and_then(|open| open.descriptor.base_offset).unwrap_or(Offset(0))
}

/// The last record of each key.
pub(super) fn last_of_keys(records: &[Record]) -> BTreeMap<u8, Record> {
    records.iter().map(|record| (record.key(), *record)).collect()
}
