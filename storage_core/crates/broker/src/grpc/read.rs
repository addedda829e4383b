//! The server stream of `Read`: one page of the log for each answer, read when the client has room for it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream;
use tonic::Status;
use uuid::Uuid;
use walrus_log::batch::{Batch, BatchError};
use walrus_model::SegmentId;

use super::pages::Page;
use super::status::status_of;
use crate::broker::Broker;
use crate::edge::Principal;
use crate::node::error::{Error, Result};
use crate::node::names::PartitionRef;
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::node::proto::v1::{Format, Header, ReadRequest, ReadResponse, Record};
use crate::reading::reader::{ReadOptions, ReadPage};

/// About how many bytes an answer has where the client names no limit.
const BYTES_MAX_DEFAULT: usize = 1 << 20;
/// Limit on the bytes that a client may ask for in one answer.
const BYTES_MAX_LIMIT: usize = 16 << 20;

/// A call of `Read` that runs.
pub(super) struct ReadCall {
    broker: Broker,
    from: PartitionRef,
    offset: u64,
    end_offset: Option<u64>,
    options: ReadOptions,
    format: Format,
    /// Whether anything was answered: a client hears about the watermarks even where there is nothing to read.
    answered: bool,
    ended: bool,
}

impl ReadCall {
    pub(super) fn start(broker: Broker, principal: &Principal, request: &ReadRequest) -> Result<Self> {
        let invalid = |problem: String| Error::InvalidRequest { problem };
        let from = principal.partition(&request.topic, request.partition)?;
        let format = Format::try_from(request.format)
            .map_err(|_| invalid(format!("format {} is not one of 0 to 2", request.format)))?;
        let segment = request.segment.as_deref().map(|segment| {
            Uuid::parse_str(segment)
                .map(SegmentId)
                .map_err(|_| invalid(format!("segment {segment:.64?} is not a uuid")))
        });
        if let Some(end) = request.end_offset.filter(|end| *end < request.offset) {
            return Err(invalid(format!("end_offset {end} is below offset {}", request.offset)));
        }
        let bytes_max = match request.bytes_max as usize {
            0 => BYTES_MAX_DEFAULT,
            bytes_max => bytes_max.min(BYTES_MAX_LIMIT),
        };
        let wait = Duration::from_millis(request.wait_ms.into()).min(patience::LONG_POLL_MAX);
        let options = ReadOptions { bytes_max, wait, segment: segment.transpose()?, unconfirmed: false };
        let (offset, end_offset) = (request.offset, request.end_offset);
        Ok(Self { broker, from, offset, end_offset, options, format, answered: false, ended: false })
    }

    pub(super) fn into_stream(self) -> impl Stream<Item = Result<Page, Status>> + Send + 'static {
        stream::unfold(self, |mut reading| async move {
            match reading.next().await {
                Ok(answer) => answer.map(|answer| (Ok(answer), reading)),
                Err(problem) => {
                    reading.ended = true;
                    Some((Err(status_of(&problem)), reading))
                }
            }
        })
    }

    /// The next answer; `None` at the end.
    async fn next(&mut self) -> Result<Option<Page>> {
        if self.ended || (self.answered && self.end_offset.is_some_and(|end| self.offset >= end)) {
            return Ok(None);
        }
        if self.end_offset == Some(self.offset) {
            self.options.wait = Duration::ZERO; // only the watermarks are wanted
        }
        let stop = self.broker.cluster().tasks().shutdown().clone();
        let read = stop.run_until_cancelled(self.broker.read(&self.from, self.offset, self.options)).await;
        let page = read.unwrap_or_else(|| Err(Obstacle::Stopping.into()))?;
        self.ended = page.pieces.is_empty();
        if self.ended && self.answered {
            return Ok(None);
        }
        self.answered = true;
        self.answer(page).map(Some)
    }

    fn answer(&mut self, page: ReadPage) -> Result<Page> {
        let end = self.end_offset.unwrap_or(u64::MAX);
        let mut batches = Vec::new();
        let mut answer = ReadResponse {
            next_offset: page.next_offset.min(end).max(self.offset),
            high_watermark: page.high_watermark,
            log_start: page.log_start,
            ..ReadResponse::default()
        };
        if self.offset < end {
            match self.format {
                Format::Batches => batches = page.pieces,
                Format::Unspecified | Format::Records => {
                    let opened_end;
                    (answer.records, opened_end) = records(&page.pieces, self.offset, end)?;
                    if let Some(opened_end) = opened_end {
                        answer.next_offset = opened_end.min(end).max(self.offset);
                    }
                }
            }
        }
        self.offset = answer.next_offset;
        Ok(Page { rest: answer, batches })
    }
}

/// The records of the batches from `start` to below `end`; keys and values stay where they are. With them comes the offset to go
/// on at, if that is not the end of the batches: opened, they may be a thousand times as large as the page that was read.
fn records(batches: &[Bytes], start: u64, end: u64) -> Result<(Vec<Record>, Option<u64>)> {
    let (mut records, mut bytes) = (Vec::new(), 0);
    for stored in batches {
        let mut rest = &stored[..];
        while !rest.is_empty() {
            let (batch, behind) = Batch::parse(rest).map_err(unreadable)?;
            if bytes > BYTES_MAX_LIMIT {
                return Ok((records, Some(batch.base_offset())));
            }
            rest = behind;
            let opened = batch.open_shared(stored).map_err(unreadable)?;
            bytes += opened.len();
            for record in batch.header().records_in(&opened) {
                let record = record.map_err(unreadable)?;
                if !(start..end).contains(&record.offset) {
                    continue;
                }
                let slice = |bytes: &[u8]| opened.slice_ref(bytes);
                records.push(Record {
                    key: record.key.map(slice),
                    value: record.value.map(slice),
                    headers: record
                        .headers
                        .map(|header| Header { key: header.key.to_owned(), value: header.value.map(slice) })
                        .collect(),
                    timestamp_ms: record.timestamp_ms,
                    offset: record.offset,
                });
            }
        }
    }
    Ok((records, None))
}

fn unreadable(problem: BatchError) -> Error {
    Error::InvalidBatch { problem: format!("{problem}; read it with FORMAT_BATCHES") }
}

#[cfg(test)]
mod tests {
    use walrus_log::batch::{BatchBuilder, write_offsets};

    use super::*;

    fn batch(base_offset: u64, value: &[u8]) -> Bytes {
        let mut bytes = Vec::new();
        BatchBuilder::new().push(None, Some(value), 0, &[]).build(&mut bytes).unwrap();
        write_offsets(&mut bytes, base_offset, 0);
        bytes.into()
    }

    #[test]
    fn an_answer_ends_behind_the_batch_that_fills_it() {
        let stored = [batch(0, b"a"), batch(1, &vec![0; BYTES_MAX_LIMIT]), batch(2, b"b")];
        let (found, goes_on_at) = records(&stored, 0, 3).unwrap();
        assert_eq!((found.len(), goes_on_at), (2, Some(2)));
        let (found, goes_on_at) = records(&stored[2..], 2, 3).unwrap();
        assert_eq!((found.len(), goes_on_at), (1, None));
    }
}
