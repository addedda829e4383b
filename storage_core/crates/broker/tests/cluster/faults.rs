//! Tests with three replicas, of which two acknowledge, and producers at work, while nodes freeze and networks part.
//!
//! `WALRUS_FAULT_RUNS=50 cargo test --test cluster faults` repeats each.

use serde_json::json;
use walrus_broker::PartitionRef;
use walrus_log::{CrashChoice, SimulatedDisk, TailKind};
use walrus_model::{Descriptor, Replication};

use crate::client::{named, put};
use crate::harness::{Cluster, wait_for, wait_until};
use crate::links::Link;
use crate::load::{Load, PATIENCE};

const REPLICATION: Replication = Replication { factor: 3, write_quorum: 2 };
/// Appends that are to be acknowledged before, during and after a fault.
const SOME: usize = 30;

fn runs() -> u32 {
    std::env::var("WALRUS_FAULT_RUNS").map_or(1, |runs| runs.parse().unwrap())
}

fn topic() -> PartitionRef {
    PartitionRef::parse("logs", 0).unwrap()
}

/// The nodes' options. Appends that a node cannot bring about must not keep a producer long, for it asks the next node then.
fn options() -> serde_json::Value {
    json!({ "append_wait_ms": 1_000, "segment_entries_max": 200 })
}

fn linked() -> Cluster {
    let cluster = Cluster::start_linked(3, options(), REPLICATION);
    cluster.block_on(async { cluster.broker(1).create_topic(&named("logs"), 1).await.unwrap() });
    cluster
}

fn leader(cluster: &Cluster, seen_by: u32) -> u32 {
    wait_for("the partition has a leader", PATIENCE, || cluster.broker(seen_by).leadership(&topic())).node
}

fn wait_for_another_leader(cluster: &Cluster, than: u32, seen_by: u32) {
    wait_until("somebody else leads", PATIENCE, || leader(cluster, seen_by) != than);
}

/// The segment that metadata has allotted to follow the open one.
fn successor(cluster: &Cluster) -> Option<Descriptor> {
    let metadata = cluster.metadata();
    let partition = metadata.topics.values().flat_map(|topic| &topic.partitions).next()?;
    partition.segments.last()?.successor.clone()
}

fn others(cluster: &Cluster, than: u32) -> Vec<u32> {
    cluster.ids().filter(|id| *id != than).collect()
}

/// Makes all that a node says and hears stand still, metadata included.
fn freeze(cluster: &Cluster, id: u32) {
    cluster.isolate(id);
    others(cluster, id).into_iter().for_each(|other| cluster.links().set(id, other, Link::Held));
}

fn thaw(cluster: &Cluster, id: u32) {
    others(cluster, id).into_iter().for_each(|other| cluster.links().set(id, other, Link::Open));
    cluster.rejoin(id);
}

#[test]
fn a_leader_that_freezes_and_wakes_up_has_acknowledged_nothing_that_is_lost() {
    for _ in 0..runs() {
        let cluster = linked();
        let load = Load::start(&cluster, &topic(), 3);
        load.wait_for_more(SOME);
        let zombie = leader(&cluster, 1);
        let seen_by = others(&cluster, zombie)[0];
        freeze(&cluster, zombie);
        wait_for_another_leader(&cluster, zombie, seen_by);
        load.wait_for_more(SOME);
        thaw(&cluster, zombie);
        load.wait_for_more(SOME);
        load.finish(&cluster, cluster.ids());
        cluster.wait_until_whole();
    }
}

#[test]
fn a_follower_that_freezes_stops_nobody() {
    for _ in 0..runs() {
        let cluster = linked();
        let load = Load::start(&cluster, &topic(), 3);
        load.wait_for_more(SOME);
        let leader = leader(&cluster, 1);
        let frozen = others(&cluster, leader)[0];
        freeze(&cluster, frozen);
        load.wait_for_more(SOME);
        thaw(&cluster, frozen);
        load.wait_for_more(SOME);
        load.finish(&cluster, cluster.ids());
        cluster.wait_until_whole();
    }
}

#[test]
fn a_leader_cut_off_from_its_followers_and_not_from_the_metadata_is_replaced() {
    for _ in 0..runs() {
        let cluster = linked();
        let load = Load::start(&cluster, &topic(), 3);
        load.wait_for_more(SOME);
        let alone = leader(&cluster, 1);
        let seen_by = others(&cluster, alone)[0];
        for other in others(&cluster, alone) {
            cluster.links().set(alone, other, Link::Cut);
        }
        wait_for_another_leader(&cluster, alone, seen_by);
        load.wait_for_more(SOME);
        for other in others(&cluster, alone) {
            cluster.links().set(alone, other, Link::Open);
        }
        load.wait_for_more(SOME);
        load.finish(&cluster, cluster.ids());
        cluster.wait_until_whole();
    }
}

