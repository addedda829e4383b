//! The one function that changes the metadata.

mod cluster;
mod compaction;
mod copies;
mod members;
mod nodes;
mod organisations;
mod partitions;
mod retention;
mod segments;
mod topics;

use crate::answer::{Answer, Applied};
use crate::command::{Command, ENVELOPE_VERSION, Envelope};
use crate::levels::{ORGANISATIONS_LEVEL, raise_level};
use crate::rejection::CommandRejection;
use crate::state::{Metadata, NodeState};
use cluster::{bootstrap, set_replication};
use compaction::{
    abandon_compaction, finish_compaction, offer_compaction, repeat_compaction, replace_verified,
};
use copies::{Change, report_copies, set_copies};
use members::{drain_node, remove_node};
use nodes::{current_process, register_node};
use organisations::{list_organisations, remove_organisation, set_organisation};
use partitions::{change_partition, find_partition, partition_mut};
use retention::{delete_records, expire, report_begun, report_read};
use segments::{Ageing, begin_recovery, begin_roll, check_replicas, find_segment, seal_and_open, trim};
pub use segments::{EPOCH_MAX, check_follows};
use topics::{
    Naming, add_partitions, alter_topic, create_topic, delete_topic, recover_topic, report_emptied,
};

/// Applies one command and remembers its outcome; on `Err` nothing but that memory was changed. A command whose id is
/// remembered changes nothing and is answered as it was the first time. Renewals of leases are not remembered.
pub fn apply(metadata: &mut Metadata, envelope: &Envelope) -> Result<Applied, CommandRejection> {
    // A renewal comes from each node each second, and applying it twice is harmless: it would only drive out the others.
    let remembered = !matches!(envelope.command, Command::RenewLease { .. });
    if remembered && let Some(outcome) = metadata.recent.outcome(envelope.id) {
        return outcome.clone();
    }
    let outcome =
        check_envelope(metadata, envelope).and_then(|()| execute(metadata, envelope)).map(|answer| {
            metadata.version += 1;
            Applied { version: metadata.version, answer }
        });
    if remembered {
        metadata.recent.remember(envelope.id, outcome.clone());
    }
    outcome
}

fn check_envelope(metadata: &Metadata, envelope: &Envelope) -> Result<(), CommandRejection> {
    if envelope.v != ENVELOPE_VERSION {
        return Err(CommandRejection::UnsupportedVersion { got: envelope.v, supported: ENVELOPE_VERSION });
    }
    if metadata.cluster_id.is_none() && !matches!(envelope.command, Command::Bootstrap { .. }) {
        return Err(CommandRejection::NotBootstrapped);
    }
    metadata.check_level(&envelope.command)?;
    let Some(expected) = envelope.expect else {
        return Ok(());
    };
    let current = entity_version(metadata, &envelope.command, expected)?;
    if current != expected {
        return Err(CommandRejection::VersionMismatch { expected, current });
    }
    Ok(())
}

/// Version of the node, partition, segment or settings that the command changes; that of the whole state for commands
/// that change none of these.
fn entity_version(metadata: &Metadata, command: &Command, expected: u64) -> Result<u64, CommandRejection> {
    match command {
        Command::RenewLease { node, .. }
        | Command::SetNodeState { node, .. }
        | Command::DrainNode { node, .. }
        | Command::RemoveNode { node, .. } => metadata
            .nodes
            .get(node)
            .map(|node| node.version)
            .ok_or(CommandRejection::UnknownNode { node: *node }),
        // A decision of the replicas holds whatever version the proposer saw; another value is an alarm, not a lost race.
        Command::SealAndOpen { .. } => Ok(expected),
        Command::SetCopies { topic, partition, segment, .. } => {
            let found = find_partition(metadata, *topic, *partition)?;
            find_segment(found, *segment).map(|segment| segment.version)
        }
        Command::BeginRoll { topic, partition, .. }
        | Command::BeginRecovery { topic, partition, .. }
        | Command::Trim { topic, partition, .. } => {
            find_partition(metadata, *topic, *partition).map(|found| found.version)
        }
        Command::OfferCompaction { place, .. }
        | Command::AbandonCompaction { place, .. }
        | Command::RepeatCompaction { place, .. }
        | Command::FinishCompaction { place, .. } => {
            find_partition(metadata, place.topic, place.partition).map(|found| found.version)
        }
        Command::SetConfig { .. } => Ok(metadata.config.version),
        Command::AlterTopic { topic, .. } => metadata
            .topics
            .get(topic)
            .map(|found| found.config.version)
            .ok_or(CommandRejection::UnknownTopic { topic: *topic }),
        Command::SetOrganisation { name, .. } | Command::RemoveOrganisation { name } => {
            Ok(metadata.organisations.get(name).map_or(0, |found| found.version))
        }
        Command::Bootstrap { .. }
        | Command::SetReplication { .. }
        | Command::ReportCopies { .. }
        | Command::RaiseLevel { .. }
        | Command::RegisterNode { .. }
        | Command::CreateTopic { .. }
        | Command::RecoverTopic { .. }
        | Command::AddPartitions { .. }
        | Command::DeleteTopic { .. }
        | Command::DeleteRecords { .. }
        | Command::ReportRead { .. }
        | Command::Expire { .. }
        | Command::ReportBegun { .. }
        | Command::ReportEmptied { .. } => Ok(metadata.version),
    }
}

