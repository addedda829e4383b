//! Power failures: at every change that a life made to its disk, what may be left of it is opened and checked. What a
//! recovery makes of it must survive the next failure, too.

use std::sync::Arc;

use walrus_log::batch::{Batch, BatchBuilder};
use walrus_log::{CrashChoice, FsyncSchedule, Log, SimulatedDisk, Store};

use crate::checks::{check, seen};
use crate::facts::{Facts, LogFacts, Moment};
use crate::owner::{Owner, Plan};
use crate::random::{Random, Value};

/// Recoveries of which one, on average, is followed by a second failure.
const AGAIN_ONE_IN: u64 = 6;

/// Lives the life of a plan and crashes it at each of its changes. Answers how many images were opened.
pub fn crash_everywhere(plan: Plan, images_per_change: u64) -> u64 {
    let what = format!("{plan:?}");
    let disk = SimulatedDisk::new(plan.tail_kind);
    let mut owner =
        Owner::new(plan.clone(), disk.clone()).unwrap_or_else(|failed| panic!("{what}: {failed:?}"));
    owner.live().unwrap_or_else(|failed| panic!("{what}: {}: {}", failed.call, failed.error));
    let Owner { moments, .. } = owner;
    let mut random = Random(plan.seed ^ 0x6372_6173);
    let mut replay = disk.replay();
    let mut images = 0;
    let mut now = Now::default();
    loop {
        let changes = replay.changes();
        now.advance(&moments, changes);
        for _ in 0..images_per_change {
            let choice = match random.below(10) {
                0 => CrashChoice::Nothing,
                1 => CrashChoice::Everything,
                2..=5 => CrashChoice::Some(random.number()),
                6..=7 => CrashChoice::Pages(random.number()),
                _ => CrashChoice::Torn(random.number()),
            };
            let image = replay.crash_image(choice);
            let (before, after, call) = now.facts(&moments, changes);
            let what = format!("{what}\nafter {changes} changes, {choice:?}, in or before {call}");
            images += told(&what, || {
                let again = random.one_in(AGAIN_ONE_IN).then(|| random.number());
                open_and_check(&image, &plan, before, after, again)
            });
        }
        if !replay.step() {
            return images;
        }
    }
}

/// A place in the owner's calls, which moves on with the changes of the disk.
#[derive(Default)]
pub(crate) struct Now {
    /// Calls that had returned.
    ended: usize,
}

impl Now {
    pub(crate) fn advance(&mut self, moments: &[Moment], changes: usize) {
        while moments.get(self.ended).is_some_and(|moment| moment.ended <= changes) {
            self.ended += 1;
        }
    }

    /// The facts before the call that may have been under way, the facts behind it, and which call it was.
    pub(crate) fn facts<'a>(&self, moments: &'a [Moment], changes: usize) -> (&'a Facts, &'a Facts, &'a str) {
        static NOTHING: std::sync::LazyLock<Facts> = std::sync::LazyLock::new(Facts::default);
        let before = self.ended.checked_sub(1).map_or(&*NOTHING, |last| &moments[last].facts);
        match moments.get(self.ended) {
            Some(next) if next.began <= changes => (before, &next.facts, &next.call),
            next => (before, before, next.map_or("the end", |next| &next.call)),
        }
    }
}

/// Opens what a crash left and checks it; with `again` it crashes that, too, somewhere between its opening and an append.
/// Answers how many images were opened.
pub fn open_and_check(
    image: &SimulatedDisk,
    plan: &Plan,
    before: &Facts,
    after: &Facts,
    again: Option<u64>,
) -> u64 {
    let given = image.changes();
    let store = open(image, plan);
    check(&store, before, after, &[]);
    let Some(seed) = again else { return 1 };
    let mut random = Random(seed);
    let found = seen(&store, before, after);
    let opened = image.changes();
    let mut appended = found.clone();
    for log in store.logs().iter().filter(|log| !log.is_sealed()) {
        append(log, random.number(), appended.log(log.id()));
    }
    drop(store);
    let changes = given + random.below((image.changes() - given) as u64 + 1) as usize;
    let choice = match random.below(3) {
        0 => CrashChoice::Some(random.number()),
        1 => CrashChoice::Pages(random.number()),
        _ => CrashChoice::Torn(random.number()),
    };
    let second = image.crash_image(changes, choice);
    let what = format!("and again after {} changes, {choice:?}", changes - given);
    told(&what, || {
        let store = open(&second, plan);
        if changes < opened {
            check(&store, before, after, &[]);
        } else {
            check(&store, &found, &appended, &[before, after]);
        }
    });
    2
}

fn open(image: &SimulatedDisk, plan: &Plan) -> Store {
    let opened = Store::open_on(Arc::new(image.clone()), plan.options());
    opened.unwrap_or_else(|error| panic!("it does not open: {error}"))
}

/// Appends a value after a recovery: life goes on.
pub(crate) fn append(log: &Log, number: u64, facts: &mut LogFacts) {
    let value = Value { number: number | 1 << 63, bytes: 900 };
    let mut builder = BatchBuilder::new();
    builder.push(None, Some(&value.to_bytes()), 0, &[]);
    let mut bytes = Vec::new();
    builder.build(&mut bytes).expect("small");
    let (batch, _) = Batch::parse(&bytes).expect("just built");
    let appended = log.append(&batch).unwrap_or_else(|error| panic!("no append after recovery: {error}"));
    let base = appended.base_offset.0;
    appended.commit.wait().unwrap_or_else(|error| panic!("no commit after recovery: {error}"));
    if facts.fsync == FsyncSchedule::NoFsync {
        facts.values.truncate(base as usize);
    }
    assert_eq!(facts.end(), base, "an append after recovery went to another offset");
    facts.values.push((value, base));
}

/// Runs a trial. A panic in it is passed on with `what`, which says where it happened.
pub fn told<T>(what: &str, trial: impl FnOnce() -> T) -> T {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(trial)) {
        Ok(done) => done,
        Err(reason) => panic!("{}\n{what}", message(&*reason)),
    }
}

/// The message of a panic.
pub fn message(reason: &(dyn std::any::Any + Send)) -> String {
    let text = reason.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| reason.downcast_ref::<&str>().copied()).unwrap_or("a panic without words").to_owned()
}
