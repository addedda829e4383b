//! Load on a running cluster through its public listeners: one case, one fresh topic, one sample as a JSON line.
//! What was acknowledged is read back and compared; a difference is a failure, not a sample.

mod append_stream;
mod log_service;
mod text_put;
mod topics;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};

/// Measures one case on a running cluster and prints it as one JSON line.
#[derive(Parser)]
struct Arguments {
    case: Case,
    /// The gRPC listener of a broker.
    #[arg(long)]
    grpc: SocketAddr,
    /// The text listener of a broker; needed by `text_put`.
    #[arg(long)]
    text: Option<SocketAddr>,
    /// A topic that is not there yet; the first part of the names of many.
    #[arg(long)]
    topic: String,
    /// How many topics `create_topics` makes, and `topics_answer` finds.
    #[arg(long)]
    topics: Option<u64>,
    /// Number of the first topic that `create_topics` makes.
    #[arg(long, default_value_t = 0)]
    first: u64,
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    #[arg(long, default_value_t = 1024)]
    record_bytes: usize,
    /// The topic is there already, and empty; else it is made.
    #[arg(long)]
    topic_exists: bool,
    /// How many keys the records have, in turn; without it they have none.
    #[arg(long)]
    keys: Option<u64>,
    /// How many producers take turns, a batch each.
    #[arg(long, default_value_t = 1)]
    producers: u64,
    /// How many records `fill` appends.
    #[arg(long)]
    records: Option<u64>,
    /// Records in a batch of `append_stream` and `fill`.
    #[arg(long, default_value_t = 100)]
    batch_records: usize,
    /// Batches of `append_stream` and `fill`, and requests of `create_topics`, that are sent and not answered yet.
    #[arg(long, default_value_t = 32)]
    in_flight: usize,
}

impl Arguments {
    fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Case {
    /// One producer streams ready batches over gRPC: acknowledged records/s.
    AppendStream,
    /// The same until `--records` are acknowledged, to have something to read; nothing is read back.
    Fill,
    /// One record at a time through segments that end: for how long nothing was acknowledged at each end, ms (p99).
    RollPauses,
    /// One caller puts one record at a time over the text protocol: us (p50).
    TextPut,
    /// Many topics are made, until 200 of them answer an append and a read: s.
    CreateTopics,
    /// The same of topics that are there, at a broker that starts: s.
    TopicsAnswer,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
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
        Case::AppendStream => append_stream::measure(&arguments).await?,
        Case::Fill => append_stream::fill(&arguments).await?,
        Case::RollPauses => append_stream::roll_pauses(&arguments).await?,
        Case::TextPut => text_put::measure(&arguments).await?,
        Case::CreateTopics => topics::create(&arguments).await?,
        Case::TopicsAnswer => topics::answers(&arguments).await?,
    };
    sample.print();
    Ok(())
}
