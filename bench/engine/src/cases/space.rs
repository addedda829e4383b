//! What records take on the disk.

use anyhow::{Result, ensure};
use walrus_bench_sample::{Durability, Payload, Sample, Writer};
use walrus_log::{Offset, inspect};

use super::refuse_peers;
use crate::Arguments;
use crate::systems::walrus::WalrusLog;

const RECORD_BYTES: usize = 100;
const BATCH_RECORDS: usize = 100;

/// All bytes of the blocks that the log has left behind: batches, headers, footers and what was left over between them.
pub(super) fn bytes_per_record(arguments: &Arguments) -> Result<Sample> {
    refuse_peers(arguments)?;
    let mut payload = Payload::with_pool(RECORD_BYTES, BATCH_RECORDS);
    let walrus = WalrusLog::open(&arguments.dir, &arguments.backend, Durability::Never, 1)?;
    let mut writer = walrus.writer(0)?;
    for batch in 0..arguments.bytes.div_ceil((BATCH_RECORDS * RECORD_BYTES) as u64) {
        writer.append_batch(&payload.batch(batch * BATCH_RECORDS as u64))?;
    }
    walrus.store().close()?;
    drop((writer, walrus));

    let inspection = inspect(&arguments.dir)?;
    let Some(log) = inspection.logs.first() else { anyhow::bail!("the log is gone after closing") };
    let Some((open, left_behind)) = log.blocks.split_last() else { anyhow::bail!("the log has no blocks") };
    let bytes: u64 = left_behind.iter().map(|block| block.bytes).sum();
    let records = open.base_offset.0;
    ensure!(records > 0 && open.base_offset > Offset(0), "--bytes are too few: they all lie in one block");
    #[expect(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^52")]
    let each = bytes as f64 / records as f64;
    Ok(Sample::new(each, "B/record").with("records", records).with("blocks", left_behind.len()))
}
