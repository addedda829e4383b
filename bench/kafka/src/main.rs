//! Load by Kafka's protocol, on Walrus and on Apache Kafka alike: one case, one fresh topic, one sample as a JSON line.
//! What was acknowledged is read back and compared; a difference is a failure, not a sample.

mod checking;
mod commits;
mod connection;
mod coordinator;
mod end_to_end;
mod failover;
mod fetch;
mod idle;
mod members;
mod metadata;

mod produce;
mod producer;
mod reader;
mod ready;
mod topic;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};

use crate::ready::Codec;

/// Measures one case on a running cluster and prints it as one JSON line.
#[derive(Parser)]
struct Arguments {
    case: Case,
    /// Brokers, with commas between them; any of them knows the others.
    #[arg(long, value_delimiter = ',', required = true)]
    bootstrap: Vec<SocketAddr>,
    /// A topic that is not there yet; `load_groups` and `groups_answer` share one.
    #[arg(long)]
    topic: String,
    /// Settings of the topic that is made, as NAME=VALUE.
    #[arg(long, value_parser = setting)]
    config: Vec<(String, String)>,
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    #[arg(long, default_value_t = 1024)]
    record_bytes: usize,
    /// Producers, each with a connection of its own.
    #[arg(long, default_value_t = 4)]
    producers: usize,
    /// Requests of each producer that are sent and not answered yet.
    #[arg(long, default_value_t = 5)]
    in_flight: usize,
    /// Records of a batch; a request has one batch.
    #[arg(long, default_value_t = 100)]
    batch_records: usize,
    #[arg(long, value_enum, default_value_t = Codec::None)]
    codec: Codec,
    /// Bytes that `fetch` reads over and over.
    #[arg(long, default_value_t = 512 << 20)]
    bytes: usize,
    /// Bytes of a partition that a fetch asks for at most.
    #[arg(long, default_value_t = 1 << 20)]
    fetch_bytes: i32,
    /// Records a second of `end_to_end`.
    #[arg(long, default_value_t = 10_000)]
    rate: u32,
    /// Time from one request of `metadata` to the next; 0: the next one follows the answer.
    #[arg(long, default_value_t = 0)]
    every_ms: u64,
    /// Members of `rebalance`, connections of `commits` and `idle`.
    #[arg(long, default_value_t = 50)]
    clients: usize,
    /// Groups of `load_groups` and `groups_answer`, and of how many partitions each has an offset.
    #[arg(long, default_value_t = 1_000)]
    groups: usize,
    #[arg(long, default_value_t = 1_000)]
    partitions: usize,
    /// The process of each broker, as NODE:PID: what `failover` kills, and whose memory `idle` looks at.
    #[arg(long, value_delimiter = ',', value_parser = process)]
    pids: Vec<(i32, u32)>,
}

impl Arguments {
    fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Case {
    /// Idempotent producers send ready batches: acknowledged records/s.
    Produce,
    /// The same beside a reader that is at the end of the log.
    ProduceTailed,
    /// A reader reads the same bytes over and over: MB/s.
    Fetch,
    /// Records, as many each second, from when each was due until a reader has it: us (p50).
    EndToEnd,
    /// Connections that ask for nothing: KiB of the broker's memory each.
    Idle,
    /// Members of a group, one joins, one leaves, until all have their part: s.
    Rebalance,
    /// Groups commit an offset each, over and over: commits/s.
    Commits,
    /// From the kill of a coordinator to the next commit: s.
    Failover,
    /// Groups commit an offset of each partition, once: offsets/s.
    LoadGroups,
    /// Until each of these groups tells what it has committed: s.
    GroupsAnswer,
    /// The metadata of all topics: ms (p50).
    Metadata,
}

fn setting(text: &str) -> Result<(String, String)> {
    let (name, value) = text.split_once('=').context("a setting is NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn process(text: &str) -> Result<(i32, u32)> {
    let (node, pid) = text.split_once(':').context("a process is NODE:PID")?;
    Ok((node.parse()?, pid.parse()?))
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(
        arguments.seconds > 0.0 && arguments.seconds.is_finite(),
        "--seconds must be positive, got {}",
        arguments.seconds
    );
    ensure!(
        arguments.batch_records > 0 && arguments.in_flight > 0 && arguments.producers > 0,
        "nothing to send"
    );
    let sample = match arguments.case {
        Case::Produce => produce::measure(&arguments)?,
        Case::ProduceTailed => produce::measure_tailed(&arguments)?,
        Case::Fetch => fetch::measure(&arguments)?,
        Case::EndToEnd => end_to_end::measure(&arguments)?,
        Case::Idle => idle::measure(&arguments)?,
        Case::Rebalance => members::measure(&arguments)?,
        Case::Commits => commits::measure(&arguments)?,
        Case::Failover => failover::measure(&arguments)?,
        Case::LoadGroups => commits::load(&arguments)?,
        Case::GroupsAnswer => commits::answers(&arguments)?,
        Case::Metadata => metadata::measure(&arguments)?,
    };
    sample.print();
    Ok(())
}
