//! Tests of `GET` over real sockets: one cursor for all nodes and connections hands entries out at least once, and once when
//! nothing fails.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use walrus_broker::{PartitionRef, TopicPath};
use walrus_metadata::{Command, LEVEL};
use walrus_model::Replication;

use crate::client::named;
use crate::harness::{Cluster, PATIENCE, wait_until};
use crate::text_client::connect;

fn put(cluster: &Cluster, node: u32, entries: std::ops::Range<u32>) {
    let mut client = connect(cluster, node);
    for n in entries {
        assert_eq!(client.ask(&format!("PUT t {n}")), "OK");
    }
}

/// Takes everything that is left of topic `t`, over one connection to a node.
fn drain(cluster: &Cluster, node: u32) -> Vec<u32> {
    let mut client = connect(cluster, node);
    let mut entries = Vec::new();
    loop {
        match client.ask("GET t").as_str() {
            "EMPTY" => return entries,
            answer => entries.push(answer.strip_prefix("OK ").expect(answer).parse().unwrap()),
        }
    }
}

/// Takes the next entries of topic `t`, and says that they have arrived.
fn drain_some(cluster: &Cluster, node: u32, count: usize) -> Vec<u32> {
    let mut client = connect(cluster, node);
    let entries =
        (0..count).map(|_| client.ask("GET t").strip_prefix("OK ").expect("an entry").parse().unwrap());
    let entries = entries.collect();
    assert_eq!(client.ask("COMMIT"), "OK");
    entries
}

/// Reads with eight clients on three nodes until every entry was seen.
fn read_concurrently(cluster: &Cluster, expected: usize, during: impl FnOnce()) -> Vec<u32> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..8)
        .map(|n| {
            let mut client = connect(cluster, n % 3 + 1);
            let (seen, done) = (seen.clone(), done.clone());
            std::thread::spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    match client.ask("GET t").as_str() {
                        "EMPTY" => std::thread::yield_now(),
                        answer => {
                            let entry = answer.strip_prefix("OK ").expect(answer).parse().unwrap();
                            seen.lock().unwrap().push(entry);
                        }
                    }
                }
            })
        })
        .collect();
    during();
    wait_until("every entry is read", PATIENCE, || seen.lock().unwrap().len() >= expected);
    done.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.join().unwrap();
    }
    let mut seen = std::mem::take(&mut *seen.lock().unwrap());
    seen.sort_unstable();
    seen
}

#[test]
fn eight_readers_on_three_nodes_get_each_entry_once() {
    let cluster = Cluster::start(3, json!({}));
    put(&cluster, 1, 0..100);
    let seen = read_concurrently(&cluster, 500, || put(&cluster, 2, 100..500));
    assert_eq!(seen, (0..500).collect::<Vec<_>>());
}

#[test]
fn each_entry_comes_once_while_segments_of_the_topic_and_of_the_cursors_roll() {
    let cluster = Cluster::start(3, json!({"segment_entries_max": 40}));
    put(&cluster, 1, 0..1);
    let seen = read_concurrently(&cluster, 400, || put(&cluster, 3, 1..400));
    assert_eq!(seen, (0..400).collect::<Vec<_>>());
    let cursors = cluster.metadata();
    let rolled = cursors.topics.values().filter(|topic| topic.internal).flat_map(|topic| &topic.partitions);
    assert!(rolled.map(|partition| partition.segments.len()).max() > Some(1), "the owner did not move");
}

#[test]
fn an_entry_that_a_reset_connection_held_goes_to_the_next_reader() {
    let cluster = Cluster::start(1, json!({}));
    put(&cluster, 1, 0..3);
    let mut broken = connect(&cluster, 1);
    assert_eq!(broken.ask("GET t"), "OK 0");
    assert_eq!(broken.ask("GET t"), "OK 1", "asking again says that 0 has arrived");
    let mut other = connect(&cluster, 1);
    assert_eq!(other.ask("GET t"), "OK 2", "1 is held");
    broken.reset();
    wait_until("the entry comes back", PATIENCE, || match other.ask("GET t").as_str() {
        "EMPTY" => false,
        answer => {
            assert_eq!(answer, "OK 1");
            true
        }
    });
    assert_eq!(other.ask("GET t"), "EMPTY");
}

#[test]
fn a_connection_that_closes_after_its_answer_has_received_it() {
    let cluster = Cluster::start(1, json!({}));
    put(&cluster, 1, 0..20);
    for n in 0..20 {
        let mut client = connect(&cluster, 1);
        let mut got = client.ask("GET t");
        wait_until("the close before is heard", PATIENCE, || {
            got != "EMPTY" || {
                got = client.ask("GET t");
                got != "EMPTY"
            }
        });
        assert_eq!(got, format!("OK {n}"));
    }
    assert_eq!(drain(&cluster, 1), Vec::<u32>::new());
}

#[test]
fn a_client_that_left_before_its_answer_has_not_received_it() {
    let cluster = Cluster::start(1, json!({}));
    put(&cluster, 1, 0..1);
    for _ in 0..5 {
        let mut client = connect(&cluster, 1);
        client.send(b"GET t");
        drop(client); // a close, not a reset: nothing was unread
    }
    wait_until("the entry comes back", PATIENCE, || drain(&cluster, 1) == [0]);
}

#[test]
fn a_client_that_only_ends_its_requests_still_receives_the_answer() {
    let cluster = Cluster::start(1, json!({}));
    put(&cluster, 1, 0..2);
    let mut client = connect(&cluster, 1);
    client.send(b"GET t");
    client.finish();
    assert_eq!(client.answer().as_deref(), Some("OK 0"));
    assert_eq!(client.answer(), None);
    drop(client);
    wait_until("the second entry is free", PATIENCE, || drain(&cluster, 1) == [1]);
}