#[test]
fn a_leader_cut_off_from_the_metadata_goes_on_in_its_open_segment() {
    for _ in 0..runs() {
        let cluster = linked();
        let load = Load::start(&cluster, &topic(), 1);
        load.wait_for_more(SOME);
        let leader = leader(&cluster, 1);
        cluster.isolate(leader);
        // Beyond the size at which it would be rolled, too.
        load.wait_for_more(300);
        cluster.rejoin(leader);
        load.wait_for_more(SOME);
        load.finish(&cluster, cluster.ids());
        cluster.wait_until_whole();
    }
}

/// No other node can end the segment here: the others hear this one, and metadata says that it leads.
#[test]
fn a_roll_that_finds_neither_votes_nor_metadata_goes_on_when_they_are_back() {
    const SELDOM: &str = r#"{"monitor_check_ms": 3600000}"#;
    let options = json!({ "segment_age_ms_max": 1_000, "monitor_check_ms": 3_600_000 });
    let cluster = Cluster::start_linked(3, options, REPLICATION);
    cluster.block_on(async { cluster.broker(1).create_topic(&named("logs"), 1).await.unwrap() });
    let alone = leader(&cluster, 1);
    let append = |value| cluster.block_on(put(&cluster.broker(alone), &topic(), value));
    append("before").unwrap();
    for other in others(&cluster, alone) {
        cluster.isolate(other);
        cluster.links().set(alone, other, Link::Held);
    }
    wait_until("it rolls, and follows itself", PATIENCE, || {
        cluster.plane(alone).configure(SELDOM).unwrap(); // looks at its segments now, as nothing else does here
        successor(&cluster).is_some_and(|successor| successor.leader.node.0 == alone)
    });
    cluster.set_metadata_away(true);
    wait_until("it cannot be recovered", PATIENCE, || cluster.was_refused(alone, "begin_recovery"));
    cluster.set_metadata_away(false);
    for other in others(&cluster, alone) {
        cluster.links().set(alone, other, Link::Open);
        cluster.rejoin(other);
    }
    wait_for("appends go on", PATIENCE, || append("after"));
}

/// The next leader was allotted before it fell silent, and a roll waited for its answer.
#[test]
fn a_roll_does_not_wait_for_a_next_leader_that_is_known_to_be_silent() {
    let options = json!({ "append_wait_ms": 2_000, "segment_entries_max": 10 });
    let cluster = Cluster::start_linked(3, options, REPLICATION);
    cluster.block_on(async { cluster.broker(1).create_topic(&named("logs"), 1).await.unwrap() });
    let first = leader(&cluster, 1);
    let append_some = |count| {
        for _ in 0..count {
            cluster.block_on(put(&cluster.broker(first), &topic(), "value")).unwrap();
        }
    };
    append_some(9);
    let next = wait_for("a successor is allotted", PATIENCE, || {
        successor(&cluster).map(|successor| successor.leader.node.0).ok_or("none")
    });
    assert_ne!(next, first);
    freeze(&cluster, next);
    wait_until("it is silent", PATIENCE, || {
        let metrics = cluster.plane(first).prometheus();
        let silent =
            |line: &str| line.starts_with("walrus_partition_silent_replicas{") && line.ends_with(" 1");
        metrics.lines().any(silent)
    });
    append_some(4);
    thaw(&cluster, next);
    cluster.wait_until_whole();
}

#[test]
fn a_replica_that_loses_what_it_had_not_synced_costs_nothing() {
    for seed in 0..u64::from(runs()) {
        for fsync in ["each", "never"] {
            loses_unsynced(fsync, seed);
        }
    }
}

/// Has the machine of one node lose power; with `never` it may lose what it has acknowledged, and is suspect.
fn loses_unsynced(fsync: &str, seed: u64) {
    let disks = (0..3).map(|_| SimulatedDisk::new(TailKind::Mapped)).collect();
    let mut with_fsync = options();
    with_fsync["fsync"] = json!(fsync);
    let mut cluster = Cluster::start_linked_on(disks, with_fsync, REPLICATION);
    cluster.block_on(async { cluster.broker(1).create_topic(&named("logs"), 1).await.unwrap() });
    let load = Load::start(&cluster, &topic(), 3);
    load.wait_for_more(SOME);
    let victim = others(&cluster, leader(&cluster, 1))[(seed % 2) as usize];
    freeze(&cluster, victim); // nothing that it says from here on is heard
    cluster.lose_power(victim, CrashChoice::Some(seed));
    load.wait_for_more(SOME);
    thaw(&cluster, victim);
    cluster.restart(victim);
    load.wait_for_more(SOME);
    load.finish(&cluster, cluster.ids());
    cluster.wait_until_whole();
}
