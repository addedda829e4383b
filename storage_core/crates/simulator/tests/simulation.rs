//! Random lives of whole clusters; `make simulate` has more of them.

use walrus_simulator::simulation::{Tally, run};

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
            && tally.claims > 5_000,
        "too quiet: {tally:?}"
    );
}

#[test]
fn a_seed_is_one_life() {
    for seed in [3, 8, 21] {
        assert_eq!(run(seed, None), run(seed, None));
    }
}
