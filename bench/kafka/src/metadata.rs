//! The metadata of all topics of a cluster, asked for one time after the other.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kafka_protocol::messages::MetadataRequest;
use walrus_bench_sample::{Latencies, Sample, closed_loop};

use crate::Arguments;
use crate::topic;

/// Version that librdkafka and sarama use.
const VERSION: i16 = 9;

pub(crate) fn measure(arguments: &Arguments) -> Result<Sample> {
    let mut connection = topic::any(arguments)?;
    let request = MetadataRequest::default().with_topics(None);
    let every = Duration::from_millis(arguments.every_ms);
    let (mut topics, mut nanos) = (0, Vec::new());
    closed_loop(arguments.duration(), |_| {
        let began = Instant::now();
        let answer = connection.ask(VERSION, &request)?;
        topics = answer.topics.len();
        ensure!(topics > 0, "there are no topics");
        nanos.push(u64::try_from(began.elapsed().as_nanos())?);
        thread::sleep(every.saturating_sub(began.elapsed()));
        Ok(())
    })?;
    let latencies = Latencies::new(nanos, arguments.duration());
    Ok(Sample::new(latencies.quantile_us(500) / 1e3, "ms").with_latencies(&latencies).with("topics", topics))
}
