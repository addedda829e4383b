//! Tests of the bucket's leases and its controls for tests.

use std::time::Duration;

use serde_json::json;
use walrus_broker::{Error, PartitionRef};

use crate::client::{options, put, read_values};
use crate::harness::Cluster;

#[test]
fn without_its_lease_a_leader_rejects_writes_and_serves_reads() {
    let cluster = Cluster::start(3, json!({ "test_controls": true }));
    cluster.block_on(async {
        let topic = PartitionRef::parse("logs", 0).unwrap();
        put(&cluster.broker(1), &topic, "kept").await.unwrap();
        let leader = cluster.broker(1).leadership(&topic).unwrap().node;
        cluster.plane(leader).test_control("revoke_leases").unwrap();
        for id in cluster.ids() {
            let error = put(&cluster.broker(id), &topic, "rejected").await.unwrap_err();
            assert!(matches!(error, Error::NotLeader { .. }), "{error:?}");
            assert_eq!(error.to_string(), "NotLeaderForPartition: t_logs_p_0_s_0");
            assert_eq!(read_values(&cluster.broker(id), &topic, 0, 1).await, [(0, "kept".to_owned())]);
        }
        assert!(cluster.plane(leader).prometheus().contains("walrus_bucket_rejects_total 3"));

        cluster.plane(leader).test_control("sync_leases").unwrap();
        assert_eq!(put(&cluster.broker(1), &topic, "taken").await.unwrap().base_offset, 1);
    });
}

#[test]
fn reads_that_fail_say_so_and_come_back() {
    let cluster = Cluster::start(2, json!({ "test_controls": true }));
    cluster.block_on(async {
        let topic = PartitionRef::parse("logs", 0).unwrap();
        put(&cluster.broker(1), &topic, "kept").await.unwrap();
        let leader = cluster.broker(1).leadership(&topic).unwrap().node;
        cluster.plane(leader).test_control("fail_reads").unwrap();
        for id in cluster.ids() {
            let error = cluster.broker(id).read(&topic, 0, options(Duration::ZERO)).await.unwrap_err();
            assert_eq!(error.reason(), "Storage");
        }
        cluster.plane(leader).test_control("allow_reads").unwrap();
        assert_eq!(read_values(&cluster.broker(1), &topic, 0, 1).await.len(), 1);
    });
}

#[test]
fn controls_for_tests_are_closed_unless_the_config_opens_them() {
    let cluster = Cluster::start(1, json!({}));
    assert!(cluster.plane(1).test_control("revoke_leases").is_err());
}

#[test]
fn leases_follow_the_metadata() {
    let cluster = Cluster::start(2, json!({ "segment_entries_max": 3 }));
    cluster.block_on(async {
        let topic = PartitionRef::parse("logs", 0).unwrap();
        for number in 0..10 {
            put(&cluster.broker(1), &topic, &number.to_string()).await.unwrap();
        }
    });
    let held = |id: u32| {
        let text = cluster.plane(id).prometheus();
        let line = text.lines().find(|line| line.starts_with("walrus_bucket_leases "));
        line.and_then(|line| line.rsplit(' ').next()).map(|value| value.parse::<u64>().unwrap())
    };
    assert_eq!(held(1).unwrap() + held(2).unwrap(), 1, "one open segment, one lease");
}
