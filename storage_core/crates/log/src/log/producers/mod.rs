//! The producer table of a log: enough of its idempotent producers to tell a retry from a gap (KIP-98). It is a pure
//! function of the batches appended, so every copy of a log has the same table at the same offset.

mod producer;
mod settled;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use crate::batch::ProducerRef;
use crate::error::{Error, Result};
use producer::{BATCHES_KEPT, KeptBatch, Producer};
use settled::Settled;

/// Limit on the producers remembered; one more is refused until some are forgotten.
const PRODUCERS_MAX: usize = 1 << 16;
/// Number of producers from which on quiet ones should be forgotten, so that there is room for new ones until the next roll.
const CROWDED: usize = PRODUCERS_MAX / 8 * 7;
const SEQUENCE_MASK: u32 = i32::MAX as u32;

/// The last batches of each producer, by producer id.
///
/// A log begins with the table of its predecessor, tens of thousands of producers perhaps, of which few write again before the
/// log ends. So what it began with stays as it was encoded, and is shared by all clones; only producers that wrote since are
/// apart.
#[derive(Clone, Debug, Default)]
pub struct ProducerTable {
    settled: Settled,
    /// The producers that wrote since; they hold what `settled` has of the same ones, too.
    recent: HashMap<i64, Producer>,
    /// Number of producers in `recent` that `settled` does not have.
    new: usize,
}

impl PartialEq for ProducerTable {
    fn eq(&self, other: &Self) -> bool {
        self.encode() == other.encode()
    }
}

impl Eq for ProducerTable {}

/// How a log takes a batch that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The batch is the next one of its producer and is appended.
    Accept,
    /// The batch was appended before, at these offsets.
    Duplicate {
        /// Offset that its first record got then.
        base_offset: u64,
        /// First offset behind it.
        end_offset: u64,
    },
}

impl ProducerTable {
    /// A table that knows no producer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of producers remembered.
    pub fn len(&self) -> usize {
        self.settled.len() + self.new
    }

    /// Whether no producer is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Judges a batch of `records` records.
    ///
    /// Errors: `ProducerFenced` for an epoch below the newest; `OutOfOrderSequence` for a gap, a repetition older than
    /// those remembered, or a new epoch that does not start at 0. A producer that is not remembered may start
    /// anywhere, unless there is no room for it: `TooManyProducers`.
    pub fn check(&self, producer: ProducerRef, records: u32) -> Result<Admission> {
        let Some(known) = self.find(producer.id) else {
            if self.len() >= PRODUCERS_MAX {
                return Err(Error::TooManyProducers { producers_max: PRODUCERS_MAX as u64 });
            }
            return Ok(Admission::Accept);
        };
        if producer.epoch < known.epoch {
            let (current, attempted) = (known.epoch, producer.epoch);
            return Err(Error::ProducerFenced { producer: producer.id, current, attempted });
        }
        let expected = if producer.epoch > known.epoch {
            0
        } else {
            let same =
                |kept: &&KeptBatch| kept.base_sequence == producer.base_sequence && kept.records == records;
            if let Some(&KeptBatch { base_offset, .. }) = known.batches.iter().find(same) {
                return Ok(Admission::Duplicate {
                    base_offset,
                    end_offset: base_offset + u64::from(records),
                });
            }
            known.batches.back().map_or(0, |last| sequence_after(last.base_sequence, last.records))
        };
        if producer.base_sequence != expected {
            let got = producer.base_sequence;
            return Err(Error::OutOfOrderSequence { producer: producer.id, expected, got });
        }
        Ok(Admission::Accept)
    }

    /// Remembers a batch that was appended at `base_offset`.
    pub fn record(&mut self, producer: ProducerRef, records: u32, base_offset: u64) {
        let ProducerRef { id, epoch, base_sequence } = producer;
        let known = self.recent.entry(id).or_insert_with(|| {
            self.settled.find(id).unwrap_or_else(|| {
                self.new += 1;
                Producer { epoch, batches: VecDeque::new() }
            })
        });
        if known.epoch != epoch {
            *known = Producer { epoch, batches: VecDeque::new() };
        }
        if known.batches.len() == BATCHES_KEPT {
            known.batches.pop_front();
        }
        known.batches.push_back(KeptBatch { base_sequence, records, base_offset });
    }

