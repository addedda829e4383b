//! Copies move from disks that are much fuller than the others.

use walrus_metadata::upkeep;
use walrus_model::NodeId;

use crate::world::*;

#[test]
fn nodes_that_join_take_their_share_from_the_fullest_disks_and_no_segment_lacks_a_copy_meanwhile() {
    let mut world = three_of(3);
    while world.sealed().len() < 15 {
        assert!(world.roll());
    }
    world.finish_upkeep();
    assert_eq!(fullness(&world).into_values().collect::<Vec<_>>(), [75, 75, 75]);
    world.join(4);
    world.join(5);
    world.pass(1);
    set_config(&mut world, "copies.moves_max", 4);
    loop {
        world.hold();
        assert!(world.sealed().iter().all(|segment| world.verified(segment) >= 3));
        let moves = upkeep(&world.metadata, &world.present());
        let added: usize = moves.changes.iter().map(|change| change.added.len()).sum();
        assert!(moves.progress.moving + added as u64 <= 4);
        if !world.keep() {
            break;
        }
    }
    world.hold();
    let points = fullness(&world);
    assert_eq!(points.values().sum::<u64>(), 15 * 3 * 5, "{points:?}");
    // Two nodes hold nothing at first, and three quarters of three disks are 45 points of five.
    assert!(points.values().all(|points| *points <= 45 + 10), "{points:?}");
    assert!(holders(&world).iter().all(|held| held.len() == 3));
}

#[test]
fn copies_stay_where_they_are_when_the_imbalance_is_allowed_or_sizes_are_not_known() {
    let mut world = three_of(3);
    while world.sealed().len() < 15 {
        assert!(world.roll());
    }
    world.finish_upkeep();
    let before = holders(&world);
    world.disk_bytes = 0;
    world.join(4);
    world.finish_upkeep();
    assert_eq!(holders(&world), before, "nobody knows how large its disk is");
    set_config(&mut world, "copies.imbalance_max_points", 100);
    world.disk_bytes = DISK_BYTES;
    world.pass(1);
    world.finish_upkeep();
    assert_eq!(holders(&world), before, "that much is allowed");
    set_config(&mut world, "copies.imbalance_max_points", 10);
    world.finish_upkeep();
    assert_ne!(holders(&world), before);
}

#[test]
fn a_full_node_gives_copies_to_others() {
    let mut world = three_of(3);
    while world.sealed().len() < 15 {
        assert!(world.roll());
    }
    world.finish_upkeep();
    world.fill(NodeId(1), true);
    world.join(4);
    world.pass(1);
    world.finish_upkeep();
    assert!(fullness(&world)[&NodeId(1)] < 75, "{:?}", fullness(&world));
}
