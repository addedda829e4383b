//! Counters of the data plane, in Prometheus's text format. Names are `walrus_*`, units last.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use walrus_log::{BackendInUse, OpenReport, Store};

use crate::node::budget::{Budget, Purpose};
use crate::node::locks::Lock;
use crate::node::store_counters::StoreCounters;

/// Label of counters that are split by a stable name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ReasonLabel {
    reason: String,
}

/// Label of what is counted by partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PartitionLabel {
    topic: String,
    partition: u32,
}

/// Label of what is counted by share of the budget.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShareLabel {
    share: &'static str,
}

/// Label of what is counted for each of a segment's replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReplicaLabel {
    topic: String,
    partition: u32,
    replica: u32,
}

/// Label of what is counted for each partition in which a group has committed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GroupLabel {
    org: String,
    group: String,
    topic: String,
    partition: u32,
}

/// How far a group is behind in a partition.
pub(crate) struct GroupLag {
    pub(crate) org: String,
    pub(crate) group: String,
    pub(crate) topic: String,
    pub(crate) partition: u32,
    /// Records from the group's committed offset to the high watermark.
    pub(crate) lag: u64,
}

/// What the leader of a partition's open segment knows of it.
pub(crate) struct LedPartition {
    pub(crate) topic: String,
    pub(crate) partition: u32,
    pub(crate) epoch: u32,
    pub(crate) high_watermark: u64,
    /// Records that each replica has not acknowledged, by node.
    pub(crate) lags: Vec<(u32, u64)>,
    /// Replicas whose nodes do not answer.
    pub(crate) silent_replicas: usize,
}

