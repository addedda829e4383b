//! Random lives of whole clusters; `make simulate` has more of them.

use walrus_simulator::mistake::Mistake;
use walrus_simulator::simulation::{Tally, run, setting_of};

/// Limit on the lives in which a mistake must show.
const LIVES_MAX: u64 = 300;

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
    std::panic::set_hook(Box::new(|_| {})); // some end in an assertion of the machines
    for mistake in mistakes {
        // Two lives of five clean up.
        let mut lives = (0..LIVES_MAX).filter(|seed| seed % 5 >= 3);
        assert!(lives.any(|seed| run(seed, Some(mistake)).is_err()), "{mistake:?}");
    }
}

#[test]
fn each_mistake_about_what_clients_of_kafka_are_promised_is_found_in_few_lives() {
    let mistakes = [
        Mistake::LateCoordinator,
        Mistake::CommittedBeforeQuorum,
        Mistake::CountedProducerIds,
        Mistake::EpochOfTheOpenSegment,
    ];
    std::panic::set_hook(Box::new(|_| {}));
    for mistake in mistakes {
        let is_meant = |seed: &u64| !mistake.is_of_coordinators() || setting_of(*seed, None).coordinates;
        let mut lives = (0..LIVES_MAX * 2).filter(is_meant);
        assert!(lives.any(|seed| run(seed, Some(mistake)).is_err()), "{mistake:?}");
    }
}
