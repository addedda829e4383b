//! What a node's store counts, for Prometheus.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Unit;
use walrus_log::Store;

/// Counters of a store, read when somebody asks for them: the record path counts nothing twice.
pub(super) struct StoreCounters(pub(super) Store);

impl fmt::Debug for StoreCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoreCounters").finish_non_exhaustive()
    }
}

impl Collector for StoreCounters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let stats = self.0.stats();
        let syncs = stats.data_syncs + stats.journal_syncs;
        for (name, help, unit, count) in [
            ("walrus_store_commits", "Group commits that had something to write", None, stats.commits),
            ("walrus_store_syncs", "Syncs of the disk, of data and of the journal", None, syncs),
            ("walrus_store_written", "Written by group commits", Some(&Unit::Bytes), stats.bytes_written),
        ] {
            let counter = ConstCounter::new(count);
            counter.encode(encoder.encode_descriptor(name, help, unit, counter.metric_type())?)?;
        }
        Ok(())
    }
}