/// All counters, and the registry that writes them. Others add theirs through [`Metrics::register`].
pub struct Metrics {
    registry: Lock<Registry>,
    /// Batches acknowledged by leaders on this node.
    pub(crate) appends: Counter,
    /// Bytes of batches given to the engine on this node.
    pub(crate) append_bytes: Counter,
    /// Time from the arrival of a batch to its acknowledgement, forwarded ones included.
    pub(crate) append_seconds: Histogram,
    /// Batches sent to another node.
    pub(crate) forwards: Counter,
    /// Batches answered from the producer table.
    pub(crate) duplicates: Counter,
    /// Bytes of batches that wait for a leader.
    pub(crate) waiting_bytes: Gauge,
    /// Bytes answered to readers by this node's engine.
    pub(crate) read_bytes: Counter,
    /// Leases held by this process.
    pub(crate) bucket_leases: Gauge,
    /// Time that updates of the leases took.
    pub(crate) bucket_lease_update_seconds: Histogram,
    /// Updates that found nothing changed.
    pub(crate) bucket_lease_updates_unchanged: Counter,
    /// Time in `append_by_key`, lease check included, the wait for the disk not.
    pub(crate) bucket_append_seconds: Histogram,
    /// Writes refused for want of a lease.
    pub(crate) bucket_rejects: Counter,
    /// Time from the beginning of a roll to its successor's opening.
    pub(crate) roll_seconds: Histogram,
    /// What the open of the store had to repair, by kind.
    recovered: Family<ReasonLabel, Gauge>,
    rolls: Family<ReasonLabel, Counter>,
    errors: Family<ReasonLabel, Counter>,
    /// Time from the beginning of a segment's recovery to its end in the metadata.
    pub(crate) failover_seconds: Histogram,
    /// Segments whose end this node decided in a recovery, by cause.
    failovers: Family<ReasonLabel, Counter>,
    epochs: Family<PartitionLabel, Gauge>,
    high_watermarks: Family<PartitionLabel, Gauge>,
    silent_replicas: Family<PartitionLabel, Gauge>,
    held_bytes: Family<ShareLabel, Gauge>,
    replica_lags: Family<ReplicaLabel, Gauge>,
    group_lags: Family<GroupLabel, Gauge>,
    under_replicated: Gauge,
    /// Leaders that too many replicas refused.
    pub(crate) deposed: Counter,
    /// Contradictions between copies; each is a mistake of Walrus or of a disk.
    pub(crate) alarms: Counter,
    /// Recoveries that had to count a suspect or a lost disk.
    pub(crate) possible_losses: Counter,
    /// Bytes of copies made on this node for want of others.
    pub(crate) copied_bytes: Counter,
    /// Copies of sealed segments listed on this node that are to be made, or were not compared yet.
    pub(crate) copies_filling: Gauge,
    /// Copies listed on this node that have damage beyond mending.
    pub(crate) copies_damaged: Gauge,
    /// Copies on this node, of open segments too, that have lacked something, and got no further, for longer than
    /// `lacking_ms_max`.
    pub(crate) copies_not_whole: Gauge,
    /// Logs that former disks left on this node.
    pub(crate) left_logs: Gauge,
    /// Ranges of offsets that recoveries of this node found on no copy, and left out, and segments that it found to be lost.
    pub(crate) lost_ranges: Counter,
    /// Bytes of sealed copies that the scrub has read.
    pub(crate) scrubbed_bytes: Counter,
    /// Damaged ranges found in sealed copies on this node.
    pub(crate) damaged_ranges: Counter,
    /// Damaged ranges that were mended from other copies.
    pub(crate) mended_ranges: Counter,
    pub(crate) compactions: Counter,
    pub(crate) compaction_seconds: Histogram,
    pub(crate) compacted_bytes: Counter,
    pub(crate) compacted_records_gone: Counter,
    /// Logs that metadata does not list, kept.
    pub(crate) unlisted_logs: Gauge,
    /// Tasks that panicked; each is a mistake of Walrus.
    pub(crate) panics: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let seconds = || Histogram::new(exponential_buckets(0.000_01, 2.0, 22)); // 10 us .. 20 s
        let metrics = Self {
            registry: Lock::default(),
            appends: Counter::default(),
            append_bytes: Counter::default(),
            append_seconds: seconds(),
            forwards: Counter::default(),
            duplicates: Counter::default(),
            waiting_bytes: Gauge::default(),
            read_bytes: Counter::default(),
            bucket_leases: Gauge::default(),
            bucket_lease_update_seconds: seconds(),
            bucket_lease_updates_unchanged: Counter::default(),
            bucket_append_seconds: seconds(),
            bucket_rejects: Counter::default(),
            roll_seconds: seconds(),
            rolls: Family::default(),
            errors: Family::default(),
            failover_seconds: seconds(),
            failovers: Family::default(),
            epochs: Family::default(),
            high_watermarks: Family::default(),
            silent_replicas: Family::default(),
            held_bytes: Family::default(),
            replica_lags: Family::default(),
            group_lags: Family::default(),
            under_replicated: Gauge::default(),
            deposed: Counter::default(),
            recovered: Family::default(),
            alarms: Counter::default(),
            possible_losses: Counter::default(),
            copies_not_whole: Gauge::default(),
            left_logs: Gauge::default(),
            lost_ranges: Counter::default(),
            copied_bytes: Counter::default(),
            copies_filling: Gauge::default(),
            copies_damaged: Gauge::default(),
            scrubbed_bytes: Counter::default(),
            damaged_ranges: Counter::default(),
            mended_ranges: Counter::default(),
            compactions: Counter::default(),
            compaction_seconds: Histogram::new(exponential_buckets(0.01, 4.0, 10)),
            compacted_bytes: Counter::default(),
            compacted_records_gone: Counter::default(),
            unlisted_logs: Gauge::default(),
            panics: Counter::default(),
        };
        metrics.register(|registry| metrics.describe(registry));
        metrics
    }

    fn describe(&self, registry: &mut Registry) {
        let m = self;
        registry.register(
            "walrus_appends",
            "Batches acknowledged by leaders on this node",
            m.appends.clone(),
        );
        let help = "Bytes of batches stored by leaders on this node";
        registry.register_with_unit("walrus_append", help, Unit::Bytes, m.append_bytes.clone());
        let help = "From the arrival of a batch to its acknowledgement";
        registry.register_with_unit("walrus_append_latency", help, Unit::Seconds, m.append_seconds.clone());
        registry.register(
            "walrus_forwards",
            "Batches sent to the leader on another node",
            m.forwards.clone(),
        );
        registry.register("walrus_duplicates", "Batches that were stored before", m.duplicates.clone());
        let help = "Bytes of batches that wait for a leader";
        registry.register_with_unit("walrus_append_waiting", help, Unit::Bytes, m.waiting_bytes.clone());
        let help = "Bytes of batches read from this node's disk";
        registry.register_with_unit("walrus_read", help, Unit::Bytes, m.read_bytes.clone());
        registry.register("walrus_bucket_leases", "Leases held by this process", m.bucket_leases.clone());
        let (help, update) = ("Time to update the leases", m.bucket_lease_update_seconds.clone());
        registry.register_with_unit("walrus_bucket_lease_update", help, Unit::Seconds, update);
        let help = "Updates of the leases that found nothing changed";
        let unchanged = m.bucket_lease_updates_unchanged.clone();
        registry.register("walrus_bucket_lease_updates_unchanged", help, unchanged);
        let help = "Time of an append with its lease check, without the wait for the disk";
        registry.register_with_unit(
            "walrus_bucket_append",
            help,
            Unit::Seconds,
            m.bucket_append_seconds.clone(),
        );
        registry.register(
            "walrus_bucket_rejects",
            "Writes refused without a lease",
            m.bucket_rejects.clone(),
        );
        let help = "From the beginning of a roll of a segment to the opening of its successor";
        registry.register_with_unit("walrus_roll_pause", help, Unit::Seconds, m.roll_seconds.clone());
        registry.register("walrus_rolls", "Segments sealed by this node, by reason", m.rolls.clone());
        registry.register("walrus_errors", "Requests that failed, by reason", m.errors.clone());
        let help = "From the beginning of a segment's recovery to its end in the metadata";
        registry.register_with_unit("walrus_failover", help, Unit::Seconds, m.failover_seconds.clone());
        let help = "Segments whose end this node decided in a recovery, by cause";
        registry.register("walrus_failovers", help, m.failovers.clone());
        let help = "Epoch of the open segment that this node leads";
        registry.register("walrus_partition_epoch", help, m.epochs.clone());
        let help = "First offset not yet on enough disks, of partitions that this node leads";
        registry.register("walrus_partition_high_watermark", help, m.high_watermarks.clone());
        let help = "Replicas of the open segment whose nodes do not answer";
        registry.register("walrus_partition_silent_replicas", help, m.silent_replicas.clone());
        let help = "Bytes of requests that are not answered, and of answers that are not written";
        registry.register("walrus_held_bytes", help, m.held_bytes.clone());
        let help = "Records of the open segment that a replica has not acknowledged";
        registry.register("walrus_replica_lag", help, m.replica_lags.clone());
        let help =
            "Records from the committed offset of a group that this node coordinates to the high watermark";
        registry.register("walrus_group_lag", help, m.group_lags.clone());
        let help = "Partitions led by this node whose open segment lacks a replica";
        registry.register("walrus_under_replicated", help, m.under_replicated.clone());
        registry.register("walrus_deposed", "Leaders that too many replicas refused", m.deposed.clone());
        registry.register("walrus_alarms", "Contradictions between copies of a segment", m.alarms.clone());
        let help = "What the open of this node's store cut, fenced, moved aside, moved back or made again";
        registry.register("walrus_store_recovered", help, m.recovered.clone());
        let help = "Recoveries that had to count a suspect or a lost disk";
        registry.register("walrus_possible_losses", help, m.possible_losses.clone());
        let help = "Bytes of copies that this node made for want of others";
        registry.register_with_unit("walrus_copied", help, Unit::Bytes, m.copied_bytes.clone());
        let help = "Copies of sealed segments on this node that are to be made, or were not compared yet";
        registry.register("walrus_copies_filling", help, m.copies_filling.clone());
        let help = "Copies on this node with damage that it cannot mend";
        registry.register("walrus_copies_damaged", help, m.copies_damaged.clone());
        let help = "Copies on this node, of open segments too, that have lacked something, and got no further, for longer than lacking_ms_max";
        registry.register("walrus_copies_not_whole", help, m.copies_not_whole.clone());
        let help = "Logs left of disks that lost their votes, kept to fetch from until all has enough copies";
        registry.register("walrus_left_logs", help, m.left_logs.clone());
        let help = "Ranges of offsets that no copy had any more when their end was decided, or once all disks with copies were gone";
        registry.register("walrus_lost_ranges", help, m.lost_ranges.clone());
        let help = "Bytes of sealed copies that were read to see whether they are still whole";
        registry.register_with_unit("walrus_scrubbed", help, Unit::Bytes, m.scrubbed_bytes.clone());
        let help = "Damaged ranges found in sealed copies on this node";
        registry.register("walrus_damaged_ranges", help, m.damaged_ranges.clone());
        let help = "Damaged ranges mended from other copies";
        registry.register("walrus_mended_ranges", help, m.mended_ranges.clone());
        let help = "Passes of compaction over partitions that this node made";
        registry.register("walrus_compactions", help, m.compactions.clone());
        let help = "Time of a pass of compaction, until all that it wrote has its place";
        registry.register_with_unit("walrus_compaction", help, Unit::Seconds, m.compaction_seconds.clone());
        let help = "Bytes that passes of compaction read here to write them again";
        registry.register_with_unit("walrus_compacted", help, Unit::Bytes, m.compacted_bytes.clone());
        let help =
            "Records that passes of compaction here have left out, for a later one of their key is there";
        registry.register("walrus_compacted_records_gone", help, m.compacted_records_gone.clone());
        let help = "Logs on this disk that the metadata neither lists nor calls trimmed";
        registry.register("walrus_unlisted_logs", help, m.unlisted_logs.clone());
        registry.register("walrus_panics", "Tasks that panicked", m.panics.clone());
    }

    /// Counts a roll.
    pub(crate) fn count_roll(&self, reason: walrus_metadata::rolling::Reason) {
        self.rolls.get_or_create(&ReasonLabel { reason: reason.name().to_owned() }).inc();
    }

    /// Shows how many bytes of the budget are held now.
    pub(crate) fn show_budget(&self, budget: &Budget) {
        for purpose in Purpose::ALL {
            let held = i64::try_from(budget.share(purpose).held()).unwrap_or(i64::MAX);
            self.held_bytes.get_or_create(&ShareLabel { share: purpose.name() }).set(held);
        }
    }

    /// Shows the partitions that this node leads; those that it led before are not shown any more.
    pub(crate) fn show_partitions(&self, led: Vec<LedPartition>) {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let _nobody_looks_meanwhile = self.registry.lock();
        self.epochs.clear();
        self.high_watermarks.clear();
        self.silent_replicas.clear();
        self.replica_lags.clear();
        let lacking = led.iter().filter(|led| led.silent_replicas > 0).count();
        self.under_replicated.set(number(lacking as u64));
        for LedPartition { topic, partition, epoch, high_watermark, lags, silent_replicas } in led {
            for (replica, lag) in lags {
                let label = ReplicaLabel { topic: topic.clone(), partition, replica };
                self.replica_lags.get_or_create(&label).set(number(lag));
            }
            let label = PartitionLabel { topic, partition };
            self.epochs.get_or_create(&label).set(epoch.into());
            self.high_watermarks.get_or_create(&label).set(number(high_watermark));
            self.silent_replicas.get_or_create(&label).set(number(silent_replicas as u64));
        }
    }

    /// Shows how far the groups that this node coordinates are behind; those that it coordinated before are not shown any more.
    pub(crate) fn show_group_lags(&self, lags: Vec<GroupLag>) {
        let _nobody_looks_meanwhile = self.registry.lock();
        self.group_lags.clear();
        for GroupLag { org, group, topic, partition, lag } in lags {
            let label = GroupLabel { org, group, topic, partition };
            self.group_lags.get_or_create(&label).set(i64::try_from(lag).unwrap_or(i64::MAX));
        }
    }

    /// Counts a recovery.
    pub(crate) fn count_failover(&self, cause: &str) {
        self.failovers.get_or_create(&ReasonLabel { reason: cause.to_owned() }).inc();
    }

    /// Counts a failed request.
    pub(crate) fn count_error(&self, error: &crate::Error) {
        self.errors.get_or_create(&ReasonLabel { reason: error.reason().to_owned() }).inc();
    }

    /// Adds metrics of a listener or service, once, when it is made.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.registry.lock());
    }

    /// Shows the backend that this node's store uses, and how it writes what it syncs: `walrus_store_info`.
    pub(crate) fn note_backend(&self, backend: &BackendInUse) {
        let facts = [("backend", backend.name), ("synced_writes", backend.synced_writes.name())];
        let help = "The storage backend in use, and how what is synced is written: direct, or cached and then synced";
        self.register(|registry| registry.register("walrus_store", help, Info::new(facts.to_vec())));
    }

    /// Shows what this node's store counts.
    pub(crate) fn show_store(&self, store: Store) {
        self.registry.lock().register_collector(Box::new(StoreCounters(store)));
    }

    /// Counts what the open of this node's store cut, fenced or moved aside, and says it aloud where there is any.
    pub(crate) fn note_recovery(&self, report: &OpenReport) {
        let OpenReport {
            clean: _,
            torn_tails,
            corrupted,
            unknown_blocks,
            cut_files,
            made_again,
            lost_end,
            journal_cut_bytes,
            unsynced_logs,
            moved_cursors,
        } = report;
        for (found, count) in [
            ("torn_tails", torn_tails.len()),
            ("damaged_ranges", corrupted.len()),
            ("unknown_blocks", unknown_blocks.len()),
            ("cut_files", cut_files.len()),
            ("moved_cursors", moved_cursors.len()),
            ("made_again", made_again.len()),
            ("lost_journal_ends", usize::from(lost_end.is_some())),
            ("torn_journals", usize::from(*journal_cut_bytes > 0)),
            ("unsynced_logs", unsynced_logs.len()),
        ] {
            let label = ReasonLabel { reason: found.to_owned() };
            self.recovered.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        if report.lost_something() {
            let report = report.to_json();
            tracing::error!(alarm = "recovery_lost", %report, "the store was opened with losses");
        }
    }

    /// All metrics in Prometheus's text format.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry.lock())
            .expect("a String takes any text");
        text
    }
}

