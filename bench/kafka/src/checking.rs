//! What was acknowledged is read back and compared.

use std::collections::HashMap;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use walrus_log::batch::Batch;

use crate::Arguments;
use crate::producer::Run;
use crate::reader::Reader;

/// Bytes of a fetch, to be short of requests.
const FETCH_BYTES: i32 = 8 << 20;

/// Reads everything that was sent and compares it, byte for byte: each producer's batches once and in their order.
pub(crate) fn check(arguments: &Arguments, leader: SocketAddr, run: &Run) -> Result<()> {
    let mut reader = Reader::connect(&arguments.topic, leader, FETCH_BYTES)?;
    let mut found: HashMap<i64, u64> = run.sent.iter().map(|(id, _)| (*id, 0)).collect();
    let sent: HashMap<i64, u64> = run.sent.iter().copied().collect();
    let mut next = 0;
    while found != sent {
        reader.next = next;
        let mut records = reader.fetch()?;
        ensure!(!records.is_empty(), "the log ends at {next}: {found:?} of {sent:?} are there");
        while let Ok((batch, rest)) = Batch::parse(records) {
            let id = batch.producer().map(|producer| producer.id).context("a batch of nobody")?;
            let Some(number) = found.get_mut(&id) else { bail!("a batch of producer {id}, who sent none") };
            ensure!(
                batch.base_offset() == u64::try_from(next)?,
                "offset {} behind {next}",
                batch.base_offset()
            );
            run.ready.check(&batch, *number)?;
            *number += 1;
            next = batch.end_offset().try_into()?;
            records = rest;
        }
    }
    Ok(())
}
