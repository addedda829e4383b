//! Random histories of a store against a simple model: a vector of values, a start, a cursor.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use proptest::prelude::*;
use support::*;
use walrus_log::{CrashChoice, FsyncSchedule, LogId, Offset, Options, SimulatedDisk, Store, TailKind};

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<u16>),
    Read(prop::sample::Index, u16),
    Consume(u8),
    Peek,
    Seek(prop::sample::Index),
    Trim(prop::sample::Index),
    Truncate(prop::sample::Index),
    Reopen,
    Kill,
    PowerFailure(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = any::<prop::sample::Index>;
    let step = prop_oneof![
        10 => prop::collection::vec(0..2500_u16, 1..6).prop_map(Step::Append),
        1 => Just(Step::Append(vec![30_000; 2])),
        4 => (index(), any::<u16>()).prop_map(|(at, bytes)| Step::Read(at, bytes)),
        4 => (1..9_u8).prop_map(Step::Consume),
        2 => Just(Step::Peek),
        1 => index().prop_map(Step::Seek),
        1 => index().prop_map(Step::Trim),
        1 => index().prop_map(Step::Truncate),
        1 => Just(Step::Reopen),
        1 => Just(Step::Kill),
        1 => any::<u64>().prop_map(Step::PowerFailure),
    ];
    prop::collection::vec(step, 1..60)
}

#[derive(Default)]
struct Model {
    /// The value at every offset from 0, and the base offset of its batch.
    values: Vec<(Vec<u8>, u64)>,
    start: u64,
    cursor: u64,
    appended: u64,
}

impl Model {
    fn end(&self) -> u64 {
        self.values.len() as u64
    }
}

struct World {
    disk: SimulatedDisk,
    options: Options,
    store: Store,
    model: Model,
}

impl World {
    fn log(&self) -> walrus_log::Log {
        self.store.log(LogId(uuid::Uuid::from_u128(1))).unwrap()
    }

    fn reopen_on(&mut self, disk: SimulatedDisk) {
        self.store = open_on(&disk, &self.options).unwrap();
        self.disk = disk;
    }

    fn step(&mut self, step: &Step) {
        let log = self.log();
        let model = &mut self.model;
        match step {
            Step::Append(sizes) => {
                let base = model.end();
                let values: Vec<_> = sizes
                    .iter()
                    .map(|size| {
                        model.appended += 1;
                        numbered(model.appended, usize::from(*size))
                    })
                    .collect();
                let slices: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
                assert_eq!(append_all(&log, &slices).unwrap(), Offset(base));
                model.values.extend(values.into_iter().map(|value| (value, base)));
            }
            Step::Read(at, bytes_max) => {
                let at = model.start + at.index((model.end() - model.start) as usize + 1) as u64;
                let (records, fences) = read_from(&log, Offset(at), usize::from(*bytes_max));
                assert_eq!(fences, []);
                let expected: Vec<_> =
                    (at..model.end()).map(|i| (i, model.values[i as usize].0.clone())).collect();
                assert_eq!(records, expected);
            }
            Step::Consume(count) => {
                model.cursor = model.cursor.max(model.start);
                for _ in 0..*count {
                    let entry = log.cursor("c").unwrap().read_next(true).unwrap();
                    let expected = model.values.get(model.cursor as usize);
                    assert_eq!(
                        entry.as_ref().map(|entry| &entry.data[..]),
                        expected.map(|(value, _)| &value[..])
                    );
                    if let Some(entry) = entry {
                        assert_eq!(entry.offset.0, model.cursor);
                        model.cursor += 1;
                    }
                }
            }
            Step::Peek => {
                let entry = log.cursor("c").unwrap().read_next(false).unwrap();
                let expected = model.values.get(model.cursor.max(model.start) as usize);
                assert_eq!(
                    entry.as_ref().map(|entry| &entry.data[..]),
                    expected.map(|(value, _)| &value[..])
                );
            }
            Step::Seek(to) => {
                let to = model.start + to.index((model.end() - model.start) as usize + 1) as u64;
                log.cursor("c").unwrap().seek(Offset(to)).unwrap();
                model.cursor = to;
            }
            Step::Trim(to) => {
                model.start += to.index((model.end() - model.start) as usize + 1) as u64;
                log.delete_before(Offset(model.start)).unwrap();
            }
            Step::Truncate(to) => {
                let to = to.index(model.values.len() + 1);
                // A log can only be truncated to the start of a batch that is still there.
                let to = model.values.get(to).map_or(model.end(), |(_, base)| *base);
                if to >= model.start {
                    log.truncate_to(Offset(to)).unwrap();
                    model.values.truncate(to as usize);
                    model.cursor = model.cursor.min(to);
                }
            }
            Step::Reopen => {
                self.store.close().unwrap();
                drop(log);
                let disk = self.disk.clone();
                self.reopen_on(disk);
                assert!(self.store.report().clean);
            }
            Step::Kill => {
                drop(log);
                let image = self.disk.crash_image(self.disk.changes(), CrashChoice::Everything);
                self.reopen_on(image);
            }
            Step::PowerFailure(seed) => {
                drop(log);
                let image = self.disk.crash_image(self.disk.changes(), CrashChoice::Some(*seed));
                self.reopen_on(image);
            }
        }
        let (log, model) = (self.log(), &self.model);
        assert_eq!((log.start_offset().0, log.durable_offset().0), (model.start, model.end()));
        assert_eq!(self.store.report().corrupted, []);
    }
}

fn run(tail_kind: TailKind, fsync: FsyncSchedule, steps: &[Step]) {
    let options = Options { fsync, block_bytes: 32 << 10, blocks_per_file: 3, ..Options::small() };
    let disk = SimulatedDisk::new(tail_kind);
    let store = open_on(&disk, &options).unwrap();
    store.create_log(spec(1, "a")).unwrap();
    let mut world = World { disk, options, store, model: Model::default() };
    for step in steps {
        // Unsynced records need not survive a power failure, nor need buffers survive a kill.
        let is_crash = matches!(step, Step::Kill | Step::PowerFailure(_));
        if fsync == FsyncSchedule::SyncEach || !is_crash {
            world.step(step);
        }
    }
    let expected: Vec<_> =
        world.model.values[world.model.start as usize..].iter().map(|(value, _)| value.clone()).collect();
    assert_eq!(values(&world.log()), expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: effort(150) as u32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_mapped_store_does_what_the_model_does(steps in steps()) {
        run(TailKind::Mapped, FsyncSchedule::SyncEach, &steps);
    }

    #[test]
    fn a_buffered_store_does_what_the_model_does(steps in steps()) {
        run(TailKind::Buffered, FsyncSchedule::SyncEach, &steps);
    }

    #[test]
    fn an_unsynced_store_does_what_the_model_does(steps in steps(), mapped: bool) {
        let kind = if mapped { TailKind::Mapped } else { TailKind::Buffered };
        run(kind, FsyncSchedule::NoFsync, &steps);
    }
}
