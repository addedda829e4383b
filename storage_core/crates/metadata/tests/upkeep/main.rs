//! The promises of the upkeep of copies: each segment comes back to n copies when that is possible and never falls below w
//! on the way, those with the fewest come first, no more are moved at once than allowed, and a drained node ends empty.

mod random;
mod spreading;
mod world;
mod zones;

use std::collections::BTreeSet;

use walrus_metadata::{Command, CopyState, Found, Segment, census, upkeep};
use walrus_model::{Digest, DiskId, NodeId, Replication, SegmentId};

use crate::world::*;

#[test]
fn the_copies_of_a_topic_come_to_its_own_number_but_never_below_their_quorum() {
    let mut world = three_of(5);
    for factor in [5, 3, 1] {
        world.set_factor(factor);
        world.finish_upkeep();
        assert_eq!(upkeep(&world.metadata, &world.present()).progress, walrus_metadata::Progress::default());
        for segment in world.sealed() {
            assert_eq!(segment.copies.len(), factor.max(segment.descriptor.write_quorum) as usize);
        }
        let census = walrus_metadata::census(&world.metadata, &world.present().alive);
        assert_eq!(census.under_replicated, 0);
    }
    world.set_factor(9);
    world.finish_upkeep();
    let progress = upkeep(&world.metadata, &world.present()).progress;
    assert_eq!(progress.under_replicated, world.sealed().len() as u64, "there are but five nodes");
}

#[test]
fn a_lost_disk_is_made_up_for_on_the_others_and_a_silent_node_only_after_the_grace() {
    let mut world = three_of(4);
    world.lose(NodeId(2));
    world.finish_upkeep();
    assert!(holders(&world).iter().all(|held| *held == [NodeId(1), NodeId(3), NodeId(4)].into()));

    world.join(5);
    world.up.remove(&NodeId(3));
    world.pass(GRACE_MS);
    world.finish_upkeep();
    assert!(holders(&world).iter().all(|held| !held.contains(&NodeId(5))), "it may come back");
    world.pass(LEASE_MS);
    world.finish_upkeep();
    assert!(holders(&world).iter().all(|held| held.contains(&NodeId(5)) && held.contains(&NodeId(3))));

    world.up.insert(NodeId(3));
    world.pass(1);
    world.finish_upkeep();
    assert!(holders(&world).iter().all(|held| held.len() == 3), "four are too many: {:?}", holders(&world));
}

#[test]
fn a_drained_node_ends_empty_and_with_nobody_to_take_its_copies_w_are_enough() {
    let mut world = three_of(4);
    world.drain(NodeId(1), true);
    world.finish_upkeep();
    assert!(holders(&world).iter().all(|held| !held.contains(&NodeId(1)) && held.len() == 3));
    assert!(world.disks.keys().all(|(_, disk)| *disk != world.metadata.nodes[&NodeId(1)].disk));
    let disk = world.metadata.nodes[&NodeId(1)].disk;
    let remove = Command::RemoveNode { node: NodeId(1), disk, lost: false, replaced_by: None };
    world.run(remove).expect("it stores nothing any more");
    world.up.remove(&NodeId(1));

    world.drain(NodeId(2), true);
    world.finish_upkeep();
    assert!(holders(&world).iter().all(|held| *held == [NodeId(3), NodeId(4)].into()));
    world.drain(NodeId(3), true);
    world.finish_upkeep();
    assert!(holders(&world).iter().all(|held| held.len() == 2), "never below w");
    world.drain(NodeId(3), false);
    world.drain(NodeId(2), false);
    world.finish_upkeep();
    assert!(holders(&world).iter().all(|held| held.len() == 3), "{:?}", holders(&world));
}

#[test]
fn an_open_segment_leaves_a_full_node_and_comes_back_and_sealed_copies_stay() {
    let mut world = three_of(4);
    let full = world.open().descriptor.leader.node;
    world.fill(full, true);
    let before = holders(&world);
    world.finish_upkeep();
    let open = world.open().descriptor.clone();
    assert!(open.replicas.len() == 3 && open.replicas.iter().all(|replica| replica.node != full));
    assert!(holders(&world).starts_with(&before), "what it has can be read");
    world.fill(NodeId(full.0 % 4 + 1), true);
    world.finish_upkeep();
    assert_eq!(world.open().descriptor.replicas.len(), 2);
    world.fill(full, false);
    world.finish_upkeep();
    assert_eq!(world.open().descriptor.replicas.len(), 3);
}

