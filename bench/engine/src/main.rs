//! Measures a storage engine in this process: one case, one fresh directory, one sample as a JSON line.
//! What was written is read back through a reopened store and compared; a difference is a failure, not a sample.

mod cases;
mod systems;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Parser;

/// Measures one case on one system and prints it as one JSON line.
#[derive(Parser)]
struct Arguments {
    case: cases::Case,
    #[arg(long, default_value = "walrus")]
    system: systems::Name,
    /// The system's backend; what its backends are called is the system's own matter.
    #[arg(long, default_value = "auto")]
    backend: String,
    /// A directory that is missing or empty.
    #[arg(long)]
    dir: PathBuf,
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// How much is written, by the cases that say so.
    #[arg(long, default_value_t = 1_000_000_000)]
    bytes: u64,
    #[arg(long, default_value_t = 1024)]
    record_bytes: usize,
    /// How many logs are written, by the case that says so.
    #[arg(long, default_value_t = 1)]
    logs: usize,
    /// Sets up a hundredth; the figure is worth nothing.
    #[arg(long)]
    quick: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(
        arguments.seconds > 0.0 && arguments.seconds.is_finite(),
        "--seconds must be positive, got {}",
        arguments.seconds
    );
    if let Some(sample) = arguments.case.measure(&arguments)? {
        sample.print();
    }
    Ok(())
}