#[cfg(test)]
mod tests {
    use walrus_log::{LogId, LostEnd, SyncedWrites};

    use super::*;

    #[test]
    fn the_backend_in_use_is_a_label() {
        let metrics = Metrics::new();
        let synced_writes = SyncedWrites::Cached { reason: "direct: Invalid argument".to_owned() };
        metrics.note_backend(&BackendInUse { name: "mmap", refused: None, synced_writes });
        let text = metrics.encode();
        let line = r#"walrus_store_info{backend="mmap",synced_writes="cached"} 1"#;
        assert!(text.contains(line), "{line} is missing:\n{text}");
    }

    #[test]
    fn each_loss_that_an_open_finds_is_counted() {
        let metrics = Metrics::new();
        let lost = LostEnd { last_sequence: 3, durable_sequence: 9, logs_found: Vec::new() };
        metrics.note_recovery(&OpenReport {
            lost_end: Some(lost),
            journal_cut_bytes: 80,
            unsynced_logs: vec![LogId(uuid::Uuid::nil()); 2],
            ..OpenReport::default()
        });
        let text = metrics.encode();
        for (found, count) in
            [("torn_tails", 0), ("lost_journal_ends", 1), ("torn_journals", 1), ("unsynced_logs", 2)]
        {
            let line = format!("walrus_store_recovered{{reason=\"{found}\"}} {count}");
            assert!(text.contains(&line), "{line} is missing:\n{text}");
        }
    }
}
