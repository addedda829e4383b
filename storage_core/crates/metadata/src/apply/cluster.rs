//! Commands about the cluster as a whole.

use uuid::Uuid;
use walrus_model::Replication;

use crate::answer::Answer;
use crate::rejection::CommandRejection;
use crate::state::{FIRST_LEVEL, Metadata};

pub(super) fn bootstrap(
    metadata: &mut Metadata,
    cluster_id: Uuid,
    replication: Replication,
) -> Result<Answer, CommandRejection> {
    if let Some(cluster_id) = metadata.cluster_id {
        return Err(CommandRejection::AlreadyBootstrapped { cluster_id });
    }
    set_replication(metadata, replication)?;
    metadata.cluster_id = Some(cluster_id);
    metadata.level = FIRST_LEVEL;
    Ok(Answer::Nothing)
}

/// Sets the replication of new segments. Those that exist keep theirs, which is part of their descriptors.
pub(super) fn set_replication(
    metadata: &mut Metadata,
    replication: Replication,
) -> Result<Answer, CommandRejection> {
    let Replication { factor, write_quorum } = replication;
    let range = |what: &str, max: u32, got: u32| CommandRejection::OutOfRange {
        what: what.to_owned(),
        min: 1,
        max: max.into(),
        got: got.into(),
    };
    if factor == 0 || factor > Replication::FACTOR_MAX {
        return Err(range("factor", Replication::FACTOR_MAX, factor));
    }
    if write_quorum == 0 || write_quorum > factor {
        return Err(range("write_quorum", factor, write_quorum));
    }
    metadata.replication = replication;
    Ok(Answer::Nothing)
}
