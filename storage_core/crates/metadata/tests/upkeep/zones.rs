//! Copies of a segment lie in as many zones as there are.

use std::collections::BTreeSet;

use walrus_metadata::{Progress, reason_to_roll, upkeep};
use walrus_model::NodeId;

use crate::world::*;

fn tell_zones(world: &mut World, zones: &[(u32, &str)]) {
    for (node, zone) in zones {
        world.tell_zone(NodeId(*node), zone);
    }
}

fn zones_of_open(world: &World) -> BTreeSet<String> {
    let replicas = world.open().descriptor.replicas.iter();
    replicas.map(|replica| world.metadata.nodes[&replica.node].zone.clone()).collect()
}

#[test]
fn new_segments_lie_in_as_many_zones_as_there_are_whoever_leads_them() {
    let mut world = three_of(5);
    tell_zones(&mut world, &[(1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, "c")]);
    for _ in 0..12 {
        assert!(world.roll());
        assert_eq!(zones_of_open(&world).len(), 3, "{:?}", world.open().descriptor);
    }
}

#[test]
fn an_open_segment_is_rolled_once_into_more_zones() {
    let mut world = three_of(4);
    tell_zones(&mut world, &[(1, "a"), (2, "b"), (3, "c"), (4, "c")]);
    let mut rolls = 0;
    while reason_to_roll(&world.metadata, TOPIC, 0, &world.present()).is_some() {
        assert!(world.roll());
        rolls += 1;
        assert!(rolls < 3);
    }
    assert_eq!(zones_of_open(&world).len(), 3);
}

#[test]
fn sealed_segments_follow_their_zones_a_few_at_a_time_and_never_lack_a_copy_meanwhile() {
    let mut world = three_of(5);
    set_config(&mut world, "copies.moves_max", 2);
    tell_zones(&mut world, &[(1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, "c")]);
    assert!(world.zones_of_copies().iter().any(|zones| zones.len() < 3));
    loop {
        world.hold();
        assert!(world.sealed().iter().all(|segment| world.verified(segment) >= 3));
        if !world.keep() {
            break;
        }
    }
    world.hold();
    assert!(world.zones_of_copies().iter().all(|zones| zones.len() == 3), "{:?}", holders(&world));
    assert!(holders(&world).iter().all(|held| held.len() == 3));
    assert!(fullness(&world).values().all(|points| *points > 0));
}

#[test]
fn a_lost_copy_is_made_up_for_in_a_zone_that_has_none() {
    let mut world = three_of(6);
    tell_zones(&mut world, &[(1, "a"), (2, "b"), (3, "c"), (4, "a"), (5, "b"), (6, "c")]);
    world.finish_upkeep();
    for lost in [2, 6] {
        world.lose(NodeId(lost));
        world.finish_upkeep();
        assert!(world.zones_of_copies().iter().all(|zones| zones.len() == 3), "{:?}", holders(&world));
    }
}

#[test]
fn segments_that_one_zone_could_take_along_are_counted() {
    let mut world = three_of(3);
    let in_one_zone = |world: &World| upkeep(&world.metadata, &world.present()).progress.in_one_zone;
    assert_eq!(in_one_zone(&world), 0, "nobody has told a zone");
    tell_zones(&mut world, &[(1, "a"), (2, "b"), (3, "b")]);
    assert_eq!(
        in_one_zone(&world),
        1,
        "a zone takes two of three disks of the open segment, and no last copy"
    );
    world.join(4);
    tell_zones(&mut world, &[(4, "c")]);
    world.finish_upkeep();
    let progress = upkeep(&world.metadata, &world.present()).progress;
    assert_eq!(progress, Progress::default());
    world.set_factor(1);
    world.finish_upkeep();
    assert!(world.roll());
    assert_eq!(in_one_zone(&world), 1, "a topic with one copy");
}
