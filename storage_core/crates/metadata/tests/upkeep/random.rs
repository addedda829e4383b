//! Whatever happens, each segment comes back to n copies, spread over zones and disks.

use std::collections::BTreeSet;

use proptest::prelude::*;
use walrus_metadata::{CopyState, Found, Segment, SegmentCopy, upkeep};
use walrus_model::{NodeId, Replication};

use crate::world::*;

#[derive(Clone, Debug)]
enum Step {
    Roll,
    Hold,
    Keep,
    Pass(u64),
    Silence(u8),
    Return(u8),
    Drain(u8, bool),
    Full(u8, bool),
    Stop(u8),
    Restart(u8),
    Lose(u8),
    Join,
    Damage(u8, u8),
    Factor(u32),
    Zone(u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Roll),
        6 => Just(Step::Hold),
        6 => Just(Step::Keep),
        2 => (0..2 * GRACE_MS).prop_map(Step::Pass),
        1 => any::<u8>().prop_map(Step::Silence),
        2 => any::<u8>().prop_map(Step::Return),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(node, draining)| Step::Drain(node, draining)),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(node, full)| Step::Full(node, full)),
        2 => any::<u8>().prop_map(Step::Stop),
        2 => any::<u8>().prop_map(Step::Restart),
        1 => any::<u8>().prop_map(Step::Lose),
        2 => Just(Step::Join),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(segment, copy)| Step::Damage(segment, copy)),
        1 => (2..5u32).prop_map(Step::Factor),
        2 => (any::<u8>(), 0..4u8).prop_map(|(node, zone)| Step::Zone(node, zone)),
    ]
}

fn pick<T: Copy>(from: impl IntoIterator<Item = T>, index: u8) -> Option<T> {
    let all: Vec<T> = from.into_iter().collect();
    (!all.is_empty()).then(|| all[usize::from(index) % all.len()])
}

