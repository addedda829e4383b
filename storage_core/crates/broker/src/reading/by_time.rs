//! Offsets by time: where a partition begins and ends, which record is the first that is not older than a time, and which is
//! the newest. Sealed segments are searched in a copy of theirs, the open one at its leader, below the high watermark.
//!
//! Records that no node has any more are passed over, as those that were deleted are: a consumer goes on behind them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, stream};
use prost::Message as _;
use tokio::time::Instant;
use walrus_log::{LogId, TimedOffset};
use walrus_metadata::{Partition, Segment, SegmentState};
use walrus_model::{Offset, SegmentId};

use crate::cluster::routing::{TopicRoute, base_of, is_open};
use crate::cluster::segment::uuid_bytes;
use crate::copies::codec::decode_seal;
use crate::node::budget::{BATCH_BYTES_MAX, Purpose};
use crate::node::error::{Error, Result};
use crate::node::names::{PartitionRef, TopicPath};
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::node::proto::peer::{FindTime, FindTimeAnswer};
use crate::peer::Request;
use crate::reading::Reading;
use crate::reading::failures::Failures;

/// Limit on the questions of one request.
const QUESTIONS_MAX: usize = 10_000;
/// Searches of one request that run at a time.
const SEARCHES_MAX: usize = 8;

/// A point of time in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetAt {
    /// The first offset that can be read.
    Earliest,
    /// The high watermark.
    Latest,
    /// The record with the greatest timestamp, the first of those that have it.
    Newest,
    /// The first record whose timestamp is not lower, milliseconds since the epoch.
    NotBefore(i64),
}

/// The offset at a point of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoundOffset {
    /// The offset; `None` where no record is there.
    pub offset: Option<u64>,
    /// Timestamp of the record, milliseconds since the epoch; `None` where none was looked for.
    pub timestamp_ms: Option<i64>,
}

