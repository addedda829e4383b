//! The producers that a segment says are forgotten behind it.

use walrus_metadata::{Command, Envelope, LEVEL, Metadata, apply};
use walrus_model::{NodeId, Offset};

use crate::cluster::{NOW_MS, cluster_of, create, envelope, last_segment, run, value};

/// Makes node `n` renew its lease at a time of its wall clock.
fn renew_at(metadata: &mut Metadata, n: u32, at_ms: u64) {
    let (node, process) = (NodeId(n), metadata.nodes[&NodeId(n)].process);
    let renew = Command::RenewLease { node, process, asked_boottime_ms: 0 };
    apply(metadata, &Envelope { at_ms, ..envelope(0, renew) }).expect("its own");
}

#[test]
fn a_segment_says_which_producers_had_been_silent_when_it_was_opened() {
    let mut metadata = cluster_of(1);
    run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
    let topic = create(&mut metadata, "t", 1).expect("a topic");
    let mut seal_at = |end: u64, minutes: u64| {
        let segment = last_segment(&metadata, topic).id;
        let value = value(&metadata, topic, end);
        let at_ms = NOW_MS + minutes * 60_000;
        renew_at(&mut metadata, 1, at_ms);
        let seal = Command::SealAndOpen { topic, partition: 0, segment, value };
        apply(&mut metadata, &Envelope { at_ms, ..envelope(u128::from(100 + end), seal) }).expect("open");
        metadata.topics[&topic].partitions[0].segments.last().expect("one").silent_below
    };
    // Opened at minute 0, 5, 16, 21, 22, with bases 0, 10, 20, 30, 40.
    assert_eq!(seal_at(10, 5), Offset(0));
    assert_eq!(seal_at(20, 16), Offset(0));
    assert_eq!(seal_at(30, 21), Offset(10), "segment 1 is 16 minutes old");
    assert_eq!(seal_at(40, 22), Offset(10));
    assert_eq!(seal_at(50, 36), Offset(30), "segment 3 is 15 minutes old");
    assert_eq!(seal_at(60, 1), Offset(30), "a clock that goes back takes nothing back");
}

/// A node whose clock was an hour ahead made all copies forget producers that had written a minute before, and what these
/// sent again was stored twice.
#[test]
fn no_clock_that_is_wrong_makes_a_producer_forgotten() {
    let mut metadata = cluster_of(3);
    run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
    let topic = create(&mut metadata, "t", 1).expect("a topic");
    let minute = |minutes: u64| NOW_MS + minutes * 60_000;
    let seal_at = |metadata: &mut Metadata, end: u64, at_ms: u64| {
        let (segment, value) = (last_segment(metadata, topic).id, value(metadata, topic, end));
        let seal = Command::SealAndOpen { topic, partition: 0, segment, value };
        apply(metadata, &Envelope { at_ms, ..envelope(u128::from(100 + end), seal) }).expect("open");
        metadata.topics[&topic].partitions[0].segments.last().expect("one").silent_below
    };
    for (node, minutes) in [(1, 1), (2, 1), (3, 61)] {
        renew_at(&mut metadata, node, minute(minutes));
    }
    assert_eq!(seal_at(&mut metadata, 10, minute(61)), Offset(0), "a clock that is ahead");
    assert_eq!(seal_at(&mut metadata, 20, 0), Offset(0), "one that is behind");
    for node in [1, 2] {
        renew_at(&mut metadata, node, minute(2));
    }
    assert_eq!(seal_at(&mut metadata, 30, minute(2)), Offset(0), "nor is what that one opened old");
    for node in [1, 2] {
        renew_at(&mut metadata, node, minute(17));
    }
    assert_eq!(seal_at(&mut metadata, 40, minute(17)), Offset(30), "by the clocks of a majority");
}
