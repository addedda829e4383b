//! The producer table of a log: enough of its idempotent producers to tell a retry from a gap (KIP-98). It is a pure
//! function of the batches appended, so every copy of a log has the same table at the same offset.

mod changes;
mod producer;

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

pub(crate) use self::changes::ProducerChanges;
use crate::batch::ProducerRef;
use crate::error::{Error, Result};
use producer::{KeptBatch, Producer};

/// Limit on the producers remembered; one more is refused until some are forgotten.
const PRODUCERS_MAX: usize = 1 << 16;
/// Number of producers from which on quiet ones should be forgotten, so that there is room for new ones until the next roll.
const CROWDED: usize = PRODUCERS_MAX / 8 * 7;
const SEQUENCE_MASK: u32 = i32::MAX as u32;

/// The last batches of each producer, by producer id.
///
/// A log begins with the table of its predecessor, tens of thousands of producers perhaps, of which few write again before the
/// log ends. So tables share what they have in common: a clone costs nothing, and a batch costs the few nodes of a tree.
#[derive(Clone, Debug, Default)]
pub struct ProducerTable {
    known: OrdMap<i64, Arc<Producer>>,
    /// The first offset of each producer's newest batch, and its id.
    newest: OrdSet<(u64, i64)>,
    digest: u128,
}

