//! Which logs leave this disk. Pure: only what metadata explicitly calls trimmed or deleted goes; what it merely does
//! not list stays, because metadata may have lost commands, and a log may have been made for a segment to come.

use walrus_metadata::Metadata;

use crate::segment::Place;

/// What becomes of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is listed, or may be soon.
    Keep,
    /// Its topic was deleted, or its segment trimmed.
    Delete,
    /// Metadata knows nothing of it: it stays, and somebody should look.
    Unlisted,
}

/// Judges the log of a segment.
pub(crate) fn judge(metadata: &Metadata, place: Place) -> Fate {
    if metadata.deleted.contains(&place.topic) {
        return Fate::Delete;
    }
    let partition =
        metadata.topics.get(&place.topic).and_then(|topic| topic.partitions.get(place.partition as usize));
    let Some(partition) = partition else {
        return Fate::Unlisted;
    };
    if place.number < partition.trimmed_below { Fate::Delete } else { Fate::Keep }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;
    use walrus_metadata::{Epoch, Partition, Topic, TopicId};

    use super::*;

    #[test]
    fn only_what_metadata_calls_trimmed_or_deleted_goes() {
        let (listed, deleted, forgotten) = (topic(1), topic(2), topic(3));
        let partition =
            Partition { index: 0, next_epoch: Epoch(9), trimmed_below: 4, segments: vec![], version: 1 };
        let mut metadata = Metadata::default();
        metadata.deleted.insert(deleted);
        let known = Topic {
            id: listed,
            org: "default".to_owned(),
            name: "t".to_owned(),
            internal: false,
            partitions: vec![partition],
        };
        metadata.topics.insert(listed, Arc::new(known));

        let fate = |topic, partition, number| judge(&metadata, Place { topic, partition, number });
        assert_eq!(fate(listed, 0, 3), Fate::Delete);
        assert_eq!(fate(listed, 0, 4), Fate::Keep);
        assert_eq!(fate(listed, 1, 0), Fate::Unlisted);
        assert_eq!(fate(deleted, 0, 9), Fate::Delete);
        assert_eq!(fate(forgotten, 0, 0), Fate::Unlisted);
    }

    fn topic(number: u128) -> TopicId {
        TopicId(Uuid::from_u128(number))
    }
}