    /// Forgets producers that have written nothing from `silent_below` on; and, as long as the table is crowded, of those that
    /// have written nothing from `quiet_below` on the ones that have been silent for longest. Only whoever makes the first
    /// copy of a log may do that, before its first batch, so that every copy begins with the same table. Inside a log no
    /// producer is forgotten: a forgotten one may start anywhere, so a batch that was appended before would be appended again.
    pub fn forget_silent(&mut self, silent_below: u64, quiet_below: u64) {
        self.settle();
        let mut left: Vec<(u64, i64)> = self.settled.last_offsets().collect();
        left.retain(|(offset, _)| *offset >= silent_below);
        let surplus = (left.len() + 1).saturating_sub(CROWDED);
        if surplus > 0 {
            // No two producers have a batch at the same offset, so that which of them go depends on the table alone.
            left.sort_unstable();
            let quiet = left.partition_point(|(offset, _)| *offset < quiet_below);
            left.drain(..surplus.min(quiet));
        }
        if left.len() < self.settled.len() {
            let mut ids: Vec<i64> = left.into_iter().map(|(_, id)| id).collect();
            ids.sort_unstable();
            self.settled = self.settled.only(&ids);
        }
    }

    /// Whether so many producers are remembered that silent ones should be forgotten.
    pub fn is_crowded(&self) -> bool {
        self.len() >= CROWDED
    }

    /// Encodes the table in order of producer id, so that equal tables are equal bytes.
    pub fn encode(&self) -> Vec<u8> {
        if let (true, Some(bytes)) = (self.recent.is_empty(), self.settled.bytes()) {
            return bytes.to_vec();
        }
        let mut recent: Vec<_> = self.recent.iter().collect();
        recent.sort_unstable_by_key(|(id, _)| **id);
        let mut recent = recent.into_iter().peekable();
        let mut out = settled::begin(
            self.len(),
            self.settled.bytes_len() + self.recent.len() * settled::ENTRY_BYTES_MAX,
        );
        for (id, entry) in self.settled.entries() {
            while let Some((id, producer)) = recent.next_if(|(recent, _)| **recent < id) {
                settled::put(&mut out, *id, producer);
            }
            if !self.recent.contains_key(&id) {
                out.extend_from_slice(entry);
            }
        }
        recent.for_each(|(id, producer)| settled::put(&mut out, *id, producer));
        out
    }

    /// Decodes what [`ProducerTable::encode`] wrote; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self { settled: Settled::parse(bytes.to_vec())?, ..Self::default() })
    }

    fn find(&self, id: i64) -> Option<Cow<'_, Producer>> {
        self.recent.get(&id).map(Cow::Borrowed).or_else(|| self.settled.find(id).map(Cow::Owned))
    }

    /// Makes one encoded table of all.
    fn settle(&mut self) {
        if !self.recent.is_empty() {
            let settled = Settled::parse(self.encode()).expect("a table reads what it has written");
            *self = Self { settled, ..Self::default() };
        }
    }
}