fn execute(metadata: &mut Metadata, envelope: &Envelope) -> Result<Answer, CommandRejection> {
    let version = metadata.version + 1;
    match &envelope.command {
        Command::Bootstrap { cluster_id, replication } => bootstrap(metadata, *cluster_id, *replication),
        Command::SetReplication { replication } => set_replication(metadata, *replication),
        Command::RegisterNode { .. } => register_node(metadata, &envelope.command, version),
        Command::RenewLease { node, process, asked_boottime_ms, disk_bytes } => {
            let found = current_process(metadata, *node, *process)?;
            found.renewals += 1;
            found.asked_boottime_ms = found.asked_boottime_ms.max(*asked_boottime_ms);
            found.clock_ms = envelope.at_ms;
            if *disk_bytes > 0 {
                found.disk_bytes = *disk_bytes;
            }
            Ok(Answer::Nothing)
        }
        Command::SetNodeState { node, process, state } => {
            let found = current_process(metadata, *node, *process)?;
            // A drain is not the node's to end, and a process that stops takes nothing back.
            if !matches!(found.state, NodeState::Draining | NodeState::Stopping) {
                found.state = *state;
                found.version = version;
            }
            Ok(Answer::Nothing)
        }
        Command::DrainNode { node, disk, draining } => drain_node(metadata, *node, *disk, *draining, version),
        Command::RemoveNode { node, disk, lost, replaced_by } => {
            remove_node(metadata, *node, *disk, *lost, *replaced_by)
        }
        Command::RaiseLevel { level } => {
            let before = metadata.level;
            let answer = raise_level(metadata, *level)?;
            if (before..metadata.level).contains(&(ORGANISATIONS_LEVEL - 1)) {
                list_organisations(metadata, version);
            }
            Ok(answer)
        }
        Command::SetConfig { set, unset } => metadata.config.change(set, unset, version),
        Command::SetOrganisation { name, limits } => set_organisation(metadata, name, *limits, version),
        Command::RemoveOrganisation { name } => remove_organisation(metadata, name),
        Command::CreateTopic { topic, org, name, internal, config, first } => {
            let naming = Naming::new(metadata, *topic, org, name, *internal);
            create_topic(metadata, &naming, config, first, (envelope.at_ms, version))
        }
        Command::AlterTopic { topic, set, unset } => alter_topic(metadata, *topic, set, unset, version),
        Command::RecoverTopic { topic, org, name, internal, first } => {
            let naming = Naming::new(metadata, *topic, org, name, *internal);
            recover_topic(metadata, &naming, first, envelope.at_ms, version)
        }
        Command::AddPartitions { topic, first } => {
            add_partitions(metadata, *topic, first, (envelope.at_ms, version))
        }
        Command::DeleteTopic { topic } => delete_topic(metadata, *topic),
        Command::ReportEmptied { replica, topics } => report_emptied(metadata, *replica, topics),
        Command::BeginRoll { topic, partition, segment, successor } => {
            check_replicas(metadata, successor)?;
            let found = partition_mut(metadata, *topic, *partition)?;
            begin_roll(found, *segment, successor, version)
        }
        Command::BeginRecovery { topic, partition, segment, ballot, successor } => {
            check_replicas(metadata, successor)?;
            let found = partition_mut(metadata, *topic, *partition)?;
            begin_recovery(found, *segment, *ballot, successor, version)
        }
        Command::SetCopies { topic, partition, segment, version: seen, added, given_up } => {
            let place = (*topic, *partition, *segment);
            set_copies(metadata, &Change { place, version: *seen, added, given_up }, version)
        }
        Command::ReportCopies { replica, reports } => {
            let answer = report_copies(metadata, *replica, reports, version)?;
            replace_verified(metadata, reports, version)?;
            Ok(answer)
        }
        Command::SealAndOpen { topic, partition, segment, value } => {
            let reached_ms = metadata.reached_ms();
            let ageing = Ageing::at(metadata.level, reached_ms);
            let opened_at_ms = envelope.at_ms.max(reached_ms);
            change_partition(metadata, (*topic, *partition), |found| {
                seal_and_open(found, *segment, value, (opened_at_ms, version), ageing)
            })
        }
        Command::OfferCompaction { place, offer } => offer_compaction(metadata, *place, offer, version),
        Command::AbandonCompaction { place, segment } => {
            abandon_compaction(metadata, *place, *segment, version)
        }
        Command::RepeatCompaction { place, replacement, copies } => {
            repeat_compaction(metadata, *place, replacement, copies, version)
        }
        Command::FinishCompaction { place, end } => {
            finish_compaction(metadata, *place, end, (envelope.at_ms, version))
        }
        Command::DeleteRecords { topic, starts } => delete_records(metadata, *topic, starts, version),
        Command::ReportRead { topic, reader, marks } => report_read(metadata, *topic, reader, marks),
        Command::Expire { partitions } => expire(metadata, partitions, version),
        Command::ReportBegun { replica, segments } => report_begun(metadata, *replica, segments),
        Command::Trim { topic, partition, below_number, first } => {
            change_partition(metadata, (*topic, *partition), |found| {
                trim(found, *below_number, first.as_ref(), envelope.at_ms, version)
            })
        }
    }
}