impl Reading {
    /// Answers each question about a topic's partitions, in their order. An error is the answer to one question; only a topic
    /// that there is not, or questions that cannot be, fail the whole.
    pub(crate) async fn list_offsets(
        &self,
        topic: &TopicPath,
        questions: &[(u32, OffsetAt)],
    ) -> Result<Vec<Result<FoundOffset>>> {
        if questions.len() > QUESTIONS_MAX {
            let problem = format!("{} questions are more than {QUESTIONS_MAX}", questions.len());
            return Err(Error::InvalidRequest { problem });
        }
        // Nobody is led to records whose deletion was acknowledged.
        self.cluster().await_all_metadata(&format!("where topic {topic} begins")).await?;
        let unknown = || Error::UnknownTopic { topic: topic.to_string() };
        let route = self.cluster().routing().find(topic).cloned().ok_or_else(unknown)?;
        let asked_for_ends = questions.iter().filter(|(_, at)| *at == OffsetAt::Latest);
        let asked_for_ends: BTreeSet<u32> = asked_for_ends.map(|(partition, _)| *partition).collect();
        let listed = asked_for_ends.iter().filter_map(|index| route.partition(*index).ok().cloned());
        let listed: Vec<Partition> = listed.collect();
        let indexes: Vec<u32> = listed.iter().map(|partition| partition.index).collect();
        let ends = self.ends_of(topic, listed).await;
        let ends: BTreeMap<u32, Result<u64>> = indexes.into_iter().zip(ends).collect();
        let answers = questions.iter().map(|&(index, at)| self.answer(&route, &ends, index, at));
        let answers: Vec<_> = answers.collect(); // futures, none of which runs yet
        let answers: Vec<_> = stream::iter(answers).buffered(SEARCHES_MAX).collect().await;
        for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            self.cluster().metrics().count_error(error);
        }
        Ok(answers)
    }

    async fn answer(
        &self,
        route: &TopicRoute,
        ends: &BTreeMap<u32, Result<u64>>,
        index: u32,
        wanted: OffsetAt,
    ) -> Result<FoundOffset> {
        let partition = route.partition(index)?;
        let at = |offset: u64| FoundOffset { offset: Some(offset), timestamp_ms: None };
        let ms = match wanted {
            OffsetAt::Earliest => return Ok(at(partition.log_start().0)),
            OffsetAt::Latest => return ends.get(&index).expect("it was asked for").clone().map(at),
            OffsetAt::Newest => None,
            OffsetAt::NotBefore(ms) => Some(ms),
        };
        let from = PartitionRef { topic: route.path.clone(), partition: index };
        let found = self.search(&from, ms).await?;
        Ok(FoundOffset {
            offset: found.map(|found| found.offset.0),
            timestamp_ms: found.map(|found| found.timestamp_ms),
        })
    }

    /// The first record of a partition that is not older than `ms`; without `ms` the newest one.
    async fn search(&self, from: &PartitionRef, ms: Option<i64>) -> Result<Option<TimedOffset>> {
        let decided_by = Instant::now() + patience::END_DECIDED;
        'looks: loop {
            let news = self.cluster().news();
            let partition = self.cluster().routing().partition(from)?.1.clone();
            let start = partition.log_start().0;
            let mut best: Option<TimedOffset> = None;
            for (bound, segment) in candidates(&partition, ms) {
                if best.is_some_and(|best| best.is_newer_than(bound, base_of(segment))) {
                    break;
                }
                let searched = self.search_segment(segment, ms, start.max(base_of(segment))).await;
                match searched {
                    // The leader is gone, or has ended the segment: soon it is decided what follows.
                    Err(error)
                        if is_open(segment)
                            && error.retryable()
                            && Instant::now() < decided_by
                            && !self.cluster().is_cut_off(&segment.descriptor) =>
                    {
                        news.wait(patience::NEWS_LOOK).await;
                        continue 'looks;
                    }
                    searched => best = better(ms, best, searched?),
                }
                if ms.is_some() && best.is_some() {
                    break;
                }
            }
            return Ok(best);
        }
    }

    /// The answer of one segment: the open one is asked for at its leader, a sealed one wherever a copy is, until one has seen
    /// everything.
    async fn search_segment(
        &self,
        segment: &Segment,
        ms: Option<i64>,
        from: u64,
    ) -> Result<Option<TimedOffset>> {
        let descriptor = &segment.descriptor;
        let (is_open, is_lost) = (is_open(segment), segment.is_lost());
        let mut sources =
            if is_open { vec![descriptor.leader.node.0] } else { self.copies().holders(descriptor) };
        let me = self.cluster().node_id();
        sources.sort_by_key(|node| *node != me); // a stable sort: the others stay in their order
        let find = FindTime {
            segment: uuid_bytes(descriptor.id.0),
            timestamp_ms: ms,
            from,
            whole: !is_open && !is_lost,
        };
        let (mut best, mut failures, mut has_answer) = (None, Failures::default(), false);
        for node in sources {
            match self.ask(node, &find).await {
                Ok(answer) => {
                    let timed =
                        |offset| TimedOffset { offset: Offset(offset), timestamp_ms: answer.timestamp_ms };
                    best = better(ms, best, answer.offset.map(timed));
                    has_answer = true;
                    let is_settled = ms.is_some() && best.is_some();
                    if is_open && answer.sealed && !is_settled {
                        return Err(Obstacle::WhatFollowsUnknown { segment: descriptor.id }.into());
                    }
                    if is_open && answer.skipped && descriptor.replicas.len() > 1 {
                        let damage = format!("segment {} is damaged on node {node}", descriptor.id);
                        return Err(Obstacle::LeaderNotMended { damage }.into());
                    }
                    if !answer.skipped || is_open {
                        return Ok(best);
                    }
                }
                Err(error) => failures.add(error),
            }
        }
        // What every copy lacks is lost; as long as a copy that is whole may come back, it is waited for.
        if is_lost || (has_answer && !failures.is_unsure) {
            return Ok(best);
        }
        Err(failures.sum(descriptor.id))
    }

    async fn ask(&self, node: u32, find: &FindTime) -> Result<FindTimeAnswer> {
        if node == self.cluster().node_id() {
            return self.find_time(find).await;
        }
        let asked = Request::FindTime(find.clone());
        match self.cluster().peers().call(node, asked, patience::TIME_SEARCH).await {
            Ok(payload) => FindTimeAnswer::decode(payload)
                .map_err(|problem| Error::Internal { message: format!("a peer's answer: {problem}") }),
            // The node has yet to be upgraded.
            Err(Error::InvalidRequest { .. }) => Err(Obstacle::SearchUnknown { node }.into()),
            Err(error) => Err(error),
        }
    }

    /// The answer of the own copy of a segment, below the high watermark; for this node and for others.
    pub(crate) async fn find_time(&self, find: &FindTime) -> Result<FindTimeAnswer> {
        let invalid = || Error::InvalidRequest { problem: "a segment's uuid has 16 bytes".to_owned() };
        let segment = SegmentId::from_slice(&find.segment).ok_or_else(invalid)?;
        let not_whole = || Obstacle::CopyNotWhole { node: self.cluster().node_id() };
        let log = if find.whole {
            let log = self.copies().bucket().log(LogId(segment.0)).ok_or_else(not_whole)?;
            if !log.is_sealed() {
                return Err(not_whole().into());
            }
            log
        } else {
            let Some(log) = self.own_copy(segment).await? else {
                // Nobody has appended to it, as far as this disk knows.
                self.copies().may_claim_end(&self.descriptor_of(segment)?).await?;
                return Ok(FindTimeAnswer::default());
            };
            log
        };
        let readable = self.copies().readable(segment, &log)?;
        let is_sealed = log.is_sealed();
        let within = Offset(find.from)..Offset(readable.end);
        if readable.end > find.from {
            self.await_own_disk(&log, readable.end - 1).await?;
        }
        let _held =
            self.cluster().share(Purpose::Reads).take(BATCH_BYTES_MAX, patience::ANSWER_MEMORY).await?;
        // What no copy had when the segment's end was decided is no damage that anybody could mend.
        let seal = log.sealed_value().and_then(|seal| decode_seal(&seal).ok());
        let lacks_nothing = seal.is_none_or(|value| value.lost.is_empty());
        let (bucket, searched, ms) = (self.copies().bucket().clone(), log, find.timestamp_ms);
        let search = self.cluster().tasks().blocking(move || bucket.find_time(&searched, ms, within)).await?;
        if search.has_skipped && lacks_nothing {
            self.copies().table().note_damage(segment);
        }
        if is_sealed && !find.whole {
            self.copies().table().note_doubt(segment); // whoever asks takes it for open, and so may the metadata here
        }
        // A record that was found stays the first one; that there is none, or no newer one, may be said only of all there is.
        let is_final = is_sealed || (ms.is_some() && search.found.is_some());
        if !is_final {
            if !readable.is_all {
                self.copies().table().note_doubt(segment);
                return Err(Obstacle::EndUndecided { segment }.into());
            }
            self.copies().may_claim_end(&self.descriptor_of(segment)?).await?;
        }
        Ok(FindTimeAnswer {
            offset: search.found.map(|found| found.offset.0),
            timestamp_ms: search.found.map_or(0, |found| found.timestamp_ms),
            skipped: search.has_skipped,
            sealed: is_sealed,
        })
    }
}