/// The sequence that follows a batch: after 2^31 - 1 comes 0.
fn sequence_after(base_sequence: i32, records: u32) -> i32 {
    (base_sequence.cast_unsigned().wrapping_add(records) & SEQUENCE_MASK).cast_signed()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn batch(epoch: i16, base_sequence: i32) -> ProducerRef {
        ProducerRef { id: 7, epoch, base_sequence }
    }

    #[test]
    fn the_last_five_batches_are_known_by_their_offsets() {
        let mut table = ProducerTable::new();
        for i in 0..7 {
            assert_eq!(table.check(batch(0, i * 10), 10).unwrap(), Admission::Accept);
            table.record(batch(0, i * 10), 10, 100 + i as u64 * 10);
        }
        let third = Admission::Duplicate { base_offset: 120, end_offset: 130 };
        assert_eq!(table.check(batch(0, 20), 10).unwrap(), third);
        for wrong in [0, 10, 80, 65] {
            let error = table.check(batch(0, wrong), 10).unwrap_err();
            assert!(
                matches!(error, Error::OutOfOrderSequence { expected: 70, got, .. } if got == wrong),
                "{error}"
            );
        }
    }

    #[test]
    fn a_newer_epoch_starts_at_zero_and_fences_the_older() {
        let mut table = ProducerTable::new();
        table.record(batch(1, 5), 1, 0);
        assert!(matches!(
            table.check(batch(0, 6), 1),
            Err(Error::ProducerFenced { current: 1, attempted: 0, .. })
        ));
        assert!(matches!(table.check(batch(2, 6), 1), Err(Error::OutOfOrderSequence { expected: 0, .. })));
        assert_eq!(table.check(batch(2, 0), 1).unwrap(), Admission::Accept);
        table.record(batch(2, 0), 1, 1);
        assert!(matches!(table.check(batch(1, 6), 1), Err(Error::ProducerFenced { .. })));
    }

    #[test]
    fn sequences_wrap_at_two_to_the_31() {
        let mut table = ProducerTable::new();
        table.record(batch(0, i32::MAX - 1), 4, 0);
        assert_eq!(table.check(batch(0, 2), 1).unwrap(), Admission::Accept);
        table.record(batch(0, i32::MAX), 1, 4);
        assert_eq!(table.check(batch(0, 0), 1).unwrap(), Admission::Accept);
    }

    /// 65,537 ids evicted silent producers, whose retries were stored twice.
    #[test]
    fn a_new_producer_is_refused_where_there_is_no_room_and_nobody_is_forgotten_for_it() {
        let batch = |id: i64| ProducerRef { id, epoch: 0, base_sequence: 0 };
        let mut table = ProducerTable::new();
        for id in 0..PRODUCERS_MAX as i64 {
            assert_eq!(table.check(batch(id), 1).unwrap(), Admission::Accept);
            table.record(batch(id), 1, id as u64);
        }
        let refused = table.check(batch(PRODUCERS_MAX as i64), 1);
        assert!(matches!(refused, Err(Error::TooManyProducers { .. })));
        let first = Admission::Duplicate { base_offset: 0, end_offset: 1 };
        assert_eq!(table.check(batch(0), 1).unwrap(), first, "the one that was silent for longest");

        assert!(table.is_crowded());
        table.forget_silent(60_000, 0);
        assert!(!table.is_crowded());
        assert_eq!(table.len(), PRODUCERS_MAX - 60_000);
        assert_eq!(table.check(batch(PRODUCERS_MAX as i64), 1).unwrap(), Admission::Accept);
        let last = Admission::Duplicate { base_offset: 60_000, end_offset: 60_001 };
        assert_eq!(table.check(batch(60_000), 1).unwrap(), last);
    }

    #[test]
    fn of_quiet_producers_only_as_many_are_forgotten_as_there_are_too_many_the_most_silent_first() {
        let id = |number: u64| ProducerRef { id: i64::MAX - number as i64, epoch: 0, base_sequence: 0 };
        let table_of = |count: u64| {
            let mut table = ProducerTable::new();
            (0..count).for_each(|number| table.record(id(number), 1, number));
            table
        };
        let knows = |table: &ProducerTable, number| table.check(id(number), 1).unwrap() != Admission::Accept;
        let crowded = CROWDED as u64;
        let mut table = table_of(crowded - 1);
        table.forget_silent(0, u64::MAX);
        assert_eq!(table.len() as u64, crowded - 1, "there is room, and nobody has been silent for a day");
        let mut table = table_of(crowded + 9);
        table.forget_silent(0, 4);
        assert_eq!(table.len() as u64, crowded + 5, "nobody goes who wrote lately");
        table.forget_silent(0, u64::MAX);
        assert!(!table.is_crowded());
        assert!(!knows(&table, 9) && knows(&table, 10), "the most silent ones go first");
        table.forget_silent(crowded, 0);
        assert_eq!(table.len(), 9, "who has been silent for a day goes wherever there is room");
    }

    /// The table as one map, which is simple and slow.
    #[derive(Clone, Default)]
    struct Naive(BTreeMap<i64, Producer>);

    impl Naive {
        fn record(&mut self, producer: ProducerRef, records: u32, base_offset: u64) {
            let ProducerRef { id, epoch, base_sequence } = producer;
            let known = self.0.entry(id).or_insert_with(|| Producer { epoch, batches: VecDeque::new() });
            if known.epoch != epoch {
                *known = Producer { epoch, batches: VecDeque::new() };
            }
            known.batches.push_back(KeptBatch { base_sequence, records, base_offset });
            while known.batches.len() > BATCHES_KEPT {
                known.batches.pop_front();
            }
        }

        fn forget_silent(&mut self, silent_below: u64) {
            self.0.retain(|_, producer| producer.batches.back().unwrap().base_offset >= silent_below);
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Append {
            id: i64,
            epoch: i16,
            records: u32,
        },
        /// The table goes to the next log: those are forgotten that were silent for the last batches.
        Roll {
            silent: u64,
        },
        Restart,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let append = (0..12_i64, 0..3_i16, 1..4_u32);
        let step = prop_oneof![
            8 => append.prop_map(|(id, epoch, records)| Step::Append { id, epoch, records }),
            1 => (0..30_u64).prop_map(|silent| Step::Roll { silent }),
            1 => Just(Step::Restart),
        ];
        proptest::collection::vec(step, 0..120)
    }

    proptest! {
        #[test]
        fn a_table_that_is_rolled_and_restarted_is_the_one_of_a_plain_map(steps in steps()) {
            let (mut table, mut naive, mut end, mut sequence) = (ProducerTable::new(), Naive::default(), 0_u64, 0_i32);
            for step in steps {
                match step {
                    Step::Append { id, epoch, records } => {
                        let producer = ProducerRef { id, epoch, base_sequence: sequence };
                        table.record(producer, records, end);
                        naive.record(producer, records, end);
                        (end, sequence) = (end + u64::from(records), sequence + 1);
                    }
                    Step::Roll { silent } => {
                        table.forget_silent(end.saturating_sub(silent), 0);
                        naive.forget_silent(end.saturating_sub(silent));
                    }
                    Step::Restart => table = ProducerTable::decode(&table.encode()).unwrap(),
                }
                prop_assert_eq!(table.len(), naive.0.len());
                for id in 0..12 {
                    let found = table.find(id);
                    prop_assert_eq!(found.as_deref(), naive.0.get(&id));
                }
            }
            let copy = ProducerTable::decode(&table.encode()).unwrap();
            prop_assert_eq!(&copy, &table);
            prop_assert_eq!(copy.len(), table.len());
        }
    }

    #[test]
    fn it_comes_back_from_bytes_and_hostile_bytes_are_refused() {
        let mut table = ProducerTable::new();
        for i in 0..9 {
            table.record(ProducerRef { id: i64::from(i) % 3, epoch: 1, base_sequence: i }, 2, i as u64);
        }
        let bytes = table.encode();
        assert_eq!(ProducerTable::decode(&bytes), Some(table));
        for length in 0..bytes.len() {
            assert_eq!(ProducerTable::decode(&bytes[..length]), None);
        }
        assert_eq!(ProducerTable::decode(&[0xff; 64]), None);
        let (mut twice, mut unsorted) = (bytes.clone(), bytes.clone());
        let entry = (bytes.len() - 4) / 3;
        twice.copy_within(4..4 + entry, 4 + entry);
        unsorted.copy_within(4 + 2 * entry.., 4);
        assert_eq!([twice, unsorted].map(|bytes| ProducerTable::decode(&bytes)), [None, None]);
    }
}
