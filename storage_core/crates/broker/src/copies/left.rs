//! The logs that are left of this node's former disks: the journals of those lost their ends, so they have no votes, and the
//! node came back as another disk. Their batches are as good as any copy's, since a segment has one writer: whoever lacks
//! some may fetch them here. They answer nothing else, and count as no copy.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use walrus_log::{Log, LogId, Options, Store};
use walrus_model::TopicId;
use walrus_replica::Mark;

use crate::cluster::segment::Place;
use crate::copies::copy;
use crate::node::error::{Error, Result};

/// The folder of a data directory that has the former disks: the logs of one are in `former/DISK/log`.
const FOLDER: &str = "former";

/// All logs that are left of this node's former disks.
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
    /// Opens the former disks of a data directory. One that cannot be opened is logged, and the node starts without it.
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

    /// The topics of which there are logs.
    pub(crate) fn topics(&self) -> Vec<TopicId> {
        let logs = |disk: &Arc<LeftDisk>| disk.store.logs();
        let all = self.disks.load().iter().flat_map(logs).collect::<Vec<_>>();
        all.iter().filter_map(|log| Place::parse(log.name())).map(|place| place.topic).collect()
    }

    /// Whether nothing is left of any disk.
    pub(crate) fn is_empty(&self) -> bool {
        self.disks.load().is_empty()
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
    pub(crate) fn remove(&self, is_needed: impl Fn(&Log) -> bool) {
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
