//! Random lives of whole clusters; `make simulate` has more of them.

use std::cell::Cell;
use std::sync::Once;

use walrus_simulator::mistake::Mistake;
use walrus_simulator::simulation::{Tally, run, setting_of};
use walrus_simulator::world::Violation;

/// Limit on the lives in which a mistake must show.
const LIVES_MAX: usize = 300;

#[test]
fn no_life_of_a_cluster_loses_or_forks_what_was_acknowledged() {
    let mut tally = Tally::default();
    for seed in 0..200 {
        match run(seed, None) {
            Ok(life) => tally.add(life),
            Err(violation) => panic!("make simulate SEED={seed} COUNT=1: {}", violation.0),
        }
    }
    assert!(
        tally.acknowledged > 5_000
            && tally.sealed > 1_000
            && tally.faults > 2_000
            && tally.filled > 0
            && tally.claims > 5_000
            && tally.compacted > 1_000
            && tally.trimmed > 500
            && tally.readings > 2_000
            && tally.commits > 800
            && tally.takeovers > 60
            && tally.owner_trims > 40,
        "too quiet: {tally:?}"
    );
}

#[test]
fn a_seed_is_one_life() {
    for seed in [3, 8, 21] {
        assert_eq!(run(seed, None), run(seed, None));
    }
}

/// `make model` makes all mistakes; those that take long to show in a life have scenarios.
#[test]
fn each_mistake_about_what_goes_is_found_in_few_lives() {
    let mistakes = [
        Mistake::TrimmedBeforeMetadata,
        Mistake::KeysOfTheOpenSegment,
        Mistake::DigestOverBothForms,
        Mistake::RetentionOfTheOpenSegment,
        Mistake::OneClockBelieved,
        Mistake::TombstoneInItsFirstPass,
        Mistake::LeavesWithoutNote,
    ];
    // Two lives of five clean up.
    check_are_found(&mistakes, |_, seed| seed % 5 >= 3);
}

#[test]
fn each_mistake_about_what_clients_of_kafka_are_promised_is_found_in_few_lives() {
    let mistakes = [
        Mistake::LateCoordinator,
        Mistake::CommittedBeforeQuorum,
        Mistake::CountedProducerIds,
        Mistake::EpochOfTheOpenSegment,
    ];
    check_are_found(&mistakes, |mistake, seed| {
        !mistake.is_of_coordinators() || setting_of(seed, None).coordinates
    });
}

/// Each mistake is found in some of the first lives in which it can show, and none of those is in question without it.
fn check_are_found(mistakes: &[Mistake], can_show: impl Fn(Mistake, u64) -> bool) {
    for mistake in mistakes {
        let mut lives = (0..).filter(|seed| can_show(*mistake, *seed)).take(LIVES_MAX);
        let found = lives.find(|seed| run_quietly(*seed, *mistake).is_err());
        let seed = found.unwrap_or_else(|| panic!("{mistake:?} is not found in {LIVES_MAX} lives"));
        // A life that fails without the mistake, too, has found a mistake of its own.
        let without = run(seed, None);
        assert!(without.is_ok(), "{mistake:?} is not what breaks the life of seed {seed}: {without:?}");
    }
}

/// A life with a mistake, some of which end in an assertion of the machines, without what such an assertion prints.
fn run_quietly(seed: u64, mistake: Mistake) -> Result<Tally, Violation> {
    static FILTER: Once = Once::new();
    thread_local! {
        static IS_QUIET: Cell<bool> = const { Cell::new(false) };
    }
    FILTER.call_once(|| {
        let prints = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                prints(panic);
            }
        }));
    });
    IS_QUIET.set(true);
    let life = run(seed, Some(mistake));
    IS_QUIET.set(false);
    life
}
