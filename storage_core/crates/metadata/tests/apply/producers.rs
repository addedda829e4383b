//! The producers that a segment says are forgotten behind it.

use walrus_metadata::{Command, Envelope, LEVEL, Metadata, apply};
use walrus_model::{NodeId, TopicId};

use crate::cluster::{NOW_MS, cluster_of, create, envelope, last_segment, run, value};

/// Makes node `n` renew its lease at a time of its wall clock.
fn renew_at(metadata: &mut Metadata, n: u32, at_ms: u64) {
    let (node, process) = (NodeId(n), metadata.nodes[&NodeId(n)].process);
    let renew = Command::RenewLease { node, process, asked_boottime_ms: 0, disk_bytes: 0 };
    apply(metadata, &Envelope { at_ms, ..envelope(0, renew) }).expect("its own");
}

const HOUR: u64 = 60;

/// What the open segment of a partition says of its producers: where those begin who are silent, and those who are quiet.
fn told(metadata: &Metadata, topic: TopicId) -> (u64, u64) {
    let open = metadata.topics[&topic].partitions[0].segments.last().expect("one");
    (open.silent_below.0, open.quiet_below.0)
}

/// Seals the open segment at a time of all clocks.
fn seal_at(metadata: &mut Metadata, topic: TopicId, end: u64, minutes: u64) -> (u64, u64) {
    let (segment, value) = (last_segment(metadata, topic).id, value(metadata, topic, end));
    let at_ms = NOW_MS + minutes * 60_000;
    renew_at(metadata, 1, at_ms);
    let seal = Command::SealAndOpen { topic, partition: 0, segment, value };
    apply(metadata, &Envelope { at_ms, ..envelope(u128::from(100 + end), seal) }).expect("open");
    told(metadata, topic)
}

#[test]
fn a_segment_says_which_producers_had_been_silent_for_a_day_when_it_was_opened_and_which_for_a_quarter_of_an_hour()
 {
    let mut metadata = cluster_of(1);
    run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
    let topic = create(&mut metadata, "t", 1).expect("a topic");
    let mut seal_at = |end, minutes| seal_at(&mut metadata, topic, end, minutes);
    // Segments are opened with the bases 10, 20, 30, ..., and the one before is sealed then.
    assert_eq!(seal_at(10, 5), (0, 0));
    assert_eq!(seal_at(20, 16), (0, 0));
    assert_eq!(seal_at(30, 21), (0, 10), "segment 1 was opened 16 minutes before");
    assert_eq!(seal_at(40, 24 * HOUR), (0, 30));
    assert_eq!(seal_at(50, 24 * HOUR + 6), (10, 30), "segment 1 was opened a day and a minute before");
    assert_eq!(seal_at(60, 24 * HOUR + 22), (30, 50), "and now segment 3 as well");
    assert_eq!(seal_at(70, 1), (30, 50), "a clock that goes back takes nothing back");
}

/// Members of before level 4 know no quiet producers, and forget the silent ones after a quarter of an hour.
#[test]
fn before_all_members_know_that_it_takes_a_day_it_takes_a_quarter_of_an_hour() {
    for (level, told) in [(2, (0, 0)), (3, (10, 0))] {
        let mut metadata = cluster_of(1);
        run(&mut metadata, Command::RaiseLevel { level }).expect("all know it");
        let topic = create(&mut metadata, "t", 1).expect("a topic");
        seal_at(&mut metadata, topic, 10, 5);
        assert_eq!(seal_at(&mut metadata, topic, 20, 21), told, "at level {level}");
    }
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
        told(metadata, topic)
    };
    let day = 24 * HOUR;
    for (node, minutes) in [(1, 1), (2, 1), (3, 1 + 2 * day)] {
        renew_at(&mut metadata, node, minute(minutes));
    }
    assert_eq!(seal_at(&mut metadata, 10, minute(1 + 2 * day)), (0, 0), "a clock that is ahead");
    assert_eq!(seal_at(&mut metadata, 20, 0), (0, 0), "one that is behind");
    for node in [1, 2] {
        renew_at(&mut metadata, node, minute(2));
    }
    assert_eq!(seal_at(&mut metadata, 30, minute(2)), (0, 0), "nor is what that one opened old");
    for (minutes, expected, what) in [
        (17, (0, 30), "by the clocks of a majority a quarter of an hour has passed"),
        (2 + day, (30, 57), "and now a day; what the clock that was ahead opened is not old yet"),
    ] {
        for node in [1, 2] {
            renew_at(&mut metadata, node, minute(minutes));
        }
        assert_eq!(seal_at(&mut metadata, 40 + minutes, minute(minutes)), expected, "{what}");
    }
}
