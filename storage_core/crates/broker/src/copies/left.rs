//! Logs that are left of disks that this node was before: their journals lost their ends, so they have no votes, and their
//! node came back as another disk. Their batches are as good as any copy's, since a segment has one writer: whoever lacks
//! some may fetch them here. They answer nothing else, and count as no copy.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use walrus_log::{Log, LogId, Options, Store};
use walrus_metadata::{CopyState, Metadata, SegmentState};
use walrus_replica::Mark;

use crate::broker::Broker;
use crate::cluster::segment::{Place, segment_of};
use crate::copies::copy;
use crate::node::error::{Error, Result};

/// The folder of a data directory in which they lie: `former/DISK/log`.
const FOLDER: &str = "former";
/// Between two looks whether somebody may still need them.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// All of this node.
#[derive(Default)]
pub(crate) struct LeftLogs {
    disks: ArcSwap<Vec<Arc<LeftDisk>>>,
}

/// What is left of one disk.
struct LeftDisk {
    folder: PathBuf,
    store: Store,
}

impl LeftLogs {
    /// Opens those of a data directory. One that cannot be opened is told, and the node starts without it.
    pub(crate) fn open(data_dir: &Path, options: &Options) -> Self {
        let entries = std::fs::read_dir(data_dir.join(FOLDER)).into_iter().flatten().flatten();
        let folders = entries.map(|entry| entry.path()).filter(|folder| folder.join("log").is_dir());
        let opened = folders.filter_map(|folder| match Store::open(folder.join("log"), options.clone()) {
            Ok(store) => {
                let logs = store.logs().len();
                tracing::warn!(folder = %folder.display(), logs, "logs of a disk that lost its votes are there to fetch from");
                Some(Arc::new(LeftDisk { folder, store }))
            }
            Err(error) => {
                tracing::error!(alarm = "left_logs", folder = %folder.display(), %error, "what is left of a disk cannot be opened");
                None
            }
        });
        Self { disks: ArcSwap::from_pointee(opened.collect()) }
    }

    /// The log of a segment, if one is left.
    pub(crate) fn log(&self, segment: LogId) -> Option<Log> {
        self.disks.load().iter().find_map(|disk| disk.store.log(segment))
    }

    /// How many logs there are.
    pub(crate) fn count(&self) -> usize {
        self.disks.load().iter().map(|disk| disk.store.logs().len()).sum()
    }

    /// Closes the stores.
    pub(crate) fn close(&self) {
        for disk in &*self.disks.swap(Arc::default()) {
            if let Err(error) = disk.store.close() {
                tracing::error!(folder = %disk.folder.display(), %error, "what is left of a disk did not close cleanly");
            }
        }
    }

    /// Removes disks of which nobody needs a log any more.
    fn remove(&self, is_needed: impl Fn(&Log) -> bool) {
        let (needed, spare): (Vec<_>, Vec<_>) =
            self.disks.load().iter().cloned().partition(|disk| disk.store.logs().iter().any(&is_needed));
        if spare.is_empty() {
            return;
        }
        self.disks.store(Arc::new(needed));
        for disk in spare {
            let removed = disk
                .store
                .close()
                .map_err(std::io::Error::other)
                .and_then(|()| std::fs::remove_dir_all(&disk.folder));
            match removed {
                Ok(()) => {
                    tracing::info!(folder = %disk.folder.display(), "what was left of a disk is removed: all of it has enough copies");
                }
                Err(error) => {
                    tracing::error!(folder = %disk.folder.display(), %error, "what is left of a disk cannot be removed");
                }
            }
        }
    }
}

/// How far a log goes, if it is whole.
pub(crate) fn whole_to(log: &Log) -> Result<Option<Mark>> {
    let failed = |error: &walrus_log::Error| Error::Internal { message: format!("{}: {error}", log.name()) };
    let tape = copy::walk(log, failed)?;
    Ok(tape.holes().is_empty().then(|| tape.last()))
}

/// Whether somebody may lack what a log has: all but segments that are sealed with as many verified copies as they should
/// have, those that were trimmed, and topics that were deleted. What the metadata do not know may come back to them.
fn is_needed(metadata: &Metadata, log: &Log) -> bool {
    let Some(place) = Place::parse(log.name()) else { return true };
    if metadata.deleted.contains(&place.topic) {
        return false;
    }
    let topic = metadata.topics.get(&place.topic);
    let Some(partition) = topic.and_then(|topic| topic.partitions.get(place.partition as usize)) else {
        return true;
    };
    if place.number < partition.trimmed_below {
        return false;
    }
    let listed = partition.segments.iter().find(|segment| segment.descriptor.id == segment_of(log.id()));
    listed.is_none_or(|segment| {
        let is_verified = |copy: &&walrus_metadata::SegmentCopy| {
            copy.state == CopyState::Verified && !metadata.gone_disks.contains(&copy.replica.disk)
        };
        let verified = segment.copies.iter().filter(is_verified).count();
        !matches!(segment.state, SegmentState::Sealed(_)) || verified < segment.descriptor.replicas.len()
    })
}

/// Shows how many there are, and removes what nobody needs, until the node stops.
pub(crate) async fn keep_watch(broker: Broker) {
    let watching = async {
        loop {
            let count = broker.left().count();
            broker.metrics().left_logs.set(i64::try_from(count).unwrap_or(i64::MAX));
            if broker.left().disks.load().is_empty() {
                return;
            }
            let metadata = broker.routing().metadata.clone();
            let removing = broker.clone();
            let removed = broker.blocking(move || {
                removing.left().remove(|log| is_needed(&metadata, log));
                Ok(())
            });
            drop(removed.await); // it has told what it could not do
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    let _stopped = broker.shutdown_signal().run_until_cancelled(watching).await;
}
