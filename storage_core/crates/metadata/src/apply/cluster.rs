//! Commands about the cluster as a whole.

use uuid::Uuid;

use crate::command::Answer;
use crate::levels::FIRST_LEVEL;
use crate::model::{Metadata, Replication};
use crate::rejected::Rejected;

/// More copies than this are a mistake of whoever asked.
const FACTOR_MAX: u32 = 9;
const PRODUCER_IDS_MAX: u32 = 100_000;

pub(super) fn bootstrap(
    metadata: &mut Metadata,
    cluster_id: Uuid,
    replication: Replication,
) -> Result<Answer, Rejected> {
    if let Some(cluster_id) = metadata.cluster_id {
        return Err(Rejected::AlreadyBootstrapped { cluster_id });
    }
    set_replication(metadata, replication)?;
    metadata.cluster_id = Some(cluster_id);
    metadata.level = FIRST_LEVEL;
    Ok(Answer::Nothing)
}

/// Segments that exist keep theirs: it is part of their descriptors.
pub(super) fn set_replication(metadata: &mut Metadata, replication: Replication) -> Result<Answer, Rejected> {
    let Replication { factor, write_quorum } = replication;
    let range = |what: &str, max: u32, got: u32| Rejected::OutOfRange {
        what: what.to_owned(),
        min: 1,
        max: max.into(),
        got: got.into(),
    };
    if factor == 0 || factor > FACTOR_MAX {
        return Err(range("factor", FACTOR_MAX, factor));
    }
    if write_quorum == 0 || write_quorum > factor {
        return Err(range("write_quorum", factor, write_quorum));
    }
    metadata.replication = replication;
    Ok(Answer::Nothing)
}

pub(super) fn allocate_producer_ids(metadata: &mut Metadata, count: u32) -> Result<Answer, Rejected> {
    if count == 0 || count > PRODUCER_IDS_MAX {
        let what = "count".to_owned();
        return Err(Rejected::OutOfRange { what, min: 1, max: PRODUCER_IDS_MAX.into(), got: count.into() });
    }
    let first = metadata.next_producer_id;
    metadata.next_producer_id += i64::from(count);
    Ok(Answer::ProducerIds { first, count })
}