impl World {
    fn take(&mut self, step: &Step) {
        let nodes: Vec<NodeId> = self.metadata.nodes.keys().copied().collect();
        match step {
            Step::Roll => drop(self.roll()),
            Step::Hold => self.hold(),
            Step::Keep => drop(self.keep()),
            Step::Pass(ms) => self.pass(*ms),
            Step::Silence(node) => drop(pick(nodes, *node).map(|node| self.up.remove(&node))),
            Step::Return(node) => {
                self.up.extend(pick(nodes, *node));
                self.pass(1);
            }
            Step::Drain(node, draining) => {
                let node = pick(nodes, *node);
                node.into_iter().for_each(|node| self.drain(node, *draining));
            }
            Step::Full(node, full) => {
                let node = pick(nodes, *node);
                node.into_iter().for_each(|node| self.fill(node, *full));
            }
            Step::Stop(node) => drop(pick(nodes, *node).map(|node| self.stop(node))),
            Step::Restart(node) => drop(pick(nodes, *node).map(|node| self.restart(node))),
            // Disks are lost one at a time, for two at once may take the last copies.
            Step::Lose(node) if upkeep(&self.metadata, &self.present()).progress.under_replicated == 0 => {
                let open = self.open().descriptor.replicas.clone();
                // Nobody may have reported yet that the other copies of a segment are damaged.
                let is_elsewhere = |segment: &Segment, node: NodeId| {
                    let stays =
                        |copy: &&SegmentCopy| copy.replica.node != node && copy.state != CopyState::Leaving;
                    segment.copies.iter().filter(stays).any(|copy| self.is_whole(segment, copy.replica))
                };
                let sealed = self.sealed();
                let may_go = |node: &NodeId| {
                    open.iter().all(|replica| replica.node != *node)
                        && sealed.iter().all(|segment| is_elsewhere(segment, *node))
                };
                let node = pick(nodes.into_iter().filter(may_go), *node);
                node.into_iter().for_each(|node| self.lose(node));
            }
            Step::Join if nodes.len() < 8 => self.join(nodes.last().map_or(1, |last| last.0 + 1)),
            Step::Damage(segment, copy) => {
                if let Some(segment) =
                    pick(0..self.sealed().len(), *segment).map(|at| self.sealed()[at].clone())
                    && segment.copies.iter().all(|copy| self.is_whole(&segment, copy.replica))
                    && self.verified(&segment) == segment.copies.len()
                    && segment.copies.len() > segment.descriptor.write_quorum as usize
                    && let Some(copy) = pick(segment.copies.clone(), *copy)
                {
                    self.disks.insert((segment.descriptor.id, copy.replica.disk), Found::Damaged);
                }
            }
            Step::Factor(factor) => self.set_factor(*factor),
            Step::Zone(node, zone) => {
                let node = pick(nodes, *node);
                node.into_iter()
                    .for_each(|node| self.tell_zone(node, ["", "a", "b", "c"][usize::from(*zone)]));
            }
            Step::Lose(_) | Step::Join => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_cluster_is_whole_again_once_all_nodes_are_back(
        nodes in 3..6u8,
        moves_max in 1..5u64,
        factor in 2..5u32,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut world = World::new(nodes.into(), Replication::DEFAULT, moves_max);
        for step in &steps {
            world.take(step);
        }
        let all: Vec<NodeId> = world.metadata.nodes.keys().copied().collect();
        world.up.extend(all.iter().copied());
        for node in &all {
            world.drain(*node, false);
            world.restart(*node);
            world.fill(*node, false);
        }
        world.set_factor(factor);
        let factor = factor as usize;
        // A copy beyond mending is made on another node than those that have one.
        while world.up.len() <= factor.max(3) {
            world.take(&Step::Join);
        }
        world.pass(1);
        world.finish_upkeep();
        // No zone has two more copies of a segment than one of another node that could take one.
        let zone = |node: &NodeId| world.metadata.nodes[node].zone.as_str();
        let count = |held: &BTreeSet<NodeId>, in_zone: &str| held.iter().filter(|one| zone(one) == in_zone).count();
        for held in holders(&world) {
            let most = held.iter().map(|holder| count(&held, zone(holder))).max().unwrap_or(0);
            let mut others = world.up.difference(&held);
            prop_assert!(others.all(|other| most <= count(&held, zone(other)) + 1), "{:?}", held);
        }
        // No disk is much fuller than the others: where one is, every other one has a copy, too, or is nearly as full, or in
        // another zone, where the zones matter.
        let points = fullness(&world);
        let mean = points.values().sum::<u64>() / points.len() as u64;
        for (node, _) in points.iter().filter(|(_, points)| **points > mean + 11) {
            for held in holders(&world).iter().filter(|held| held.contains(node)) {
                let may_take = |other: &NodeId| {
                    zone(other) == zone(node) || count(held, zone(other)) < count(held, zone(node))
                };
                let others = points.iter().filter(|(other, _)| !held.contains(other) && may_take(other));
                prop_assert!(others.map(|(_, points)| points + 5).all(|after| after >= points[node]), "{:?}", points);
            }
        }
        // What had to acknowledge a segment's records is never given up.
        let wanted = |segment: &Segment| factor.max(segment.descriptor.write_quorum as usize);
        for segment in world.sealed() {
            prop_assert_eq!(segment.copies.len(), wanted(&segment), "{:?}", &segment.copies);
            prop_assert_eq!(world.verified(&segment), wanted(&segment), "{:?}", &segment.copies);
        }
        prop_assert!(world.open().descriptor.replicas.len() >= factor);

        if let Some(drained) = pick(world.up.clone(), nodes).filter(|_| world.up.len() > factor.max(3)) {
            world.drain(drained, true);
            world.finish_upkeep();
            prop_assert!(holders(&world).iter().all(|held| !held.contains(&drained) && held.len() >= factor));
            let open = world.open().descriptor.clone();
            prop_assert!(open.replicas.iter().all(|replica| replica.node != drained), "{:?}", open);
        }
    }
}
