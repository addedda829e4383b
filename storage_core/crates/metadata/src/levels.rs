//! Levels of commands: what may be proposed while the nodes of a cluster are upgraded one by one. Each process says at
//! its registration up to which level it knows commands; the cluster's level is raised by a command once all members
//! know it, and never lowered. A command of a level above the cluster's is not proposed and not taken, so no member ever
//! meets one that it does not know.

use crate::answer::Answer;
use crate::command::{Command, Found};
use crate::rejection::CommandRejection;
use crate::state::{FIRST_LEVEL, Metadata, NodeState, Protocol};
use crate::topic_config::{PLACEMENT_SETTINGS, RETENTION_SETTINGS};

/// The highest level that this version knows.
pub const LEVEL: u32 = 9;
/// Level of the decisions that say what no copy had any more, and of reports that a segment is lost.
const LOST_LEVEL: u32 = 3;
/// Level from which topics and partitions have limits, and segments say which producers are forgotten behind them: all
/// members must decide it alike.
pub(crate) const LIMITS_LEVEL: u32 = 3;
/// Level of four rules: organisations are records; Walrus's own topics have a place of their own; a deleted topic is
/// forgotten when no disk has anything of it; a producer is remembered for a day.
pub(crate) const ORGANISATIONS_LEVEL: u32 = 4;
/// Level from which topics have settings of their own.
const TOPIC_CONFIG_LEVEL: u32 = 5;
/// Level from which records are deleted: by their topic's retention, or because somebody asks for it.
const RETENTION_LEVEL: u32 = 6;
/// Level from which topics say how many copies they have, whether their leaders stay and whose time their records have, are given
/// more partitions and are compacted, and from which nodes say that they are about to stop, where they speak Kafka's protocol, and how
/// their listeners are called.
const PLACEMENT_LEVEL: u32 = 7;
/// Level from which nodes say how large their disks are, so that copies move from full disks to emptier ones.
const DISKS_LEVEL: u32 = 8;
/// Level from which nodes say in which zone they are, so that copies and voters are spread over zones.
const ZONES_LEVEL: u32 = 9;

impl Command {
    /// The level that a cluster must have reached before this command may be proposed.
    #[must_use]
    pub fn level(&self) -> u32 {
        match self {
            Self::SetConfig { set, unset } => crate::cluster_config::level(set.keys().chain(unset)),
            Self::RecoverTopic { .. } => 3,
            Self::AlterTopic { set, unset, .. } => level_of_settings(set.keys().chain(unset)),
            Self::CreateTopic { config, .. } if !config.is_empty() => level_of_settings(config.keys()),
            Self::RegisterNode { zone, .. } if !zone.is_empty() => ZONES_LEVEL,
            Self::RegisterNode { listeners, .. }
                if listeners
                    .iter()
                    .any(|listener| listener.protocol == Protocol::Kafka || !listener.name.is_empty()) =>
            {
                PLACEMENT_LEVEL
            }
            Self::RegisterNode { listeners, .. } if !listeners.is_empty() => ORGANISATIONS_LEVEL,
            Self::SetOrganisation { .. } | Self::RemoveOrganisation { .. } | Self::ReportEmptied { .. } => {
                ORGANISATIONS_LEVEL
            }
            Self::AddPartitions { .. }
            | Self::ReportRead { .. }
            | Self::OfferCompaction { .. }
            | Self::AbandonCompaction { .. }
            | Self::RepeatCompaction { .. }
            | Self::FinishCompaction { .. }
            | Self::SetNodeState { state: NodeState::Stopping, .. } => PLACEMENT_LEVEL,
            Self::RenewLease { disk_bytes, .. } if *disk_bytes > 0 => DISKS_LEVEL,
            Self::DeleteRecords { .. } | Self::Expire { .. } | Self::ReportBegun { .. } => RETENTION_LEVEL,
            Self::ReportCopies { reports, .. } if reports.iter().any(|report| report.contents.is_some()) => {
                RETENTION_LEVEL
            }
            Self::SealAndOpen { value, .. } if !value.lost.is_empty() => LOST_LEVEL,
            Self::ReportCopies { reports, .. }
                if reports.iter().any(|report| report.found == Found::Lost) =>
            {
                LOST_LEVEL
            }
            _ => FIRST_LEVEL,
        }
    }
}

/// Level from which all members know these settings of topics.
fn level_of_settings<'a>(names: impl Iterator<Item = &'a String>) -> u32 {
    let level = |name: &String| match name.as_str() {
        name if PLACEMENT_SETTINGS.contains(&name) => PLACEMENT_LEVEL,
        name if RETENTION_SETTINGS.contains(&name) => RETENTION_LEVEL,
        _ => TOPIC_CONFIG_LEVEL,
    };
    names.map(level).max().unwrap_or(TOPIC_CONFIG_LEVEL)
}

impl Metadata {
    /// The level to which the cluster can be raised now, if it is above the present one.
    #[must_use]
    pub fn reachable_level(&self) -> Option<u32> {
        let known_by_all = self.nodes.values().map(|node| node.level).min()?;
        (known_by_all > self.level).then_some(known_by_all)
    }

    /// Whether commands that say what is lost may be proposed: the cluster's level promises that all its nodes know them.
    #[must_use]
    pub fn hears_of_losses(&self) -> bool {
        self.level >= LOST_LEVEL
    }

    /// Whether commands of the level that brought organisations may be proposed.
    #[must_use]
    pub fn knows_organisations(&self) -> bool {
        self.level >= ORGANISATIONS_LEVEL
    }

    /// Whether commands of the level that brought retention may be proposed.
    #[must_use]
    pub fn knows_retention(&self) -> bool {
        self.level >= RETENTION_LEVEL
    }

    /// Whether commands of the level that brought the placement of topics may be proposed.
    #[must_use]
    pub fn knows_placement(&self) -> bool {
        self.level >= PLACEMENT_LEVEL
    }

    /// Whether nodes may say how large their disks are.
    #[must_use]
    pub fn knows_disk_sizes(&self) -> bool {
        self.level >= DISKS_LEVEL
    }

    /// Whether nodes may say in which zone they are.
    #[must_use]
    pub fn knows_zones(&self) -> bool {
        self.level >= ZONES_LEVEL
    }

    /// Refuses a command of a level that the cluster has not reached.
    pub fn check_level(&self, command: &Command) -> Result<(), CommandRejection> {
        let needed = command.level();
        // A cluster that is not founded has no level, and takes nothing but its foundation.
        if needed > self.level.max(FIRST_LEVEL) {
            return Err(CommandRejection::LevelNotReached { needed, level: self.level });
        }
        Ok(())
    }
}

/// Raises the cluster's level; a level that it has reached already changes nothing.
pub(crate) fn raise_level(metadata: &mut Metadata, level: u32) -> Result<Answer, CommandRejection> {
    if metadata.nodes.is_empty() {
        return Err(CommandRejection::LevelNotReached { needed: level, level: metadata.level }); // nobody has said what it knows
    }
    if let Some(node) = metadata.nodes.values().find(|node| node.level < level) {
        return Err(CommandRejection::LevelUnknown { node: node.id, knows: node.level, needed: level });
    }
    metadata.level = metadata.level.max(level);
    Ok(Answer::Nothing)
}
