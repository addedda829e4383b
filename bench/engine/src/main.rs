//! Measures a storage engine in this process: one case, one fresh directory, one sample as a JSON line.
//! What was written is read back through a reopened store and compared; a difference is a failure, not a sample.

mod cases;
mod systems;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};

/// Measures one case on one system and prints it as one JSON line.
#[derive(Parser)]
struct Arguments {
    case: Case,
    #[arg(long, default_value = "walrus")]
    system: systems::Name,
    /// Of the system; what its backends are called is its own matter.
    #[arg(long, default_value = "auto")]
    backend: String,
    /// A directory that is missing or empty.
    #[arg(long)]
    dir: PathBuf,
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    #[arg(long, default_value_t = 1024)]
    record_bytes: usize,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Case {
    /// One caller that waits until each record is durable: records/s.
    #[value(name = "durable_1_caller")]
    Durable1Caller,
    /// One caller, nothing is synced, a burst of seconds x 350,000 records: ns/record.
    #[value(name = "nosync_1_caller")]
    NoSync1Caller,
    /// One caller that waits until each batch of 2,000 records is durable: MB/s.
    #[value(name = "durable_batch_2000")]
    DurableBatch2000,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(
        arguments.seconds > 0.0 && arguments.seconds.is_finite(),
        "--seconds must be positive, got {}",
        arguments.seconds
    );
    let sample = match arguments.case {
        Case::Durable1Caller => cases::durable_1_caller(&arguments)?,
        Case::NoSync1Caller => cases::nosync_1_caller(&arguments)?,
        Case::DurableBatch2000 => cases::durable_batch_2000(&arguments)?,
    };
    sample.print();
    Ok(())
}
