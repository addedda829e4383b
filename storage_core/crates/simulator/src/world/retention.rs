//! Records that go by their age or by a client's word, the settings by which they go, and the clocks of the nodes.

use walrus_metadata::{Command, PartitionStart, partitions_past_retention};

use super::*;

/// How long tombstones stay behind the pass that kept them first, in milliseconds.
pub const TOMBSTONES_STAY_MS: u64 = 4_000;
/// Size of a disk, in bytes as [`World::contents`] counts them: so few that copies move from disk to disk all the time.
const DISK_BYTES: u64 = 500;
/// How far a wrong clock is ahead, in milliseconds.
pub(super) const AHEAD_MS: u64 = 3_600_000;

/// Settings of the topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Whether the last record of each key is kept, and older ones go.
    pub compacts: bool,
    /// The age at which records go, in milliseconds.
    pub age_ms: Option<u64>,
}

impl World {
    pub(super) fn set_first_settings(&mut self) {
        if self.setting.cleans {
            let compacts = !self.setting.coordinates;
            self.alter(Settings { compacts, age_ms: None }).expect("sound settings");
        }
        if self.setting.coordinates {
            let set = [("walrus.leaders".to_owned(), "sticky".to_owned())].into();
            let command = Command::AlterTopic { topic: TOPIC, set, unset: BTreeSet::new() };
            self.propose(command).expect("sound settings").expect("sound settings");
        }
    }

    /// Changes the topic's settings.
    pub fn alter(&mut self, settings: Settings) -> Checked {
        let policy = match (settings.compacts, settings.age_ms) {
            (true, None) => "compact",
            (true, Some(_)) => "compact,delete",
            (false, _) => "delete",
        };
        let age = settings.age_ms.map_or_else(|| "-1".to_owned(), |age_ms| age_ms.to_string());
        let stay = TOMBSTONES_STAY_MS.to_string();
        let set = [
            ("cleanup.policy", policy),
            ("retention.ms", &age),
            ("delete.retention.ms", &stay),
            ("min.cleanable.dirty.ratio", "0.1"),
        ];
        let set = set.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let command = Command::AlterTopic { topic: TOPIC, set, unset: BTreeSet::new() };
        match self.propose(command)? {
            Ok(()) => Ok(()),
            Err(refused) => violation(format!("settings are refused: {refused}")),
        }
    }

    /// Lets time pass, to so many milliseconds since the beginning.
    pub fn pass_time(&mut self, to_ms: u64) {
        self.now_ms = self.now_ms.max(NOW_MS + to_ms);
    }

    pub(super) fn note_time(&mut self, batch: BatchId) {
        if self.setting.cleans {
            let now_ms = self.now_ms;
            Arc::make_mut(&mut self.promised).times.entry(batch).or_insert(now_ms);
        }
    }

    /// Renews a node's lease, which tells the metadata what its clock says.
    pub fn renew(&mut self, id: NodeId) -> Checked {
        let believes_one = self.makes(Mistake::OneClockBelieved) && self.ahead == Some(id);
        let nodes: Vec<NodeId> = self.nodes.iter().map(|node| node.id).collect();
        let is_meant = |node: &NodeId| *node == id || believes_one;
        let now_ms = self.now_ms;
        if self.ahead == Some(id) {
            self.now_ms += AHEAD_MS;
        }
        for node in nodes.into_iter().filter(is_meant) {
            let (process, disk_bytes) = (self.node(node).process(), DISK_BYTES);
            drop(self.propose(Command::RenewLease { node, process, asked_boottime_ms: 0, disk_bytes })?);
        }
        self.now_ms = now_ms;
        Ok(())
    }

    /// A number that the metadata count, each higher than the one before, for [`Mistake::CountedProducerIds`].
    pub fn count(&mut self, id: NodeId) -> Result<i64, Violation> {
        self.renew(id)?;
        Ok(i64::try_from(self.metadata.state.version).unwrap_or(i64::MAX))
    }

    /// Drops what the topic does not keep any longer, as the node that leads the metadata does.
    pub fn expire(&mut self) -> Checked {
        if self.makes(Mistake::RetentionOfTheOpenSegment) {
            self.expire_open()?;
        }
        let partitions = partitions_past_retention(&self.metadata.state, 10);
        if partitions.is_empty() {
            return Ok(());
        }
        self.propose(Command::Expire { partitions })?.map_or(Ok(()), |()| self.check_metadata())
    }

    /// A mistake: the open segment is judged by its first record.
    fn expire_open(&mut self) -> Checked {
        let Some(open) = self.last_segment() else { return Ok(()) };
        let age_ms = self.metadata.state.topics[&TOPIC].config.retention().age_ms;
        let sent_ms = |record: &record::Record| self.promised.times.get(&record.batch).copied().unwrap_or(0);
        let written = self.written(open);
        let is_old =
            written.first().zip(age_ms).is_some_and(|(first, age_ms)| sent_ms(first) + age_ms <= self.now_ms);
        match self.promised.acknowledged.get(&open).map(|mark| mark.end).filter(|_| is_old) {
            Some(start) => {
                let starts = vec![PartitionStart { partition: 0, start }];
                self.propose(Command::DeleteRecords { topic: TOPIC, starts }).map(drop)
            }
            None => Ok(()),
        }
    }

    /// Deletes the records below an offset, by a client's word.
    pub fn delete_records(&mut self, start: Offset) -> Checked {
        let promised = Arc::make_mut(&mut self.promised);
        promised.deleted_to = promised.deleted_to.max(start);
        let starts = vec![PartitionStart { partition: 0, start }];
        self.propose(Command::DeleteRecords { topic: TOPIC, starts }).map(drop)
    }

    /// The offset up to which records are acknowledged.
    #[must_use]
    pub fn acknowledged_end(&self) -> Offset {
        self.all_records().last().map_or(Offset(0), |last| last.offset)
    }
}
