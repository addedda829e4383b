//! The questions and answers of `ListOffsets`.

use super::status::error_message;
use crate::broker::Broker;
use crate::node::error::{Error, Result};
use crate::node::names::TopicPath;
use crate::node::proto::v1::offset_question::{At, Place};
use crate::node::proto::v1::{OffsetAnswer, OffsetQuestion};
use crate::reading::by_time::{FoundOffset, OffsetAt};

/// One answer for each question, in their order.
pub(super) async fn answers(
    broker: &Broker,
    topic: &TopicPath,
    questions: &[OffsetQuestion],
) -> Result<Vec<OffsetAnswer>> {
    let asked: Vec<(u32, OffsetAt)> = questions.iter().map(question).collect::<Result<_>>()?;
    let found = broker.list_offsets(topic, &asked).await?;
    let answer = |((partition, _), found): (&(u32, OffsetAt), Result<FoundOffset>)| match found {
        Ok(FoundOffset { offset, timestamp_ms }) => {
            OffsetAnswer { partition: *partition, offset, timestamp_ms, error: None }
        }
        Err(error) => OffsetAnswer {
            partition: *partition,
            error: Some(error_message(&error)),
            ..OffsetAnswer::default()
        },
    };
    Ok(asked.iter().zip(found).map(answer).collect())
}

fn question(question: &OffsetQuestion) -> Result<(u32, OffsetAt)> {
    let invalid = || Error::InvalidRequest {
        problem: format!(
            "the question about partition {} names neither a place that there is nor a timestamp",
            question.partition
        ),
    };
    let at = match question.at.ok_or_else(invalid)? {
        At::TimestampMs(ms) => OffsetAt::NotBefore(ms),
        At::Place(place) => match Place::try_from(place) {
            Ok(Place::Earliest) => OffsetAt::Earliest,
            Ok(Place::Latest) => OffsetAt::Latest,
            Ok(Place::MaxTimestamp) => OffsetAt::Newest,
            Ok(Place::Unspecified) | Err(_) => return Err(invalid()),
        },
    };
    Ok((question.partition, at))
}
