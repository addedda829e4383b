//! Random schedules of one segment: messages in any order, repeated and lost, processes that die with what they had not
//! synced, a disk that rots, a disk that is lost, two or three recoverers. `WALRUS_REPLICA_SEEDS` runs more of them.

mod cluster;

use cluster::{Dice, World};
use walrus_replica::{LeaderInput, RecovererInput};

#[derive(Clone, Copy)]
struct Faults {
    crashes: usize,
    rots: usize,
    lost_disks: usize,
    recoverers: usize,
}

fn run(seed: u64, replicas: usize, write_quorum: u32, faults: Faults) -> World {
    let (mut dice, mut world, mut left) = (Dice(seed), World::new(replicas, write_quorum), faults);
    for _ in 0..400 {
        match dice.below(26) {
            0..=1 | 20 => world.append(1 + dice.below(3) as u64),
            3..=5 | 21 => {
                let to = dice.below(replicas);
                world.leader_step(LeaderInput::Send { to, batches_max: 1 + dice.below(3) });
            }
            6..=12 | 22..=24 => {
                if !world.network.is_empty() {
                    let at = dice.below(world.network.len());
                    let flight = if dice.below(4) == 0 {
                        world.network[at].clone() // it comes again later
                    } else {
                        world.network.swap_remove(at)
                    };
                    if dice.below(10) > 0 {
                        world.deliver(flight);
                    }
                }
            }
            13..=14 | 25 => world.sync(dice.below(replicas)),
            15 => {
                if left.crashes > 0 && dice.below(4) == 0 {
                    left.crashes -= 1;
                    let rot = left.rots > 0 && dice.below(2) == 0;
                    left.rots -= usize::from(rot);
                    world.crash(dice.below(replicas), dice.below(8), rot);
                }
            }
            16 => world.restart(dice.below(replicas)),
            17 => {
                if left.recoverers > 0 && dice.below(8) == 0 {
                    left.recoverers -= 1;
                    world.recover();
                } else if !world.recoverers.is_empty() {
                    let place = dice.below(world.recoverers.len());
                    if dice.below(6) == 0 {
                        world.recoverers[place] = None;
                    } else {
                        world.recoverer_step(place, RecovererInput::Ask);
                    }
                }
            }
            18 => {
                if dice.below(12) == 0 {
                    let successor = world.successor();
                    world.leader_step(LeaderInput::Freeze { successor });
                } else {
                    world.leader_step(LeaderInput::Reconnected { to: dice.below(replicas) });
                }
            }
            _ => {
                if left.lost_disks > 0 && dice.below(20) == 0 {
                    left.lost_disks -= 1;
                    world.lose_disk(dice.below(replicas));
                }
            }
        }
        world.check();
    }
    world.heal();
    world
}

fn run_all(replicas: usize, write_quorum: u32, faults: Faults) {
    let seeds =
        std::env::var("WALRUS_REPLICA_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3_000);
    let (mut decided, mut acknowledged) = (0, 0);
    for seed in 0..seeds {
        let outcome = std::panic::catch_unwind(|| run(seed, replicas, write_quorum, faults));
        let world = outcome.unwrap_or_else(|_| panic!("seed {seed} of {replicas}/{write_quorum}"));
        decided += u64::from(world.decided.is_some());
        acknowledged += u64::from(world.acknowledged.0 > 0);
    }
    println!(
        "{seeds} seeds of {replicas}/{write_quorum}: {decided} decided, {acknowledged} with acknowledged records"
    );
    assert!(decided * 2 > seeds && acknowledged * 4 > seeds, "the schedules exercise nothing");
}

#[test]
fn three_replicas_survive_crashes_and_dueling_recoverers() {
    run_all(3, 2, Faults { crashes: 4, rots: 0, lost_disks: 0, recoverers: 3 });
}

#[test]
fn a_rotten_tail_is_never_trusted() {
    run_all(3, 2, Faults { crashes: 3, rots: 1, lost_disks: 0, recoverers: 2 });
}

#[test]
fn a_lost_disk_never_counts_as_an_empty_one() {
    run_all(3, 2, Faults { crashes: 3, rots: 0, lost_disks: 1, recoverers: 2 });
}

#[test]
fn five_replicas_with_three_acknowledgements() {
    run_all(5, 3, Faults { crashes: 4, rots: 1, lost_disks: 1, recoverers: 2 });
}

#[test]
fn one_replica_is_the_same_protocol() {
    run_all(1, 1, Faults { crashes: 2, rots: 0, lost_disks: 0, recoverers: 2 });
}
