//! Three replicas, two acknowledge, producers at work: nodes freeze, networks part.
//!
//! `WALRUS_FAULT_RUNS=50 cargo test --test cluster faults` repeats each.

use serde_json::json;
use walrus_broker::PartitionRef;
use walrus_log::{CrashChoice, SimulatedDisk, TailKind};
use walrus_metadata::Replication;

use crate::harness::{Cluster, wait_for, wait_until};
use crate::links::Link;
use crate::load::{Load, PATIENCE};

const REPLICATION: Replication = Replication { factor: 3, write_quorum: 2 };
/// Acknowledged before, during and after a fault.
const SOME: usize = 30;

fn runs() -> u32 {
    std::env::var("WALRUS_FAULT_RUNS").map_or(1, |runs| runs.parse().unwrap())
}

fn topic() -> PartitionRef {
    PartitionRef::parse("logs", 0).unwrap()
}

/// Appends that a node cannot bring about must not keep a producer long: it asks the next node.
fn options() -> serde_json::Value {
    json!({ "append_wait_ms": 1_000, "segment_entries_max": 200 })
}

fn linked() -> Cluster {
    let cluster = Cluster::start_linked(3, options(), REPLICATION);
    cluster.block_on(async { cluster.broker(1).create_topic("logs", 1, false).await.unwrap() });
    cluster
}

fn leader(cluster: &Cluster, seen_by: u32) -> u32 {
    wait_for("the partition has a leader", PATIENCE, || cluster.broker(seen_by).leadership(&topic())).node
}

fn wait_for_another_leader(cluster: &Cluster, than: u32, seen_by: u32) {
    wait_until("somebody else leads", PATIENCE, || leader(cluster, seen_by) != than);
}

fn others(cluster: &Cluster, than: u32) -> Vec<u32> {
    cluster.ids().filter(|id| *id != than).collect()
}

/// All that a node says and hears stands still, metadata included.
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

#[test]
fn a_replica_that_loses_what_it_had_not_synced_costs_nothing() {
    for seed in 0..u64::from(runs()) {
        for fsync in ["each", "never"] {
            loses_unsynced(fsync, seed);
        }
    }
}

/// The machine of one node loses power; with `never` it may lose what it has acknowledged, and is suspect.
fn loses_unsynced(fsync: &str, seed: u64) {
    let disks = (0..3).map(|_| SimulatedDisk::new(TailKind::Mapped)).collect();
    let mut with_fsync = options();
    with_fsync["fsync"] = json!(fsync);
    let mut cluster = Cluster::start_linked_on(disks, with_fsync, REPLICATION);
    cluster.block_on(async { cluster.broker(1).create_topic("logs", 1, false).await.unwrap() });
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