/// The segments that may have the answer, in the order in which they are asked, each with a bound on its timestamps. Those
/// whose newest record is known to be older are not among them.
fn candidates(partition: &Partition, ms: Option<i64>) -> Vec<(i64, &Segment)> {
    let start = partition.log_start();
    let bound = |segment: &Segment| match (&segment.state, segment.contents) {
        (SegmentState::Sealed(value), _) if value.end <= start => None,
        (SegmentState::Sealed(_), Some(contents)) => contents.newest_ms,
        _ => Some(i64::MAX),
    };
    let mut candidates: Vec<_> = partition
        .segments
        .iter()
        .filter_map(|segment| Some((bound(segment)?, segment)))
        .filter(|(bound, _)| ms.is_none_or(|ms| *bound >= ms))
        .collect();
    if ms.is_none() {
        candidates.sort_by_key(|(bound, segment)| (Reverse(*bound), base_of(segment)));
    }
    candidates
}

/// The better of two answers to one question: the first of those that are not older, or the newest.
fn better(ms: Option<i64>, one: Option<TimedOffset>, other: Option<TimedOffset>) -> Option<TimedOffset> {
    let newest_first = |found: &TimedOffset| if ms.is_some() { 0 } else { found.timestamp_ms };
    one.into_iter().chain(other).min_by_key(|found| (Reverse(newest_first(found)), found.offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_answers_the_first_not_older_or_the_newest_is_the_better() {
        let at = |offset, timestamp_ms| Some(TimedOffset { offset: Offset(offset), timestamp_ms });
        assert_eq!(better(Some(5), at(3, 9), at(1, 6)), at(1, 6));
        assert_eq!(better(None, at(3, 9), at(1, 6)), at(3, 9));
        assert_eq!(better(None, at(3, 9), at(1, 9)), at(1, 9));
        assert_eq!(better(None, None, at(1, 9)), at(1, 9));
        assert_eq!(better(Some(5), None, None), None);
    }
}
