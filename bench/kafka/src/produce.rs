//! Producers at work, alone or beside a reader at the end of the log.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Result, anyhow};
use walrus_bench_sample::Sample;

use crate::Arguments;
use crate::producer::produce;
use crate::{checking, reader, topic};

/// Produces for the duration of the sample, then reads everything back and compares it.
pub(crate) fn measure(arguments: &Arguments) -> Result<Sample> {
    let leader = topic::create(arguments, 1)?;
    let run = produce(arguments, leader)?;
    checking::check(arguments, leader, &run)?;
    topic::delete(arguments)?;
    Ok(run.sample(arguments))
}

/// The same beside a reader that waits at the end of the log.
pub(crate) fn measure_tailed(arguments: &Arguments) -> Result<Sample> {
    let leader = topic::create(arguments, 1)?;
    let is_over = AtomicBool::new(false);
    let (run, tailed) = thread::scope(|scope| {
        let reader = scope.spawn(|| reader::tail(arguments, leader, &is_over));
        let run = produce(arguments, leader);
        is_over.store(true, Ordering::Relaxed);
        (run, reader.join())
    });
    let run = run?;
    let tailed = tailed.map_err(|_| anyhow!("the reader panicked"))??;
    checking::check(arguments, leader, &run)?;
    topic::delete(arguments)?;
    Ok(run.sample(arguments).with("tailed_records", tailed))
}