#[test]
fn after_a_restart_only_what_was_not_delivered_comes_again() {
    let mut cluster = Cluster::start(1, json!({}));
    put(&cluster, 1, 0..10);
    let mut client = connect(&cluster, 1);
    for n in 0..4 {
        assert_eq!(client.ask("GET t"), format!("OK {n}"));
    }
    let mut holder = connect(&cluster, 1);
    assert_eq!(holder.ask("GET t"), "OK 4", "held, and not known to have arrived");
    for n in 5..8 {
        assert_eq!(client.ask("GET t"), format!("OK {n}"));
    }
    assert_eq!(client.ask("COMMIT"), "OK");
    cluster.stop(1);
    cluster.restart(1);
    assert_eq!(drain(&cluster, 1), [4, 8, 9]);
}

#[test]
fn the_cursor_goes_on_when_its_owner_comes_back_as_another_process() {
    let mut cluster = Cluster::start(3, json!({}));
    put(&cluster, 1, 0..30);
    let mut client = connect(&cluster, 1);
    for n in 0..10 {
        assert_eq!(client.ask("GET t"), format!("OK {n}"));
    }
    assert_eq!(client.ask("COMMIT"), "OK");
    for node in cluster.ids().collect::<Vec<_>>() {
        cluster.stop(node);
        cluster.restart(node);
        let expected = 10 + node * 2;
        let mut got = drain_some(&cluster, node, 2);
        got.sort_unstable();
        assert_eq!(got, [expected - 2, expected - 1], "through node {node}");
    }
    assert_eq!(drain(&cluster, 2), (16..30).collect::<Vec<_>>());
}

/// The owner of the cursor has read them all before, and handed out what was deleted meanwhile.
#[test]
fn deleted_entries_are_not_handed_out_though_they_were_read_ahead() {
    let cluster = Cluster::start(1, json!({}));
    cluster.command(Command::RaiseLevel { level: LEVEL });
    put(&cluster, 1, 0..10);
    let mut client = connect(&cluster, 1);
    assert_eq!(client.ask("GET t"), "OK 0");
    let deleting = cluster.broker(1);
    let before = BTreeMap::from([(0, Some(6))]);
    cluster.block_on(deleting.delete_records(&named("t"), before)).unwrap();
    assert_eq!(client.ask("GET t"), "OK 6");
    assert_eq!(drain(&cluster, 1), [7, 8, 9]);
}

#[test]
fn old_segments_of_the_cursors_are_dropped() {
    let cluster = Cluster::start(1, json!({"segment_entries_max": 300}));
    put(&cluster, 1, 0..2_500);
    let mut client = connect(&cluster, 1);
    for n in 0..2_500 {
        assert_eq!(client.ask("GET t"), format!("OK {n}"));
        assert_eq!(client.ask("COMMIT"), "OK");
    }
    let trimmed = || {
        let metadata = cluster.metadata();
        let internal = metadata.topics.values().filter(|topic| topic.internal);
        internal.flat_map(|topic| &topic.partitions).any(|partition| partition.trimmed_below > 0)
    };
    wait_until("segments are trimmed", PATIENCE, trimmed);
    assert_eq!(client.ask("GET t"), "EMPTY");
}

#[test]
fn all_partitions_of_a_topic_are_read() {
    let cluster = Cluster::start(3, json!({}));
    assert!(cluster.block_on(cluster.broker(1).create_topic(&named("t"), 4)).unwrap().1);
    put(&cluster, 2, 0..40);
    let entries = drain(&cluster, 3);
    assert_eq!(entries.len(), 40);
    assert_eq!(entries.iter().collect::<HashSet<_>>().len(), 40);
    let turn: HashSet<u32> = entries[..4].iter().map(|entry| entry % 4).collect();
    assert_eq!(turn.len(), 4, "partitions take turns: {entries:?}");
}

/// The owner had heard of deliveries and died before they were recorded. The next one never heard of them, and handed
/// them out again behind a COMMIT that was answered.
#[test]
fn what_was_committed_stays_committed_though_an_owner_died_before_it_recorded_it() {
    let replication = Replication { factor: 3, write_quorum: 2 };
    let mut cluster = Cluster::start_replicated(3, json!({ "test_controls": true }), replication);
    put(&cluster, 1, 0..10);
    let mut seen = drain_some(&cluster, 1, 1);
    let topic = cluster.broker(1).topic(&named("t")).unwrap().id;
    let partition = u32::try_from(topic.as_u128() % 8).unwrap();
    let log = PartitionRef { topic: TopicPath::internal("__cursors").unwrap(), partition };
    let owner = cluster.broker(1).leadership(&log).unwrap().node;
    let other = cluster.ids().find(|id| *id != owner).unwrap();
    let mut client = connect(&cluster, other);
    cluster.plane(owner).test_control("revoke_leases").unwrap(); // it takes no records any more
    for _ in 0..5 {
        seen.push(client.ask("GET t").strip_prefix("OK ").expect("an entry").parse().unwrap());
    }
    cluster.stop_unnoticed(owner);
    wait_until("COMMIT is answered", PATIENCE, || client.ask("COMMIT") == "OK");
    wait_until("all entries are handed out", PATIENCE, || {
        seen.extend(client.ask("GET t").strip_prefix("OK ").map(|entry| entry.parse::<u32>().unwrap()));
        seen.len() == 10
    });
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
}
