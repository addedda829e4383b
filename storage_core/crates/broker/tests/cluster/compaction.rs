//! Topics that keep the last record of each key: what goes, what stays, and that no copy is left of what went.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use walrus_broker::{Broker, ConfigChange, PartitionRef};
use walrus_log::LogId;
use walrus_log::batch::{Batch, BatchBuilder};
use walrus_metadata::{CopyState, Metadata, Partition, Segment, SegmentState};
use walrus_model::{Offset, Replication, SegmentId};

use crate::client::options;
use crate::harness::{Cluster, PATIENCE};

const REPLICATED: Replication = Replication { factor: 3, write_quorum: 2 };

/// Small segments, which are looked at often.
fn small() -> serde_json::Value {
    json!({ "monitor_check_ms": 20, "segment_entries_max": 10 })
}

/// What a topic must have for a pass to come soon.
const EAGER: [(&str, &str); 3] =
    [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0"), ("segment.bytes", "1048576")];

fn set(cluster: &Cluster, topic: &PartitionRef, entries: &[(&str, &str)]) {
    let set = entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let change = ConfigChange { set, ..ConfigChange::default() };
    cluster.block_on(async { cluster.broker(1).alter_topic(&topic.topic, change).await.unwrap() });
}

fn partition(metadata: &Metadata, topic: &str) -> Partition {
    Partition::clone(&metadata.topics[&metadata.names["default"][topic]].partitions[0])
}

/// A record: its offset, its key, its value.
type Found = (u64, String, Option<String>);

async fn put_pair(broker: &Broker, to: &PartitionRef, key: &str, value: Option<&str>) -> u64 {
    let mut builder = BatchBuilder::new();
    builder.push(Some(key.as_bytes()), value.map(str::as_bytes), 1_700_000_000_000, &[]);
    let mut bytes = Vec::new();
    builder.build(&mut bytes).unwrap();
    let until = Instant::now() + PATIENCE;
    loop {
        match broker.append(to, bytes.clone().into()).await {
            Ok(ack) => return ack.base_offset,
            Err(error) => assert!(error.retryable() && Instant::now() < until, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// All records up to an offset, as a node answers them.
async fn read_all(broker: &Broker, from: &PartitionRef, end: u64) -> Vec<Found> {
    let (mut found, mut next, until) = (Vec::new(), 0, Instant::now() + PATIENCE);
    while next < end {
        assert!(Instant::now() < until, "at {next} of {end} after a long time");
        let page = match broker.read(from, next, options(Duration::from_secs(1))).await {
            Ok(page) => page,
            Err(error) if error.retryable() => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            Err(error) => panic!("at {next}: {error}"),
        };
        let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
        for bytes in page.batches() {
            let bytes = bytes.unwrap();
            let (batch, _) = Batch::parse(&bytes).unwrap();
            let records =
                batch.records().map(|record| record.unwrap()).filter(|record| record.offset >= next);
            found.extend(records.map(|one| (one.offset, text(one.key).unwrap(), text(one.value))));
        }
        next = page.next_offset;
    }
    found
}

/// What was appended, and what must be there of it.
#[derive(Default)]
struct Appended(Vec<Found>);

impl Appended {
    /// Appends records of seven keys, each of which comes again and again.
    fn append(&mut self, cluster: &Cluster, to: &PartitionRef, count: u64) {
        let broker = cluster.broker(1);
        let begun = self.0.len() as u64;
        cluster.block_on_long(async {
            for number in begun..begun + count {
                let (key, value) = (format!("k{}", number * 5 % 7), number.to_string());
                let offset = put_pair(&broker, to, &key, Some(&value)).await;
                self.0.push((offset, key, Some(value)));
            }
        });
    }

    fn delete(&mut self, cluster: &Cluster, to: &PartitionRef, key: &str) {
        let broker = cluster.broker(1);
        let offset = cluster.block_on(put_pair(&broker, to, key, None));
        self.0.push((offset, key.to_owned(), None));
    }

    fn end(&self) -> u64 {
        self.0.last().map_or(0, |last| last.0 + 1)
    }

    /// Checks what a node gives: each record as it was appended and in order, and the last one of each key among them.
    fn check(&self, found: &[Found]) {
        assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0), "{found:?}");
        for one in found {
            assert!(self.0.contains(one), "{one:?} was never appended");
        }
        let last: BTreeMap<&String, &Found> = self.0.iter().map(|one| (&one.1, one)).collect();
        for one in last.values() {
            assert!(found.contains(one) || one.2.is_none(), "{one:?} is missing from {found:?}");
        }
        let latest: BTreeMap<&String, &Found> = found.iter().map(|one| (&one.1, one)).collect();
        for (key, one) in &latest {
            assert!(last[key].2.is_some() || one.2.is_none(), "{key} has a value again");
        }
    }
}

/// Whether everything sealed was looked at, and nothing is left to be replaced or deleted.
fn is_clean(metadata: &Metadata, topic: &str) -> bool {
    let found = partition(metadata, topic);
    let open = found.segments.last().expect("one");
    let is_whole = |segment: &&Segment| matches!(segment.state, SegmentState::Sealed(_));
    let sealed = found.segments.iter().filter(is_whole);
    let compaction = &found.compaction;
    open.descriptor.base_offset == Some(compaction.cleaned_to)
        && compaction.candidate.is_none()
        && compaction.replaced.is_empty()
        && sealed.clone().all(|segment| segment.copies.len() == 3)
        && sealed.count() <= 1
}

fn compact_all(cluster: &Cluster, topic: &str) {
    cluster.let_go_until("everything sealed is compacted", |metadata| is_clean(metadata, topic));
}

/// Whether no node has the log of any of these segments.
fn are_gone(cluster: &Cluster, segments: &[SegmentId]) -> bool {
    let has = |id: u32, segment: &SegmentId| cluster.broker(id).bucket().log(LogId(segment.0)).is_some();
    cluster.ids().all(|id| !segments.iter().any(|segment| has(id, segment)))
}

fn sealed_of(metadata: &Metadata, topic: &str) -> Vec<SegmentId> {
    let segments = partition(metadata, topic).segments;
    segments[..segments.len() - 1].iter().map(|segment| segment.descriptor.id).collect()
}

#[test]
fn of_each_key_its_last_record_stays_on_every_node_and_the_rest_is_on_no_disk() {
    let mut cluster = Cluster::start_replicated(3, small(), REPLICATED);
    let topic = PartitionRef::parse("t", 0).unwrap();
    let mut appended = Appended::default();
    appended.append(&cluster, &topic, 105);
    let before = sealed_of(&cluster.metadata(), "t");
    assert!(before.len() >= 10);
    set(&cluster, &topic, &EAGER);
    compact_all(&cluster, "t");
    assert!(are_gone(&cluster, &before), "their logs are deleted");
    // Each key has one record in what was sealed, and the open segment stays as it is.
    for id in cluster.ids() {
        let found = cluster.block_on(read_all(&cluster.broker(id), &topic, appended.end()));
        appended.check(&found);
        let open = partition(&cluster.metadata(), "t").compaction.cleaned_to.0;
        assert_eq!(found.iter().filter(|one| one.0 < open).count(), 7, "{found:?}");
        assert_eq!(found.iter().filter(|one| one.0 >= open).count() as u64, appended.end() - open);
    }
    // A second pass over what the first one wrote, with restarts between.
    for id in cluster.ids() {
        cluster.stop(id);
        cluster.restart(id);
    }
    appended.append(&cluster, &topic, 95);
    let second = sealed_of(&cluster.metadata(), "t");
    compact_all(&cluster, "t");
    assert!(are_gone(&cluster, &second));
    for id in cluster.ids() {
        appended.check(&cluster.block_on(read_all(&cluster.broker(id), &topic, appended.end())));
    }
}

/// Its copies of what was replaced meanwhile go when it is back, and it gets what has their place.
#[test]
fn a_node_that_was_away_follows_a_compaction_when_it_is_back() {
    let mut cluster = Cluster::start_replicated(3, small(), REPLICATED);
    let topic = PartitionRef::parse("t", 0).unwrap();
    let mut appended = Appended::default();
    appended.append(&cluster, &topic, 64);
    cluster.let_go_until("all copies are verified", |metadata| {
        let found = partition(metadata, "t");
        let verified = |segment: &Segment| {
            segment.copies.iter().filter(|copy| copy.state == walrus_metadata::CopyState::Verified).count()
                == 3
        };
        found.segments[..found.segments.len() - 1].iter().all(verified)
    });
    let before = sealed_of(&cluster.metadata(), "t");
    let leader = partition(&cluster.metadata(), "t").segments.last().unwrap().descriptor.leader.node.0;
    let away = cluster.ids().find(|id| *id != leader && *id != 1).unwrap();
    cluster.stop(away);
    set(&cluster, &topic, &EAGER);
    let renewing = cluster.keep_renewing(cluster.ids().filter(|id| *id != away).collect());
    cluster.keep_copies_until("the others have compacted it", |metadata| {
        let found = partition(metadata, "t");
        found.segments.len() == 2 && found.compaction.candidate.is_none()
    });
    drop(renewing);
    cluster.restart(away);
    compact_all(&cluster, "t");
    assert!(are_gone(&cluster, &before));
    appended.check(&cluster.block_on(read_all(&cluster.broker(away), &topic, appended.end())));
}

/// A majority of the metadata is set back to before the compaction, whose segments are on no disk any more.
/// Sets the metadata back to before a compaction, changed in a way, and waits until the disks have told them of it.
fn compaction_outlives(set_back: impl Fn(&mut Partition, &Partition)) {
    let cluster = Cluster::start_replicated(3, small(), REPLICATED);
    let topic = PartitionRef::parse("t", 0).unwrap();
    let mut appended = Appended::default();
    appended.append(&cluster, &topic, 64);
    let before = cluster.metadata();
    set(&cluster, &topic, &EAGER);
    compact_all(&cluster, "t");
    let after = partition(&cluster.metadata(), "t");
    let known = after.segments[0].descriptor.id;
    cluster.rewrite(|metadata| {
        let id = before.names["default"]["t"];
        let mut topic = (*before.topics[&id]).clone();
        set_back(Arc::make_mut(&mut topic.partitions[0]), &after);
        metadata.topics.insert(id, topic.into());
    });
    cluster.let_go_until("they list what was compacted again", |metadata| {
        let found = partition(metadata, "t");
        found.segments.first().map(|first| first.descriptor.id) == Some(known)
            && found.compaction.replaced.is_empty()
    });
    for id in cluster.ids() {
        appended.check(&cluster.block_on(read_all(&cluster.broker(id), &topic, appended.end())));
    }
}

#[test]
fn metadata_that_have_forgotten_a_compaction_are_told_by_the_disks() {
    compaction_outlives(|_, _| {});
}

/// What was compacted is on no disk in its old form, so the copies of the new one are the only ones.
#[test]
fn copies_of_a_replacement_stay_where_metadata_take_it_for_a_candidate_that_was_given_up() {
    compaction_outlives(|set_back, known| {
        let mut given_up = known.segments[0].clone();
        given_up.begun.clear();
        given_up.copies.iter_mut().for_each(|copy| copy.state = CopyState::Leaving);
        set_back.compaction.replaced.push(given_up);
    });
}

#[test]
fn a_deleted_key_is_gone_after_a_while_and_never_has_a_value_again() {
    let cluster = Cluster::start_replicated(3, small(), REPLICATED);
    let topic = PartitionRef::parse("t", 0).unwrap();
    let mut appended = Appended::default();
    appended.append(&cluster, &topic, 30);
    appended.delete(&cluster, &topic, "k3");
    let has_k3 = |cluster: &Cluster, end: u64| {
        let found = cluster.block_on(read_all(&cluster.broker(2), &topic, end));
        found.iter().filter(|one| one.1 == "k3").count()
    };
    let rest = |cluster: &Cluster, appended: &mut Appended| {
        let broker = cluster.broker(1);
        cluster.block_on(async {
            for number in 0..20 {
                let value = format!("again {number}");
                let offset = put_pair(&broker, &topic, "k4", Some(&value)).await;
                appended.0.push((offset, "k4".to_owned(), Some(value)));
            }
        });
    };
    rest(&cluster, &mut appended);
    set(&cluster, &topic, &EAGER);
    compact_all(&cluster, "t");
    assert_eq!(has_k3(&cluster, appended.end()), 1, "the tombstone is all that is left of it");
    appended.check(&cluster.block_on(read_all(&cluster.broker(2), &topic, appended.end())));
    // The day is over for it.
    set(&cluster, &topic, &[("delete.retention.ms", "1")]);
    cluster.let_go_until("the tombstone goes", |metadata| {
        is_clean(metadata, "t") && has_k3(&cluster, appended.end()) == 0
    });
    appended.check(&cluster.block_on(read_all(&cluster.broker(3), &topic, appended.end())));
    rest(&cluster, &mut appended);
    compact_all(&cluster, "t");
    appended.check(&cluster.block_on(read_all(&cluster.broker(1), &topic, appended.end())));
    assert_eq!(has_k3(&cluster, appended.end()), 0);
}

/// The records below the start of a partition go with the next pass, also in the middle of a segment.
#[test]
fn a_compaction_leaves_out_what_was_deleted() {
    let cluster = Cluster::start_replicated(3, small(), REPLICATED);
    let topic = PartitionRef::parse("t", 0).unwrap();
    let mut appended = Appended::default();
    appended.append(&cluster, &topic, 45);
    let starts = BTreeMap::from([(0, Some(23))]);
    cluster.block_on(async { cluster.broker(1).delete_records(&topic.topic, starts).await.unwrap() });
    set(&cluster, &topic, &EAGER);
    compact_all(&cluster, "t");
    let left = partition(&cluster.metadata(), "t");
    assert_eq!(left.log_start(), Offset(23));
    let found = cluster.block_on(async {
        let page = cluster.broker(2).read(&topic, 23, options(Duration::ZERO)).await.unwrap();
        let batches = page.batches().map(|bytes| bytes.unwrap()).collect::<Vec<_>>();
        batches
            .iter()
            .flat_map(|bytes| {
                let batch = Batch::parse(bytes).unwrap().0;
                batch.records().map(|one| one.unwrap().offset).collect::<Vec<_>>()
            })
            .collect::<Vec<_>>()
    });
    assert!(found.iter().all(|offset| *offset >= 23), "{found:?}");
}