#[test]
fn a_copy_beyond_mending_is_made_anew_once_enough_others_are_there() {
    let mut world = three_of(3);
    let segment = world.sealed()[0].clone();
    let bad = segment.copies[0].replica;
    world.disks.insert((segment.descriptor.id, bad.disk), Found::Damaged);
    world.finish_upkeep();
    let copies = &world.sealed()[0].copies;
    assert!(copies.len() == 3 && copies.iter().all(|copy| copy.state == CopyState::Verified), "{copies:?}");
}

/// Copies that were listed in place of those on gone disks stayed to be made for ever: their nodes were never caught up,
/// used up the moves of others and could not be drained, no node could be spared, and nobody said that anything was lost.
#[test]
fn a_segment_all_of_whose_disks_are_gone_is_listed_as_lost_and_is_in_nobodys_way() {
    let mut world = World::new(6, Replication::DEFAULT, 100);
    for _ in 0..40 {
        assert!(world.roll());
    }
    world.finish_upkeep();
    let open: BTreeSet<NodeId> =
        world.open().descriptor.replicas.iter().map(|replica| replica.node).collect();
    let lost: Vec<NodeId> =
        world.metadata.nodes.keys().filter(|node| !open.contains(node)).copied().collect();
    let was_there = |segment: &Segment| segment.copies.iter().all(|copy| lost.contains(&copy.replica.node));
    let gone: BTreeSet<SegmentId> =
        world.sealed().iter().filter(|segment| was_there(segment)).map(|one| one.descriptor.id).collect();
    assert!(!gone.is_empty());
    lost.iter().for_each(|node| world.lose(*node));
    let first_look = upkeep(&world.metadata, &world.present());
    let seekers = |change: &&walrus_metadata::CopyChange| gone.contains(&change.segment);
    assert!(
        first_look.changes.iter().filter(seekers).all(|change| change.added.len() == 1),
        "one looks for it"
    );
    world.finish_upkeep();
    world.join(9);
    world.join(10);
    world.finish_upkeep();

    let is_lost = |segment: &Segment| gone.contains(&segment.descriptor.id);
    assert!(
        world.sealed().iter().all(|segment| segment.is_lost() == is_lost(segment)),
        "{:?}",
        world.sealed()
    );
    let progress = upkeep(&world.metadata, &world.present()).progress;
    let all_lost =
        walrus_metadata::Progress { lost: gone.len() as u64, ..walrus_metadata::Progress::default() };
    assert_eq!(progress, all_lost);
    let seen = census(&world.metadata, &world.up);
    assert!(seen.nodes.values().all(|load| load.filling == 0), "{seen:?}");
    assert_eq!((seen.under_replicated, seen.spare_nodes), (0, Some(1)));

    // The node that looked for it can go.
    let seeker = world.sealed().into_iter().find(is_lost).expect("one").copies[0].replica;
    world.drain(seeker.node, true);
    world.finish_upkeep();
    let remove = Command::RemoveNode { node: seeker.node, disk: seeker.disk, lost: false, replaced_by: None };
    world.run(remove).expect("it stores nothing");
    world.up.remove(&seeker.node);
    world.finish_upkeep();
    assert!(world.sealed().iter().all(|segment| segment.is_lost() == is_lost(segment)), "another one looked");

    // A disk that lost its votes comes back with its log.
    let back = world.sealed().into_iter().find(is_lost).expect("one");
    world.disks.insert(
        (back.descriptor.id, DiskId(back.copies[0].replica.disk.0)),
        Found::Whole { digest: Digest(DIGEST) },
    );
    world.finish_upkeep();
    let whole = world.sealed().into_iter().find(|one| one.descriptor.id == back.descriptor.id);
    assert_eq!(world.verified(&whole.expect("listed")), 3);
}
