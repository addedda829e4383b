//! Scenarios of the table of routes, which is made from the one before: after each change it must be the one that would be made
//! from nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;
use walrus_metadata::{Request, Response, SegmentState, Topic};
use walrus_model::{Descriptor, Digest, Offset, Replication, Value};

use super::node::TestNode;
use crate::cluster::routing::{Routing, base_of};
use crate::node::names::{PartitionRef, TopicPath};

const NAMES: [&str; 5] = ["t", "a", "b", "c", "d"];

fn path(name: &str) -> TopicPath {
    PartitionRef::parse(name, 0).unwrap().topic
}

/// What a test does next, drawn from a number.
fn step(node: &TestNode, drawn: u64) {
    let name = NAMES[(drawn / 8) as usize % NAMES.len()];
    let found = node.cluster().routing().find(&path(name)).map(|route| route.topic.clone());
    let Some(topic) = found else {
        let partitions = [1, 2, 3][(drawn / 64) as usize % 3];
        let (org, name, config) = ("default".to_owned(), name.to_owned(), BTreeMap::new());
        node.carry_out(&Request::CreateTopic { org, name, partitions, internal: false, config }).unwrap();
        return;
    };
    let id = topic.id;
    match drawn % 8 {
        0 | 1 => drop(node.carry_out(&Request::DeleteTopic { topic: id }).unwrap()),
        2 => {
            let set = [("max.message.bytes".to_owned(), (1 + drawn / 64 % 3).to_string())].into();
            let request = Request::AlterTopic { topic: id, set, unset: BTreeSet::new(), expect: None };
            node.carry_out(&request).unwrap();
        }
        3 => {
            let partitions = topic.partition_count() + u32::try_from(drawn / 64 % 3).unwrap();
            node.carry_out(&Request::AddPartitions { topic: id, partitions }).unwrap();
        }
        _ => roll(node, &topic, u32::try_from(drawn / 64).unwrap() % topic.partition_count()),
    }
}

/// Seals the open segment of a partition behind one record more, and opens the next at the other node.
fn roll(node: &TestNode, topic: &Arc<Topic>, partition: u32) {
    let open = topic.partitions[partition as usize].segments.last().unwrap();
    assert_eq!(open.state, SegmentState::Open);
    let (topic, segment) = (topic.id, open.descriptor.id);
    let begun = node.carry_out(&Request::BeginRoll { topic, partition, segment, avoid: Vec::new() });
    let Ok(Response::Successor(successor)) = begun else { panic!("{begun:?}") };
    let end = Offset(base_of(open) + 1);
    let successor = Descriptor { base_offset: Some(end), ..*successor };
    let value = Box::new(Value::without_loss(end, Digest(1), successor));
    node.carry_out(&Request::SealAndOpen { topic, partition, segment, value }).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_table_that_was_changed_step_by_step_is_the_one_that_is_made_from_nothing() {
    for seed in 0..10 {
        let node = TestNode::start(2, Replication::single(), json!({}));
        let mut drawn: u64 = seed;
        for _ in 0..150 {
            drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            step(&node, drawn >> 33);
            let table = Arc::clone(&node.cluster().routing());
            let (fresh, changes) = Routing::empty().next(table.metadata.clone(), node.cluster().config());
            assert_eq!(table.topics().count(), fresh.topics().count());
            assert_eq!(changes.changed.len(), table.metadata.topics.len());
            for name in NAMES {
                let found = |table: &Routing| {
                    table
                        .find(&path(name))
                        .map(|route| (route.topic.clone(), route.path.clone(), route.settings))
                };
                assert_eq!(found(&table), found(&fresh), "seed {seed}, {name}");
            }
            assert_eq!(table.leases, fresh.leases, "seed {seed}");
            let held = node.cluster().metrics().bucket_leases.get();
            assert_eq!(held, i64::try_from(fresh.leases.by_key.len()).unwrap(), "seed {seed}");
            let (same, changes) = table.next(table.metadata.clone(), node.cluster().config());
            assert!(changes.is_empty() && Arc::ptr_eq(&same.leases, &table.leases));
            for route in table.topics() {
                let partitions = 0..route.topic.partition_count();
                assert!(
                    partitions.into_iter().all(|index| node.topics.partitions().has_sequencer(route, index))
                );
            }
        }
    }
}

/// A change of one partition cost each node a look at all partitions of its topic.
#[tokio::test(start_paused = true)]
async fn a_change_of_one_partition_is_told_as_a_change_of_that_one() {
    let node = TestNode::start(2, Replication::single(), json!({}));
    let (org, name, config) = ("default".to_owned(), "wide".to_owned(), BTreeMap::new());
    node.carry_out(&Request::CreateTopic { org, name, partitions: 100, internal: false, config }).unwrap();
    let table = || Arc::clone(&node.cluster().routing());
    let before = table();
    let topic = before.find(&path("wide")).unwrap().topic.clone();
    let changed = |before: &Routing, after: &Routing| {
        let (_, changes) = before.next(after.metadata.clone(), node.cluster().config());
        changes.changed.into_iter().map(|one| one.partitions).collect::<Vec<_>>()
    };
    roll(&node, &topic, 42);
    let rolled = table();
    assert_eq!(changed(&before, &rolled), [[42]]);
    node.carry_out(&Request::AddPartitions { topic: topic.id, partitions: 102 }).unwrap();
    let added = table();
    assert_eq!(changed(&rolled, &added), [[100, 101]]);
    let set = [("walrus.segment.entries".to_owned(), "7".to_owned())].into();
    let request = Request::AlterTopic { topic: topic.id, set, unset: BTreeSet::new(), expect: None };
    node.carry_out(&request).unwrap();
    assert_eq!(
        changed(&added, &table()),
        [(0..102).collect::<Vec<_>>()],
        "all partitions act by the settings"
    );
}
