//! The ties of a segment and the log that stores it: the log's id is the segment's uuid, its name says where that belongs.

use bytes::Bytes;
use uuid::Uuid;
use walrus_log::{LogId, LogSpec, ProducerTable};
use walrus_model::{Descriptor, SegmentId, TopicId};

use crate::node::names::TopicPath;

/// The id of the log of a segment.
pub(crate) fn log_id(segment: &Descriptor) -> LogId {
    LogId(segment.id.0)
}

/// The segment that a log stores.
pub(crate) fn segment_of(log: LogId) -> SegmentId {
    SegmentId(log.0)
}

/// The name of a segment's log in log lines and errors; its form is that of the original's keys.
pub(crate) fn label(topic: &TopicPath, segment: &Descriptor) -> String {
    format!("t_{topic}_p_{}_s_{}", segment.partition, segment.number)
}

/// The specification of a segment's log, which continues the log `after`; `None` while the segment's base offset is not known.
pub(crate) fn log_spec(
    segment: &Descriptor,
    producers: ProducerTable,
    after: Option<LogId>,
) -> Option<LogSpec> {
    Some(LogSpec {
        id: log_id(segment),
        name: Place::of(segment).to_string(),
        base_offset: segment.base_offset?,
        epoch: segment.epoch,
        producers,
        after,
        fsync: segment.fsync,
    })
}

/// The topic, partition and number of a segment: written out, they are the name of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) topic: TopicId,
    pub(crate) partition: u32,
    pub(crate) number: u64,
}

impl Place {
    pub(crate) fn of(segment: &Descriptor) -> Self {
        Self { topic: segment.topic, partition: segment.partition, number: segment.number }
    }

    /// Reads the name of a log; `None` if it is not a segment's.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('/');
        let topic = TopicId(Uuid::try_parse(parts.next()?).ok()?);
        let (partition, number) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        parts.next().is_none().then_some(Self { topic, partition, number })
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}/{}", self.topic.0, self.partition, self.number)
    }
}

/// A uuid as it goes over the wire.
pub(crate) fn uuid_bytes(uuid: Uuid) -> Bytes {
    Bytes::copy_from_slice(uuid.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_log_says_where_its_segment_belongs() {
        let place = Place { topic: TopicId::from_u128(7), partition: 3, number: 12 };
        assert_eq!(Place::parse(&place.to_string()), Some(place));
        for other in ["", "logs", "a/1/2", &format!("{place}/4"), &place.to_string().replace("/3/", "/-3/")] {
            assert_eq!(Place::parse(other), None, "{other}");
        }
    }
}
