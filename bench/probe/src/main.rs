//! The limit probe: what this machine can do at best, measured with the least code that does it.
//! Every figure of Walrus is quoted as a ratio to one of these, taken in the same run.

mod disk;
mod group_commit;
mod loopback;
mod memory;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};

/// Measures one limit of the machine and prints it as one JSON line.
#[derive(Parser)]
struct Arguments {
    limit: Limit,
    /// The file written to; made and filled with zeros when it is missing or shorter.
    #[arg(long)]
    file: Option<PathBuf>,
    /// Its size. Everything written goes round in it.
    #[arg(long, default_value_t = 256)]
    file_mib: u64,
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Limit {
    /// Fills the file, measures nothing.
    Prepare,
    /// Durable writes of 4 KiB by one caller: writes/s.
    #[value(name = "durable_4k")]
    Durable4k,
    /// Durable writes of 1 MiB, two in flight: MB/s.
    DurableBandwidth,
    /// The same in a new file twice as large, into space that was set aside and never written, once: MB/s.
    DurableBandwidthFresh,
    /// Eight threads that each wait for their 1 KiB to be durable, sharing writes: records/s.
    #[value(name = "group_commit_8")]
    GroupCommit8,
    /// A 1 KiB record copied to memory and checksummed: ns/record.
    RecordCopy,
    /// A 64-byte message over TCP to another thread and back: us.
    LoopbackRoundTrip,
    /// One TCP stream to another thread: MB/s.
    LoopbackStream,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(
        arguments.seconds > 0.0 && arguments.seconds.is_finite(),
        "--seconds must be positive, got {}",
        arguments.seconds
    );
    let duration = Duration::from_secs_f64(arguments.seconds);
    let bytes = arguments.file_mib << 20;
    let path = || arguments.file.as_deref().context("this limit needs --file");
    let file = || disk::DirectFile::recycled(path()?, bytes);
    let sample = match arguments.limit {
        Limit::Prepare => {
            file()?;
            return Ok(());
        }
        Limit::Durable4k => disk::durable_4k(&file()?, duration)?,
        Limit::DurableBandwidth => disk::durable_bandwidth(&file()?, duration)?,
        Limit::DurableBandwidthFresh => disk::durable_bandwidth_fresh(path()?, bytes)?,
        Limit::GroupCommit8 => group_commit::records_of_8_threads(&file()?, duration)?,
        Limit::RecordCopy => memory::record_copy(duration)?,
        Limit::LoopbackRoundTrip => loopback::round_trip(duration)?,
        Limit::LoopbackStream => loopback::stream(duration)?,
    };
    sample.print();
    Ok(())
}
