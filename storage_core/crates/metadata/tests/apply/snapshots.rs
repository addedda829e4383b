//! Snapshots that this version cannot take.

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
