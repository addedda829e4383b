//! A coordinator is killed, and another broker takes its groups over.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use walrus_bench_sample::Sample;

use crate::Arguments;
use crate::connection::Connection;
use crate::coordinator::{begin, commit, find};
use crate::topic;

/// For the next commit.
const PATIENCE: Duration = Duration::from_secs(60);
const TRY_AGAIN: Duration = Duration::from_millis(5);

/// From the kill until a commit is acknowledged that was sent after it.
pub(crate) fn measure(arguments: &Arguments) -> Result<Sample> {
    topic::create(arguments, 1)?;
    let group = arguments.topic.clone();
    let first = |connection: &mut Connection| commit(connection, &group, &arguments.topic, 1, 0);
    let (node, mut connection, ()) = begin(arguments, &group, first)?;
    let began = Instant::now();
    let mut offset = 0;
    while began.elapsed() < arguments.duration() {
        offset += 1;
        commit(&mut connection, &group, &arguments.topic, 1, offset)?;
    }
    let (_, pid) = arguments.pids.iter().find(|(id, _)| *id == node).context("the coordinator's process")?;
    let killed = Instant::now();
    let status = Command::new("kill").arg("-KILL").arg(pid.to_string()).status()?;
    ensure!(status.success(), "the coordinator could not be killed");
    loop {
        let again = find(arguments, &group).and_then(|(node, mut connection)| {
            commit(&mut connection, &group, &arguments.topic, 1, offset + 1)?;
            Ok(node)
        });
        match again {
            Ok(next) => {
                let seconds = killed.elapsed().as_secs_f64();
                return Ok(Sample::new(seconds, "s")
                    .with("killed", node)
                    .with("next", next)
                    .with("commits_before", offset));
            }
            Err(error) => ensure!(killed.elapsed() < PATIENCE, "no commit after the kill: {error:#}"),
        }
        std::thread::sleep(TRY_AGAIN);
    }
}