impl PartialEq for ProducerTable {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest && self.known == other.known
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
        self.known.len()
    }

    /// Whether no producer is remembered.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// A number that names the table: tables with the same one are equal, but for a chance of 2^-128. It is kept up to date, so
    /// that nobody has to look at the whole table for it.
    pub fn digest(&self) -> u128 {
        self.digest
    }

    /// Judges a batch of `records` records.
    ///
    /// Errors: `ProducerFenced` for an epoch below the newest; `OutOfOrderSequence` for a gap, a repetition older than
    /// those remembered, or a new epoch that does not start at 0. A producer that is not remembered may start
    /// anywhere, unless there is no room for it: `TooManyProducers`.
    pub fn check(&self, producer: ProducerRef, records: u32) -> Result<Admission> {
        let Some(known) = self.known.get(&producer.id) else {
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
            known.batches.last().map_or(0, |last| sequence_after(last.base_sequence, last.records))
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
        let batch = KeptBatch { base_sequence, records, base_offset };
        let mut known = self.forget(id).unwrap_or_else(|| Arc::new(Producer::new(epoch)));
        Arc::make_mut(&mut known).record(epoch, batch);
        self.remember(id, known);
    }

    /// Forgets producers that have written nothing from `silent_below` on; and, as long as the table is crowded, of those that
    /// have written nothing from `quiet_below` on the ones that have been silent for longest. Only whoever makes the first
    /// copy of a log may do that, before its first batch, so that every copy begins with the same table. Inside a log no
    /// producer is forgotten: a forgotten one may start anywhere, so a batch that was appended before would be appended again.
    pub fn forget_silent(&mut self, silent_below: u64, quiet_below: u64) {
        while let Some(&(newest, id)) = self.newest.get_min() {
            if newest < silent_below || self.is_crowded() && newest < quiet_below {
                self.forget(id);
            } else {
                break;
            }
        }
    }

    /// Whether so many producers are remembered that silent ones should be forgotten.
    pub fn is_crowded(&self) -> bool {
        self.len() >= CROWDED
    }

    /// Encodes the table in order of producer id, so that equal tables are equal bytes.
    pub fn encode(&self) -> Vec<u8> {
        self.changes_since(&Self::new())
    }

    /// Decodes what [`ProducerTable::encode`] wrote; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Self::new().with_changes(bytes)
    }

    fn remember(&mut self, id: i64, producer: Arc<Producer>) {
        self.newest.insert((producer.newest_offset(), id));
        self.digest = self.digest.wrapping_add(producer.digest(id));
        self.known.insert(id, producer);
    }

    fn forget(&mut self, id: i64) -> Option<Arc<Producer>> {
        let producer = self.known.remove(&id)?;
        self.newest.remove(&(producer.newest_offset(), id));
        self.digest = self.digest.wrapping_sub(producer.digest(id));
        Some(producer)
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

    use super::producer::BATCHES_KEPT;
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
    struct Naive(BTreeMap<i64, (i16, Vec<KeptBatch>)>);

    impl Naive {
        fn record(&mut self, producer: ProducerRef, records: u32, base_offset: u64) {
            let ProducerRef { id, epoch, base_sequence } = producer;
            let (known, batches) = self.0.entry(id).or_insert_with(|| (epoch, Vec::new()));
            if *known != epoch {
                (*known, *batches) = (epoch, Vec::new());
            }
            batches.push(KeptBatch { base_sequence, records, base_offset });
            while batches.len() > BATCHES_KEPT {
                batches.remove(0);
            }
        }

        fn forget_silent(&mut self, silent_below: u64) {
            self.0.retain(|_, (_, batches)| batches.last().unwrap().base_offset >= silent_below);
        }

        fn is(&self, table: &ProducerTable) -> bool {
            let known = table.known.iter();
            known.map(|(id, known)| (*id, (known.epoch, known.batches.to_vec()))).eq(self.0.clone())
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
        /// The table is made again from what it was and the changes since.
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
        fn a_table_that_is_rolled_and_made_from_changes_is_the_one_of_a_plain_map(steps in steps()) {
            let (mut table, mut naive, mut end, mut sequence) = (ProducerTable::new(), Naive::default(), 0_u64, 0_i32);
            let (mut first, mut seen) = (table.clone(), vec![table.clone()]);
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
                    Step::Restart => {
                        table = first.with_changes(&table.changes_since(&first)).unwrap();
                        first = table.clone();
                    }
                }
                prop_assert!(naive.is(&table));
                prop_assert_eq!(table.newest.len(), table.len());
                seen.push(table.clone());
            }
            // Whatever table the changes are told from, they lead to this one, and its digest is its own.
            for earlier in &seen {
                let again = earlier.with_changes(&table.changes_since(earlier)).unwrap();
                prop_assert_eq!((&again, again.digest(), &again.newest), (&table, table.digest(), &table.newest));
                prop_assert_eq!(earlier.digest() == table.digest(), earlier.known == table.known);
            }
            prop_assert_eq!(ProducerTable::decode(&table.encode()), Some(table));
        }
    }

    #[test]
    fn changes_are_as_large_as_what_has_changed() {
        let batch = |id: i64| ProducerRef { id, epoch: 0, base_sequence: 0 };
        let mut first = ProducerTable::new();
        (0..50_000).for_each(|id| first.record(batch(id), 1, id as u64));
        let mut table = first.clone();
        assert_eq!(table.changes_since(&first).len(), 8);
        table.record(ProducerRef { base_sequence: 1, ..batch(7) }, 1, 50_000);
        table.record(batch(50_000), 1, 50_001);
        table.forget_silent(2, 0);
        let (new, changed, forgotten) = (8 + 19, 8 + 35, 8);
        assert_eq!(table.changes_since(&first).len(), 8 + new + changed + 2 * forgotten);
    }

    #[test]
    fn it_comes_back_from_bytes_and_hostile_bytes_are_refused() {
        let mut table = ProducerTable::new();
        for i in 0..9 {
            table.record(ProducerRef { id: i64::from(i) % 3, epoch: 1, base_sequence: i }, 2, i as u64);
        }
        let mut later = table.clone();
        later.record(ProducerRef { id: 7, epoch: 0, base_sequence: 0 }, 1, 18);
        later.forget_silent(14, 0);
        let changes = later.changes_since(&table);
        assert_eq!(table.with_changes(&changes), Some(later));
        assert_eq!(ProducerTable::decode(&changes), None, "nobody is forgotten who was not known");
        let bytes = table.encode();
        assert_eq!(ProducerTable::decode(&bytes), Some(table));
        for length in 0..bytes.len() {
            assert_eq!(ProducerTable::decode(&bytes[..length]), None);
        }
        assert_eq!(ProducerTable::decode(&[0xff; 64]), None);
        let (mut twice, mut unsorted) = (bytes.clone(), bytes.clone());
        let entry = (bytes.len() - 8) / 3;
        twice.copy_within(4..4 + entry, 4 + entry);
        unsorted.copy_within(4 + 2 * entry..4 + 3 * entry, 4);
        assert_eq!([twice, unsorted].map(|bytes| ProducerTable::decode(&bytes)), [None, None]);
    }
}
