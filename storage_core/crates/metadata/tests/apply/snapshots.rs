//! Snapshots that this version cannot take, and those of clusters that go on under another id.

use uuid::Uuid;
use walrus_metadata::Metadata;

use crate::cluster::cluster_of;

#[test]
fn a_newer_snapshot_and_a_damaged_one_are_refused_by_name() {
    let metadata = cluster_of(2);
    let good = String::from_utf8(metadata.to_snapshot()).expect("JSON");
    assert_eq!(Metadata::from_snapshot(good.as_bytes()).expect("ours"), metadata);
    let newer = good.replacen("\"snapshot_version\":1", "\"snapshot_version\":2", 1);
    let text = Metadata::from_snapshot(newer.as_bytes()).expect_err("newer").to_string();
    assert!(text.contains("version 2"), "{text}");
    let text = Metadata::from_snapshot(&good.as_bytes()[..good.len() - 5]).expect_err("cut").to_string();
    assert!(text.contains("damaged"), "{text}");
}

#[test]
fn a_cluster_that_goes_on_under_another_id_remembers_those_that_it_had() {
    let first = cluster_of(2);
    let (second_id, third_id) = (Uuid::from_u128(2), Uuid::from_u128(3));
    let second = Metadata::from_snapshot(&first.continued_as(second_id).to_snapshot()).expect("ours");
    assert_eq!(
        (second.cluster_id, second.former_ids.as_slice()),
        (Some(second_id), first.cluster_id.as_slice())
    );
    let third = second.continued_as(third_id);
    assert_eq!(third.former_ids, [first.cluster_id.expect("founded"), second_id]);
}
