//! Commits of groups that have no members, and what is read of them later.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kafka_protocol::messages::OffsetFetchRequest;
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use walrus_bench_sample::{Latencies, Sample, closed_loop};

use crate::Arguments;
use crate::connection::Connection;
use crate::coordinator::{begin, commit, find, group_id};
use crate::topic;

/// Connections that share the groups which are loaded.
const LOADERS: usize = 8;
/// What all groups that are loaded have committed.
const LOADED: i64 = 7;
/// For a broker that starts.
const PATIENCE: Duration = Duration::from_secs(120);
const TRY_AGAIN: Duration = Duration::from_millis(10);
const FETCH_VERSION: i16 = 5;

/// Each connection has a group of its own, and commits when its last commit is answered.
pub(crate) fn measure(arguments: &Arguments) -> Result<Sample> {
    topic::create(arguments, 1)?;
    let callers: Result<Vec<Latencies>> = thread::scope(|scope| {
        let callers: Vec<_> =
            (0..arguments.clients).map(|number| scope.spawn(move || caller(arguments, number))).collect();
        let ended = callers.into_iter().map(|caller| caller.join());
        ended.map(|ended| ended.map_err(|_| anyhow::anyhow!("a caller panicked"))?).collect()
    });
    topic::delete(arguments)?;
    let latencies = Latencies::of_all(callers?);
    Ok(Sample::new(latencies.per_second(), "commits/s")
        .with_latencies(&latencies)
        .with("groups", arguments.clients))
}

fn caller(arguments: &Arguments, number: usize) -> Result<Latencies> {
    let group = format!("{}-{number}", arguments.topic);
    let first = |connection: &mut Connection| commit(connection, &group, &arguments.topic, 1, 0);
    let (_, mut connection, ()) = begin(arguments, &group, first)?;
    let mut last = 0;
    let latencies = closed_loop(arguments.duration(), |offset| {
        last = i64::try_from(offset)?;
        commit(&mut connection, &group, &arguments.topic, 1, last)
    })?;
    let found = committed(&mut connection, &group, &arguments.topic)?;
    ensure!(found == last, "{found} is committed, and {last} was acknowledged");
    Ok(latencies)
}

/// The offset that a group has committed of partition 0.
fn committed(connection: &mut Connection, group: &str, name: &str) -> Result<i64> {
    let topic =
        OffsetFetchRequestTopic::default().with_name(topic::name(name)).with_partition_indexes(vec![0]);
    let request = OffsetFetchRequest::default().with_group_id(group_id(group)).with_topics(Some(vec![topic]));
    let answer = connection.ask(FETCH_VERSION, &request)?;
    topic::check(answer.error_code, "the offsets of a group could not be fetched")?;
    let topic = answer.topics.first().context("an answer without the topic")?;
    let partition = topic.partitions.first().context("an answer without the partition")?;
    topic::check(partition.error_code, "the offset of a partition could not be fetched")?;
    Ok(partition.committed_offset)
}

fn group_of(arguments: &Arguments, number: usize) -> String {
    format!("{}-{number}", arguments.topic)
}

/// Commits an offset of each partition for each of many groups.
pub(crate) fn load(arguments: &Arguments) -> Result<Sample> {
    topic::create(arguments, arguments.partitions)?;
    let began = Instant::now();
    for_each_group(arguments, |group| {
        let commit = |connection: &mut Connection| {
            commit(connection, group, &arguments.topic, arguments.partitions, LOADED)
        };
        begin(arguments, group, commit).map(|_| ())
    })?;
    let offsets = arguments.groups * arguments.partitions;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let rate = offsets as f64 / began.elapsed().as_secs_f64();
    Ok(Sample::new(rate, "offsets/s").with("offsets", offsets))
}

/// Waits until each of those groups tells what it has committed, from now on.
pub(crate) fn answers(arguments: &Arguments) -> Result<Sample> {
    let began = Instant::now();
    let first = group_of(arguments, 0);
    while find(arguments, &first).is_err() {
        ensure!(began.elapsed() < PATIENCE, "no coordinator was found within {} s", PATIENCE.as_secs());
        thread::sleep(TRY_AGAIN);
    }
    let found_s = began.elapsed().as_secs_f64();
    for_each_group(arguments, |group| {
        let (_, _, offset) =
            begin(arguments, group, |connection| committed(connection, group, &arguments.topic))?;
        ensure!(offset == LOADED, "{group} has committed {offset}, and not {LOADED}");
        Ok(())
    })?;
    Ok(Sample::new(began.elapsed().as_secs_f64(), "s")
        .with("coordinator_found_s", found_s)
        .with("groups", arguments.groups))
}

/// Does something for each group, a few of them at a time.
fn for_each_group(arguments: &Arguments, act: impl Fn(&str) -> Result<()> + Sync) -> Result<()> {
    let share = |first: usize| -> Result<()> {
        for number in (first..arguments.groups).step_by(LOADERS) {
            act(&group_of(arguments, number))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let share = &share;
        let loaders: Vec<_> = (0..LOADERS).map(|first| scope.spawn(move || share(first))).collect();
        loaders.into_iter().try_for_each(|loader| {
            loader.join().map_err(|_| anyhow::anyhow!("a connection's thread panicked"))?
        })
    })
}
